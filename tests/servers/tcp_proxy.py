"""A way to a server that tests can cut, mend, slow down and stop up.

Bytes are passed on as they come, by one thread with an event loop. `cut()` resets what is connected and every new
connection; `stall()` keeps connections and lets nothing through, as a lost network does; `mend()` ends both.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

__all__ = ["TcpProxy"]

_HOST = "127.0.0.1"
_CHUNK_BYTES = 65536
_RESET = struct.pack("ii", 1, 0)  # linger for 0 s: a close is a reset

Answer = TypeVar("Answer")


class TcpProxy:
    """Listens on `port` (0: any) and connects to `target_port` for each connection. Closed by `close()` or a `with`.

    `delay_ms` is added to every chunk in each direction, and may be changed at any time.
    """

    def __init__(self, target_port: int, port: int = 0) -> None:
        self.target_port = target_port
        self.delay_ms = 0.0
        self.connections_made = 0
        self._is_cut = False
        self._budget: int | None = None
        self._on_budget: Callable[[], None] | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._flows = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="tcp-proxy")
        self._thread.start()
        self._server = self._run(self._listen(port))
        self.port: int = self._server.sockets[0].getsockname()[1]

    @property
    def address(self) -> str:
        return f"{_HOST}:{self.port}"

    def cut(self) -> None:
        """Reset all connections, and each new one until it is mended."""
        self._run(self._cut())

    def stall(self) -> None:
        """Let nothing through, in neither direction. Connections stay; new ones are accepted and hear nothing."""
        self._run(self._set_flow(False))

    def mend(self) -> None:
        """Let everything through again. What was stalled arrives; what was cut stays cut and may connect again."""
        self._is_cut = False
        self._budget = None
        self._run(self._set_flow(True))

    def cut_after(self, count_bytes: int) -> None:
        """Cut after so many more bytes from clients to the server have gone through: in the middle of a request."""
        self._budget = count_bytes

    def is_cut(self) -> bool:
        return self._is_cut

    def drop(self) -> None:
        """Reset all connections, once. New ones are let through."""
        self._run(self._reset_all())

    def close(self) -> None:
        if not self._loop.is_closed():
            self._run(self._shut())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(10)
            self._loop.close()

    def __enter__(self) -> TcpProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- in the loop ---

    def _run(self, act: Coroutine[Any, Any, Answer]) -> Answer:
        return asyncio.run_coroutine_threadsafe(act, self._loop).result(30)

    async def _listen(self, port: int) -> asyncio.Server:
        self._flows.set()
        return await asyncio.start_server(self._serve, _HOST, port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        if self._is_cut:
            return self._reset(writer)
        try:
            await self._flows.wait()
            far_reader, far_writer = await asyncio.open_connection(_HOST, self.target_port)
        except OSError:
            return self._reset(writer)
        self.connections_made += 1
        self._writers.add(far_writer)
        there = asyncio.ensure_future(self._pass(reader, far_writer, self._spend))
        back = asyncio.ensure_future(self._pass(far_reader, writer, None))
        try:
            await asyncio.gather(there, back)
        except (OSError, asyncio.CancelledError):
            there.cancel()
            back.cancel()
        self._reset(writer)
        self._reset(far_writer)

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, spend: Callable[[bytes], bytes] | None
    ) -> None:
        while chunk := await reader.read(_CHUNK_BYTES):
            if self.delay_ms:
                await asyncio.sleep(self.delay_ms / 1000)
            await self._flows.wait()
            allowed = spend(chunk) if spend else chunk
            writer.write(allowed)
            await writer.drain()
            if len(allowed) < len(chunk):
                await self._cut()
        if writer.can_write_eof() and not writer.is_closing():
            writer.write_eof()

    def _spend(self, chunk: bytes) -> bytes:
        if self._budget is None:
            return chunk
        allowed = chunk[: self._budget]
        self._budget -= len(allowed)
        return allowed

    async def _cut(self) -> None:
        self._is_cut = True
        await self._reset_all()

    async def _reset_all(self) -> None:
        for writer in list(self._writers):
            self._reset(writer)

    def _reset(self, writer: asyncio.StreamWriter) -> None:
        self._writers.discard(writer)
        sock = writer.get_extra_info("socket")
        if sock is not None and not writer.transport.is_closing():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        writer.transport.abort()

    async def _set_flow(self, flows: bool) -> None:
        (self._flows.set if flows else self._flows.clear)()

    async def _shut(self) -> None:
        self._server.close()
        await self._reset_all()
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
