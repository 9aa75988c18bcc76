"""The life of a proxy: a thread with an event loop that serves connections until it is closed."""

from __future__ import annotations

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, TypeVar

__all__ = ["HOST", "LoopProxy"]

HOST = "127.0.0.1"
Answer = TypeVar("Answer")
Self = TypeVar("Self", bound="LoopProxy")


class LoopProxy(ABC):
    """Listens on `port` (0: any) of `host` as soon as it is made. Closed by `close()` or a `with`. Every writer that is
    connected is in `_writers`, as long as it is."""

    def __init__(self, name: str, port: int = 0, host: str = HOST) -> None:
        self._writers: set[asyncio.StreamWriter] = set()
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
        return await asyncio.start_server(self._serve, host, port, limit=1 << 20)

    @abstractmethod
    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection to its end."""

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        """End one side of a connection at once."""
        self._writers.discard(writer)
        writer.transport.abort()

    async def _shut(self) -> None:
        self._server.close()
        for writer in list(self._writers):
            self._drop(writer)
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
