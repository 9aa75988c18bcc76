"""What is sent over HTTP, as types: the server's OpenAPI description is made of these.

They describe; the answers themselves are built as plain objects and are not validated again on their way out.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "JobAnswer",
    "JobsAnswer",
    "KeysQuestion",
    "ManyAnswer",
    "ReadAnswer",
    "ReadQuestion",
    "RefusedAnswer",
    "ScanAnswer",
    "SeriesAnswer",
    "ServersAnswer",
    "StatesAnswer",
    "ValueAnswer",
    "WindowsAnswer",
]

Key = Annotated[Any, Field(description="A key of the state's key type, as JSON.")]


class _Question(BaseModel):
    # A misspelt name is an error: it would otherwise be left out without a word.
    model_config = ConfigDict(extra="forbid")


class KeysQuestion(_Question):
    """Many keys of one state."""

    keys: list[Key]


class StateKeys(_Question):
    """Keys of one of several states."""

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
    """A state that can be asked for."""

    name: str
    kind: str
    key_type: Annotated[Any, Field(description='"LONG", {"row": [["name", "STRING"]]}, …; "PICKLED" for none.')]
    value_type: Annotated[Any, Field(description="Written as key_type is.")]
    is_pickled: Annotated[bool, Field(description="Such a state is refused over the network.")]
    key_groups: int


class JobAnswer(_OfEpoch):
    """A job."""

    held: Annotated[list[int] | None, Field(description="First and last key group of this server; null for all.")]


class JobName(BaseModel):
    """How a job is called."""

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
    first_group: Annotated[int | None, Field(description="null where it holds all key groups.")]
    last_group: int | None
    ends_ms: Annotated[int, Field(description="Until when this counts unless it is renewed.")]


class ServersAnswer(BaseModel):
    """The server that answers, and all that are registered."""

    held: list[int] | None
    url: str | None
    flight_url: str | None
    servers: list[ServerDescription]


class StatesAnswer(_OfEpoch):
    """Its states."""

    states: list[StateDescription]


class ValueAnswer(_OfEpoch):
    """The value of one key."""

    state: str
    key: Key
    found: bool
    value: Any


class StateValues(BaseModel):
    """Values in the order of their keys; null where nothing was found."""

    state: str
    keys: list[Key]
    found: list[bool]
    values: list[Any]


class ManyAnswer(_OfEpoch, StateValues):
    """The values of many keys."""


class ReadAnswer(_OfEpoch):
    """The values of keys of several states."""

    reads: list[StateValues]


class WindowDescription(BaseModel):
    """A window that is still open, and what it would give if it ended now."""

    start_ms: Annotated[int | None, Field(description="null for windows that are no stretch of time.")]
    end_ms: int | None
    result: Any
    is_accumulator: Annotated[bool, Field(description="The result is what the program's function keeps, not gives.")]


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
    """Why there is no answer, and what to do."""

    model_config = ConfigDict(extra="allow")

    error: Annotated[str, Field(description="A short code, for machines.")]
    message: Annotated[str, Field(description="A sentence, for people.")]
