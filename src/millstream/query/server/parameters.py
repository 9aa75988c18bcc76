"""What a request may say, as types that check it and describe it: parts of paths, parameters, headers, refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any, Literal

from fastapi import Depends, Header, Path, Query, Request
from fastapi.dependencies.models import Dependant
from starlette.convertors import Convertor, register_url_convertor

from millstream.query.server import answers
from millstream.query.server.reads import Moment
from millstream.query.server.rights import Reader
from millstream.query.wire.refusals import BadQuestionError

__all__ = [
    "CACHED",
    "EPOCH_MAX",
    "REFUSALS",
    "AskedMoment",
    "Asker",
    "JobName",
    "KeyFormat",
    "KeyText",
    "Known",
    "LastingAsker",
    "Limit",
    "MinEpoch",
    "Prefix",
    "StateName",
    "only_known",
]

EPOCH_MAX = 10**12 - 1

JobName = Annotated[str, Path(description="The job's name or id.")]
StateName = Annotated[str, Path(description="The name that the state was made queryable by.")]
KeyText = Annotated[str, Path(description="A key: a text, a number, … as the state's key type has it.")]
KeyFormat = Annotated[Literal["text", "json"], Query(description="json: the key is a JSON value.")]
Epoch = Annotated[int | None, Query(ge=1, le=EPOCH_MAX, description="This retained epoch.")]
Time = Annotated[str | None, Query(max_length=64, description="As of this time: ms since 1970, or ISO 8601.")]
MinEpoch = Annotated[int | None, Header(alias="If-Min-Epoch", ge=0, le=EPOCH_MAX)]
Known = Annotated[str | None, Header(alias="If-None-Match", max_length=1000)]
Limit = Annotated[int, Query(ge=1, le=10**9, description="So many rows at most.")]
Prefix = Annotated[str | None, Query(max_length=10_000, description="Only keys that begin so.")]


async def _moment(epoch: Epoch = None, time: Time = None, min_epoch: MinEpoch = None) -> Moment:
    return Moment(epoch, time, min_epoch)


async def _reader(request: Request) -> Reader:
    reader: Reader = request.state.reader
    return reader


async def _reader_now(request: Request) -> Callable[[], Reader]:
    reader_now: Callable[[], Reader] = request.state.reader_now
    return reader_now


class _KeyConvertor(Convertor[str]):
    """The rest of a path, whatever is in it: a key may have slashes and ends of lines."""

    regex = r"[\s\S]*"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("key", _KeyConvertor())


async def only_known(request: Request) -> None:
    """A misspelt parameter is an error: the question would otherwise be answered without it, and without a word."""
    if not request.query_params:
        return
    known = _query_names(request.scope["route"].dependant)
    unknown = next((name for name in request.query_params if name not in known), None)
    if unknown is not None:
        raise BadQuestionError(
            f"there is no parameter {unknown[:60]!r} here. Leave it out, or give one of: {', '.join(known) or 'none'}."
        )


def _query_names(dependant: Dependant) -> list[str]:
    """The parameters that an endpoint takes, itself or through what it depends on."""
    inner = [name for one in dependant.dependencies for name in _query_names(one)]
    return [*inner, *(parameter.alias for parameter in dependant.query_params)]


AskedMoment = Annotated[Moment, Depends(_moment)]
"""The epoch that a question is about: ?epoch=, ?time=, or the newest, at least If-Min-Epoch."""
Asker = Annotated[Reader, Depends(_reader)]
"""Who asks, and what they may read."""
LastingAsker = Annotated[Callable[[], Reader], Depends(_reader_now)]
"""The same, found out again whenever it is called: a token may be taken back meanwhile."""

REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": answers.RefusedAnswer, "description": what}
    for status, what in {
        400: "The request is malformed.",
        401: "A token is needed.",
        403: "The token does not open this state.",
        404: "There is no such job or state.",
        408: "The request came too slowly.",
        409: "The state cannot be asked that way.",
        406: "The state can only be read by unpickling.",
        410: "The epoch is not retained.",
        412: "This server has not reached If-Min-Epoch.",
        413: "Too many keys, rows or bytes.",
        415: "The body is not JSON.",
        421: "Another server holds this key group.",
        422: "A key or parameter cannot be understood.",
        429: "Too many requests.",
        500: "The server or the store is damaged.",
        503: "The store cannot be reached.",
        504: "No answer in time.",
    }.items()
}
CACHED: dict[int | str, dict[str, Any]] = {304: {"description": "Nothing has changed: the epoch is the same."}}
