"""The types of requests and answers over HTTP: the server's OpenAPI description is generated from these.

Path segments, parameters, headers and bodies are validated against their types. Answers are only described: they are
built as plain objects and not validated before they are sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import Depends, Header, Path, Query, Request
from fastapi.dependencies.models import Dependant
from pydantic import BaseModel, ConfigDict, Field
from starlette.convertors import Convertor, register_url_convertor

from millstream.query.server.job_answers import Moment
from millstream.query.server.rights import Reader
from millstream.query.wire.refusals import BadQuestionError

__all__ = [
    "CACHED",
    "EPOCH_MAX",
    "REFUSALS",
    "Caller",
    "CurrentReader",
    "EpochChoice",
    "JobAnswer",
    "JobInPath",
    "JobsAnswer",
    "KeyFormat",
    "KeyText",
    "KeysQuestion",
    "KnownTag",
    "Limit",
    "ManyAnswer",
    "MinEpoch",
    "Prefix",
    "ReadAnswer",
    "ReadQuestion",
    "RefusedAnswer",
    "ScanAnswer",
    "SeriesAnswer",
    "ServersAnswer",
    "StateName",
    "StatesAnswer",
    "ValueAnswer",
    "WindowsAnswer",
    "only_known",
]

# --- bodies and answers -----------------------------------------------------------------------------------------------

Key = Annotated[Any, Field(description="A key of the state's key type, as JSON.")]


class _Question(BaseModel):
    # A misspelt name is an error instead of being silently ignored.
    model_config = ConfigDict(extra="forbid")


class KeysQuestion(_Question):
    """Many keys of one state."""

    keys: list[Key]


class StateKeys(_Question):
    """Keys of one state among several."""

    state: str
    keys: list[Key]


class ReadQuestion(_Question):
    """Keys of several states, to be read at one epoch."""

    reads: Annotated[list[StateKeys], Field(max_length=100)]


class _OfEpoch(BaseModel):
    job: str
    job_id: str
    epoch: Annotated[int, Field(description="The committed epoch that the whole answer belongs to.")]
    watermark: Annotated[int | None, Field(description="Event time of that epoch, in milliseconds.")]
    committed_ms: Annotated[int, Field(description="When it was committed, in milliseconds since 1970.")]
    age_ms: Annotated[int, Field(description="How long ago that was when the answer was made.")]


class StateDescription(BaseModel):
    """A queryable state."""

    name: str
    kind: str
    key_type: Annotated[Any, Field(description='"LONG", {"row": [["name", "STRING"]]}, …; "PICKLED" for none.')]
    value_type: Annotated[Any, Field(description="Written as key_type is.")]
    is_pickled: Annotated[bool, Field(description="The state is refused over the network.")]
    key_groups: int


class JobAnswer(_OfEpoch):
    """A job."""

    held: Annotated[list[int] | None, Field(description="First and last key group of this server; null for all.")]


class JobName(BaseModel):
    """The name and the id of a job."""

    job: str
    job_id: str


class JobsAnswer(BaseModel):
    """The jobs of a server."""

    jobs: list[JobName]


class ServerDescription(BaseModel):
    """A server that has registered in the job's store."""

    id: str
    job_id: str
    url: str
    flight_url: str | None
    first_group: Annotated[int | None, Field(description="null if it holds all key groups.")]
    last_group: int | None
    ends_ms: Annotated[int, Field(description="When this expires unless it is renewed.")]


class ServersAnswer(BaseModel):
    """The server that answers, and all registered servers."""

    held: list[int] | None
    url: str | None
    flight_url: str | None
    servers: list[ServerDescription]


class StatesAnswer(_OfEpoch):
    """The states of a job."""

    states: list[StateDescription]


class ValueAnswer(_OfEpoch):
    """The value of one key."""

    state: str
    key: Key
    has_value: Annotated[bool, Field(alias="found")]
    value: Any


class StateValues(BaseModel):
    """Values in the order of their keys; null if nothing was found."""

    state: str
    keys: list[Key]
    have_values: Annotated[list[bool], Field(alias="found")]
    values: list[Any]


class ManyAnswer(_OfEpoch, StateValues):
    """The values of many keys."""


class ReadAnswer(_OfEpoch):
    """The values of keys of several states."""

    reads: list[StateValues]


class WindowDescription(BaseModel):
    """A window that is still open, and its result if it ended now."""

    start_ms: Annotated[int | None, Field(description="null for windows without a time range.")]
    end_ms: int | None
    result: Any
    is_accumulator: Annotated[
        bool, Field(description="The result is the accumulator of the program's function, not its result.")
    ]


class WindowsAnswer(_OfEpoch):
    """The open windows of a key."""

    state: str
    key: Key
    windows: list[WindowDescription]


class ScanAnswer(_OfEpoch):
    """Rows of a state."""

    state: str
    rows: list[dict[str, Any]]
    is_cut: Annotated[bool, Field(description="Whether there are more rows than these.")]


class SeriesPoint(BaseModel):
    """The value at one epoch."""

    epoch: int
    committed_ms: int
    value: Any


class SeriesAnswer(_OfEpoch):
    """The value of a key at every retained epoch, oldest first."""

    state: str
    key: Key
    points: list[SeriesPoint]


class RefusedAnswer(BaseModel):
    """Why the request was refused, and the next step."""

    model_config = ConfigDict(extra="allow")

    error: Annotated[str, Field(description="A short code, for machines.")]
    message: Annotated[str, Field(description="A sentence, for people.")]


# --- parts of paths, parameters and headers ---------------------------------------------------------------------------

EPOCH_MAX = 10**12 - 1

JobInPath = Annotated[str, Path(description="The job's name or id.")]
StateName = Annotated[str, Path(description="The name that the state was made queryable by.")]
KeyText = Annotated[str, Path(description="A key: a string, a number, … in the form of the state's key type.")]
KeyFormat = Annotated[Literal["text", "json"], Query(description="json: the key is a JSON value.")]
Epoch = Annotated[int | None, Query(ge=1, le=EPOCH_MAX, description="This retained epoch.")]
Time = Annotated[str | None, Query(max_length=64, description="As of this time: ms since 1970, or ISO 8601.")]
MinEpoch = Annotated[int | None, Header(alias="If-Min-Epoch", ge=0, le=EPOCH_MAX)]
KnownTag = Annotated[str | None, Header(alias="If-None-Match", max_length=1000)]
Limit = Annotated[int, Query(ge=1, le=10**9, description="The maximal number of rows.")]
Prefix = Annotated[str | None, Query(max_length=10_000, description="Only keys that begin with this.")]


async def _moment(epoch: Epoch = None, time: Time = None, min_epoch: MinEpoch = None) -> Moment:
    return Moment(epoch, time, min_epoch)


async def _reader(request: Request) -> Reader:
    reader: Reader = request.state.reader
    return reader


async def _reader_now(request: Request) -> Callable[[], Reader]:
    reader_now: Callable[[], Reader] = request.state.reader_now
    return reader_now


class _KeyConvertor(Convertor[str]):
    """The rest of a path, with any characters: a key may contain slashes and line breaks."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("key", _KeyConvertor())


async def only_known(request: Request) -> None:
    """Rejects a misspelt parameter instead of silently ignoring it."""
    if not request.query_params:
        return
    known = _query_names(request.scope["route"].dependant)
    unknown = next((name for name in request.query_params if name not in known), None)
    if unknown is not None:
        raise BadQuestionError(
            f"there is no parameter {unknown[:60]!r} here. Remove it, or use one of: {', '.join(known) or 'none'}."
        )


def _query_names(dependant: Dependant) -> list[str]:
    """The parameters that an endpoint takes, itself or through its dependencies."""
    inherited = [name for inner_dependant in dependant.dependencies for name in _query_names(inner_dependant)]
    return [*inherited, *(parameter.alias for parameter in dependant.query_params)]


EpochChoice = Annotated[Moment, Depends(_moment)]
"""The epoch of a request: ?epoch=, ?time=, or the newest, at least If-Min-Epoch."""
Caller = Annotated[Reader, Depends(_reader)]
"""The client, with its rights."""
CurrentReader = Annotated[Callable[[], Reader], Depends(_reader_now)]
"""The client, determined again by each call: a token may be revoked in the meantime."""

REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": RefusedAnswer, "description": text}
    for status, text in {
        400: "The request is malformed.",
        401: "A token is needed.",
        403: "The token may not read this state.",
        404: "There is no such job or state.",
        408: "The request arrived too slowly.",
        409: "The state does not support this request.",
        406: "The state can only be read by unpickling.",
        410: "The epoch is not retained.",
        412: "This server has not reached If-Min-Epoch.",
        413: "Too many keys, rows or bytes.",
        415: "The body is not JSON.",
        421: "Another server holds this key group.",
        422: "A key or parameter is invalid.",
        429: "Too many requests.",
        500: "The server or the store is damaged.",
        503: "The store cannot be reached.",
        504: "No answer in time.",
    }.items()
}
CACHED: dict[int | str, dict[str, Any]] = {304: {"description": "Nothing has changed: the epoch is the same."}}
