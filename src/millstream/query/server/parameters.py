"""What a request may say, as types that check it and describe it: parts of paths, parameters, headers, refusals."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Depends, Header, Path, Query, Request

from millstream.query.server import answers
from millstream.query.server.reads import Moment
from millstream.query.server.rights import Reader

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
    "Limit",
    "MinEpoch",
    "Prefix",
    "StateName",
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


AskedMoment = Annotated[Moment, Depends(_moment)]
"""The epoch that a question is about: ?epoch=, ?time=, or the newest, at least If-Min-Epoch."""
Asker = Annotated[Reader, Depends(_reader)]
"""Who asks, and what they may read."""

REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": answers.RefusedAnswer, "description": what}
    for status, what in {
        400: "The request is malformed.",
        401: "A token is needed.",
        403: "The token does not open this state.",
        404: "There is no such job or state.",
        409: "The state cannot be asked that way.",
        406: "The state can only be read by unpickling.",
        410: "The epoch is not retained.",
        412: "This server has not reached If-Min-Epoch.",
        413: "Too many keys, rows or bytes.",
        421: "Another server holds this key group.",
        422: "A key or parameter cannot be understood.",
        429: "Too many requests.",
        500: "The server or the store is damaged.",
        503: "The store cannot be reached.",
        504: "No answer in time.",
    }.items()
}
CACHED: dict[int | str, dict[str, Any]] = {304: {"description": "Nothing has changed: the epoch is the same."}}
