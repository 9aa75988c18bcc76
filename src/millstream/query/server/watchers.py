"""Watchers of keys: server-sent events, one whenever its value has changed with an epoch.

One bell per server looks for new epochs while anybody watches, and rings for all watchers at once. A watcher that is
slow misses epochs in between and sees the newest: what waits for it is never more than one event. The id of an event
is its epoch, so a browser that reconnects tells what it has seen, and is not told that again.
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

_LOOK_S = 0.025
_SILENCE_S = 15.0


class EpochBell:
    """Tells watchers of new epochs. `look` gives the newest one, and leaves the loop alone while it looks."""

    def __init__(self, look: Callable[[], Awaitable[int]], watchers_max: int) -> None:
        self._look, self._watchers_max = look, watchers_max
        self._watchers = 0
        self._newest = 0
        self._rung = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.is_closed = False

    def check(self) -> None:
        """TooManyError if there are as many watchers as may be."""
        if self._watchers >= self._watchers_max:
            raise TooManyError(
                f"{self._watchers} keys are watched at this server, as many as may be. Ask another, or ask for values."
            )

    def enter(self) -> None:
        """One watcher more. Call `leave` in the end."""
        self._watchers += 1
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    def leave(self) -> None:
        """One watcher less; without any, nobody looks for epochs."""
        self._watchers -= 1
        if not self._watchers and self._task is not None:
            self._task.cancel()
            self._task = None

    def close(self) -> None:
        """End all watching: the server stops."""
        self.is_closed = True
        self._ring()

    async def after(self, epoch: int, patience_s: float) -> bool:
        """Wait for an epoch newer than this one; False if there was none so long."""
        if self._newest > epoch or self.is_closed:
            return True
        try:
            await asyncio.wait_for(self._rung.wait(), patience_s)
        except TimeoutError:
            return False
        # It rings for every epoch, and whoever comes from another server may have seen a newer one there.
        return self._newest > epoch or self.is_closed

    def _ring(self) -> None:
        rung, self._rung = self._rung, asyncio.Event()
        rung.set()

    async def _run(self) -> None:
        while True:
            try:
                newest = await self._look()
            except Exception:  # the store is away for a moment: watchers wait, and are told when they read
                newest = self._newest
            if newest > self._newest:
                self._newest = newest
                self._ring()
            await asyncio.sleep(_LOOK_S)


@dataclass(frozen=True)
class WatchedAnswer:
    """An answer as a watcher is sent it, and what of it must have changed to be sent."""

    epoch: int
    value: bytes
    text: bytes

    @classmethod
    def of(cls, answer: dict[str, Any]) -> WatchedAnswer:
        """Encoded where it is read, not where all watchers are served."""
        value: dict[str, Any] = {part: answer.get(part) for part in ("found", "value", "windows")}
        return cls(answer["epoch"], encoded(value), encoded(answer))


async def watch(
    bell: EpochBell, read: Callable[[], Awaitable[WatchedAnswer]], seen: int, silence_s: float = _SILENCE_S
) -> AsyncIterator[bytes]:
    """The events of one watcher, who has seen epoch `seen`: an event per change, and a comment now and then."""
    last: bytes | None = None
    epoch = seen
    bell.enter()  # here and not earlier: a stream that is never read would never come to `leave`
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
