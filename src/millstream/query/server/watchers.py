"""Watchers of keys: server-sent events, one after each change of the value.

One bell per server checks for new epochs while there are watchers, and wakes all of them at once. A slow watcher skips
epochs and sees the newest: at most one event is pending for it. The id of an event is its epoch, so a browser that
reconnects sends the last one it has seen, and does not receive it again.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from millstream.query.server.answer_bytes import encoded
from millstream.query.wire.refusals import TooManyError, answer_to

__all__ = ["EpochBell", "WatchedAnswer", "watch"]

_POLL_S = 0.025
_SILENCE_S = 15.0


class EpochBell:
    """Notifies watchers of new epochs. `newest` returns the newest one, without blocking the loop."""

    def __init__(self, newest: Callable[[], Awaitable[int]], watchers_max: int) -> None:
        self._newest_epoch, self._watchers_max = newest, watchers_max
        self._watchers = 0
        self._newest = 0
        self._rung = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.is_closed = False

    def check(self) -> None:
        """Raises TooManyError if the maximum number of watchers is reached."""
        if self._watchers >= self._watchers_max:
            raise TooManyError(
                f"{self._watchers} keys are watched at this server, the maximum. Use another server, or query values."
            )

    def enter(self) -> None:
        """Adds a watcher. Call `leave` at the end."""
        self._watchers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def leave(self) -> None:
        """Removes a watcher; after the last one, the checks for epochs stop."""
        self._watchers -= 1
        if not self._watchers and self._task is not None:
            self._task.cancel()
            self._task = None

    def close(self) -> None:
        """End all watching: the server stops."""
        self.is_closed = True
        self._ring()

    async def after(self, epoch: int, patience_s: float) -> bool:
        """Wait for an epoch newer than this one; False if none appeared within `patience_s`."""
        if self._newest > epoch or self.is_closed:
            return True
        try:
            await asyncio.wait_for(self._rung.wait(), patience_s)
        except TimeoutError:
            return False
        # It rings for every epoch, and a watcher from another server may have seen a newer one there.
        return self._newest > epoch or self.is_closed

    def _ring(self) -> None:
        rung, self._rung = self._rung, asyncio.Event()
        rung.set()

    async def _run(self) -> None:
        while True:
            try:
                newest = await self._newest_epoch()
            except Exception:  # the store is unreachable for a while: watchers wait, and get the error on read
                newest = self._newest
            if newest > self._newest:
                self._newest = newest
                self._ring()
            await asyncio.sleep(_POLL_S)


@dataclass(frozen=True)
class WatchedAnswer:
    """An answer for a watcher, and the part whose change triggers an event."""

    epoch: int
    value: bytes
    text: bytes

    @classmethod
    def of(cls, answer: dict[str, Any]) -> WatchedAnswer:
        """Encoded on the thread that reads it, not on the loop that serves all watchers."""
        value: dict[str, Any] = {part: answer.get(part) for part in ("found", "value", "windows")}
        return cls(answer["epoch"], encoded(value), encoded(answer))


async def watch(
    bell: EpochBell, read: Callable[[], Awaitable[WatchedAnswer]], seen: int, silence_s: float = _SILENCE_S
) -> AsyncIterator[bytes]:
    """The events of one watcher, which has seen epoch `seen`: an event per change, and periodic comments."""
    last: bytes | None = None
    epoch = seen
    bell.enter()  # not earlier: a stream that is never read would never reach `leave`
    try:
        yield b"retry: 1000\n\n"
        while not bell.is_closed:
            if await bell.after(epoch, silence_s) is False:
                yield b": still here\n\n"
                continue
            if bell.is_closed:
                return
            try:
                answer = await read()
            except Exception as error:
                refused = json.dumps(answer_to(error).body())
                yield f"event: refused\ndata: {refused}\n\n".encode()
                return
            epoch = max(epoch, answer.epoch)
            if answer.value != last:
                last = answer.value
                yield b"id: %d\nevent: value\ndata: %s\n\n" % (answer.epoch, answer.text)
    finally:
        bell.leave()
