"""The plainest question, answered where it arrives: one key of the newest epoch, from memory, without a thread.

On a busy machine a question waits once for every thread that it passes through, and most of the work for a small answer
is the framework's. So `GET …/keys/{key}` and `…/windows/{key}` without parameters are answered here when that takes
microseconds: the epoch is at hand and as new as is asked for, the state is open and of a plain kind, the answer small.
Whatever is unusual, and whatever is wrong with the question, goes on to the application, which also says why.
Invariant: an answer given here is the one that the application would give.

A newer epoch is looked for on a thread, while questions are answered from the epoch there is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.errors import MillstreamError
from millstream.query.server.answer_size import json_size
from millstream.query.server.encoding import encoded_at_once
from millstream.query.server.opened import OpenedEpoch, OpenedJob
from millstream.query.server.reads import Reads
from millstream.query.wire.json_values import key_of_text

__all__ = ["AtHand"]

_PATH_PARTS = 8  # /v1/jobs/JOB/states/STATE/keys/KEY, and nothing before the first slash
_DIGITS_MAX = 12
_QUICK_BYTES_MAX = 32 << 10


class AtHand:
    """Stands behind the guard, before the application. `look` looks for a newer epoch, on a thread."""

    def __init__(
        self,
        app: ASGIApp,
        served: OpenedJob,
        reads: Reads,
        tag: Callable[[int], str],
        look: Callable[[], Awaitable[object]],
    ) -> None:
        self._app, self._served, self._reads, self._tag, self._look = app, served, reads, tag, look
        self._looking: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        answer = self._answer(scope) if scope["type"] == "http" and scope["method"] == "GET" else None
        if answer is None:
            await self._app(scope, receive, send)
            return
        body = encoded_at_once(answer)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            (b"etag", self._tag(answer["epoch"]).encode()),
            (b"cache-control", b"no-cache"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, scope: Scope) -> dict[str, Any] | None:
        parts = scope["path"].split("/", _PATH_PARTS - 1)
        if len(parts) != _PATH_PARTS or (parts[1], parts[2], parts[4]) != ("v1", "jobs", "states"):
            return None
        if scope["query_string"]:
            return None
        if parts[3] not in (self._served.job, self._served.job_id):
            return None
        # While a look is on its way, begun in time, the epoch there is counts as long as that takes.
        epoch = self._served.at_hand(is_looked_for=self._looking is not None)
        if epoch is None or not _is_enough(epoch.epoch, scope["headers"]):
            return None
        if self._looking is None and self._served.is_due():
            self._looking = asyncio.create_task(self._look_again())
        try:
            return self._read(scope["state"]["reader"], epoch, parts[5], parts[6], parts[7])
        except (MillstreamError, KeyError, ValueError, TypeError):
            return None

    def _read(self, reader: Any, epoch: OpenedEpoch, name: str, what: str, text: str) -> dict[str, Any] | None:
        state = self._served.state_at(epoch, name)
        if state is None or state.is_pickled or not epoch.is_quick(name) or not reader.may_read(name):
            return None
        read = {"keys": self._reads.value_at, "windows": self._reads.windows_at}.get(what)
        if read is None:
            return None
        key = key_of_text(text, state.key_type)
        if state.key_groups and not self._reads.holds(epoch.group_of(name, key)):
            return None
        answer = read(epoch, name, key)
        part: Any = answer.get("windows" if what == "windows" else "value")
        return answer if json_size(part) <= _QUICK_BYTES_MAX else None

    async def _look_again(self) -> None:
        try:
            await self._look()
        except Exception:  # who asks when the epoch there is has become too old is told
            pass
        finally:
            self._looking = None


def _is_enough(epoch: int, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether an answer of that epoch is what the conditions of a request, if there are any, ask for."""
    for name, value in headers:
        if name == b"if-none-match":
            return False  # perhaps there is nothing to send
        if name == b"if-min-epoch" and not (value.isdigit() and len(value) <= _DIGITS_MAX and int(value) <= epoch):
            return False
    return True
