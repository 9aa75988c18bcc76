"""Answers the simplest requests directly in the event loop: one key of the newest epoch, from memory, without a thread.

On a busy machine a request waits for every thread that it passes through, and the framework accounts for most of the
cost of a small answer. So `GET …/keys/{key}` and `…/windows/{key}`, with no parameter but `key_format=json`, are
answered here if that takes microseconds: the epoch is known and new enough, the state is open and of a plain kind, and
the answer is small. Any unusual or invalid request is passed on to the application, which also reports errors.
Invariant: an answer made here equals the application's.

A thread checks for newer epochs, while requests are answered from the current one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from millstream.errors import MillstreamError
from millstream.query.epoch_view import EpochView
from millstream.query.server.answer_bytes import encoded_at_once, json_size
from millstream.query.server.job_answers import JobAnswers
from millstream.query.server.rights import Reader
from millstream.query.wire.json_values import key_of_text

__all__ = ["QuickPath"]

_PATH_PARTS = 8  # /v1/jobs/JOB/states/STATE/keys/KEY, and nothing before the first slash
_KEY_FORMATS = {b"": "text", b"key_format=json": "json"}
_DIGITS_MAX = 12
_INT64 = 1 << 63
_QUICK_BYTES_MAX = 32 << 10


class QuickPath:
    """ASGI middleware between the guard and the application. `check` checks for a newer epoch, on a thread."""

    def __init__(self, app: ASGIApp, answers: JobAnswers, check: Callable[[], Awaitable[object]]) -> None:
        self._app, self._answers, self._job, self._check = app, answers, answers.job, check
        self._search: asyncio.Task[None] | None = None

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
            (b"etag", self._answers.tag(answer["epoch"]).encode()),
            (b"cache-control", b"no-cache"),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    def _answer(self, scope: Scope) -> dict[str, Any] | None:
        parts = scope["path"].split("/", _PATH_PARTS - 1)
        if len(parts) != _PATH_PARTS or (parts[1], parts[2], parts[4]) != ("v1", "jobs", "states"):
            return None
        key_format = _KEY_FORMATS.get(scope["query_string"])
        if key_format is None or parts[3] not in (self._job.job, self._job.job_id):
            return None
        # While a check that began in time is running, the known epoch remains valid.
        epoch = self._job.known_newest(is_sought=self._search is not None)
        if epoch is None or not _is_enough(epoch.epoch, scope["headers"]):
            return None
        if self._search is None and self._job.is_check_due:
            self._search = asyncio.create_task(self._check_for_newer())
        try:
            return self._read(scope["state"]["reader"], epoch, parts[5], parts[6], parts[7], key_format)
        except (MillstreamError, KeyError, ValueError, TypeError):
            return None

    def _read(
        self, reader: Reader, epoch: EpochView, name: str, what: str, text: str, key_format: str
    ) -> dict[str, Any] | None:
        state = self._answers.states_at(epoch).get(name)
        if state is None or state.is_pickled or not epoch.is_quick(name) or not reader.may_read(name):
            return None
        read = {"keys": self._answers.value_at, "windows": self._answers.windows_at}.get(what)
        if read is None:
            return None
        key = key_of_text(text, state.key_type, key_format)
        if type(key) is not str and not (type(key) is int and -_INT64 <= key < _INT64):
            return None  # keys of other types use the slow path
        held = self._answers.held
        if held is not None and state.key_groups and epoch.group_of(name, key) not in held:
            return None
        answer = read(epoch, name, key)
        part: Any = answer.get("windows" if what == "windows" else "value")
        return answer if json_size(part) <= _QUICK_BYTES_MAX else None

    async def _check_for_newer(self) -> None:
        try:
            await self._check()
        except Exception:  # a later request must check itself, and receives the error as its answer
            pass
        finally:
            self._search = None


def _is_enough(epoch: int, headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether an answer of that epoch satisfies the conditions of a request, if any."""
    for name, value in headers:
        if name == b"if-none-match":
            return False  # perhaps there is nothing to send
        if name == b"if-min-epoch" and not (value.isdigit() and len(value) <= _DIGITS_MAX and int(value) <= epoch):
            return False
    return True
