"""A TCP proxy to a server that tests can cut, mend, slow down and stall.

Bytes are forwarded as they arrive, by one thread with an event loop. `cut()` resets existing and new connections;
`stall()` keeps connections open and forwards nothing, like a lost network; `mend()` ends both.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable

from servers.loop_proxy import HOST, LoopProxy

__all__ = ["TcpProxy"]

_CHUNK_BYTES = 65536
_RESET = struct.pack("ii", 1, 0)  # linger for 0 s: a close is a reset


class TcpProxy(LoopProxy):
    """Listens on `port` (0: any) of `host` and connects to `target_port` for each connection.

    `delay_ms` is added to every chunk in each direction, and may be changed at any time.
    """

    def __init__(self, target_port: int, port: int = 0, host: str = HOST) -> None:
        self.target_port = target_port
        self.delay_ms = 0.0
        self.connections_made = 0
        self._is_cut = False
        self._budget: int | None = None
        self._flows = asyncio.Event()
        self._flows.set()
        super().__init__("tcp-proxy", port, host)

    @property
    def address(self) -> str:
        return f"{HOST}:{self.port}"

    def cut(self) -> None:
        """Reset all connections, and each new one until `mend`."""
        self._run(self._cut())

    def stall(self) -> None:
        """Forward nothing, in either direction. Connections stay open; new ones are accepted and receive nothing."""
        self._run(self._set_flow(False))

    def mend(self) -> None:
        """Forward everything again. Stalled data arrives; cut connections stay closed, and clients may reconnect."""
        self._is_cut = False
        self._budget = None
        self._run(self._set_flow(True))

    def cut_after(self, count_bytes: int) -> None:
        """Cut after this many more bytes from clients to the server: in the middle of a request."""
        self._budget = count_bytes

    def is_cut(self) -> bool:
        return self._is_cut

    def drop(self) -> None:
        """Reset all connections, once. New ones are forwarded."""
        self._run(self._reset_all())

    # --- in the loop ---

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._is_cut:
            return self._drop(writer)
        try:
            await self._flows.wait()
            far_reader, far_writer = await asyncio.open_connection(HOST, self.target_port)
        except OSError:
            return self._drop(writer)
        self.connections_made += 1
        self._writers.add(far_writer)
        there = asyncio.ensure_future(self._pass(reader, far_writer, self._spend))
        back = asyncio.ensure_future(self._pass(far_reader, writer, None))
        try:
            await asyncio.gather(there, back)
        except (OSError, asyncio.CancelledError):
            there.cancel()
            back.cancel()
        self._drop(writer)
        self._drop(far_writer)

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
            self._drop(writer)

    def _drop(self, writer: asyncio.StreamWriter) -> None:
        sock = writer.get_extra_info("socket")
        if sock is not None and not writer.transport.is_closing():
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        super()._drop(writer)

    async def _set_flow(self, flows: bool) -> None:
        (self._flows.set if flows else self._flows.clear)()
