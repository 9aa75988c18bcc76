"""The lifecycle of a proxy: a thread with an event loop that serves connections until it is closed."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

__all__ = ["HOST", "LoopProxy"]

HOST = "127.0.0.1"
_TURNS = 5
Answer = TypeVar("Answer")
Self = TypeVar("Self", bound="LoopProxy")


class LoopProxy(ABC):
    """Listens on `port` (0: any) of `host` from its creation. Closed by `close()` or a `with`. `_writers` has every
    connected writer.
    """

    def __init__(self, name: str, port: int = 0, host: str = HOST) -> None:
        self._writers: set[asyncio.StreamWriter] = set()
        self._served: set[asyncio.Future[None]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name=name)
        self._thread.start()
        self._server = self._run(self._listen(host, port))
        self.port: int = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        if not self._loop.is_closed():
            self._run(self._shut())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- in the loop ---

    def _run(self, act: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(act, self._loop).result(30)

    async def _listen(self, host: str, port: int) -> asyncio.Server:
        return await asyncio.start_server(self._enter, host, port, limit=1 << 20)

    def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Register a connection in the loop iteration that creates it: a task cancelled before its first step
        registers nothing.
        """
        self._writers.add(writer)
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._served.add(task)
        task.add_done_callback(self._served.discard)

    @abstractmethod
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        """Close one side of a connection immediately."""
        self._writers.discard(writer)
        writer.transport.abort()

    async def _shut(self) -> None:
        # A connection accepted a moment ago still belongs to asyncio, in a task that leaks its socket if it is
        # cancelled
        # or sees the server closed. So accepting stops first, and such a connection is registered within some
        # iterations.
        for listener in self._server.sockets:
            self._loop.remove_reader(listener.fileno())
        for _ in range(_TURNS):
            await asyncio.sleep(0)
        self._server.close()
        for writer in list(self._writers):
            self._drop(writer)
        served = list(self._served)
        for task in served:
            task.cancel()
        await asyncio.gather(*served, return_exceptions=True)
        for _ in range(_TURNS):  # for transports that were just closed
            await asyncio.sleep(0)
