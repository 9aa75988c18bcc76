"""A service that responds to every HTTP request after the same delay, in a process of its own, and its async client.

The service handles any number of requests concurrently, as a service behind a network does; its own work per request is
small. Run as a program (`slow_service.py DELAY_MS`) it prints its port and serves until its input is closed.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from millstream.common import Types
from millstream.datastream import AsyncFunction

__all__ = ["ANSWER_TYPE", "Ask", "slow_service"]

ANSWER_TYPE = Types.LONG()
_HEAD_END = b"\r\n\r\n"
_READY = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Ask(AsyncFunction[int, int]):
    """One request per record, over pooled connections."""

    def __init__(self, port: int) -> None:
        self._port = port

    def open(self, runtime_context: Any) -> None:
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def async_invoke(self, value: int) -> list[int]:
        reader, writer = self._free.pop() if self._free else await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(b"GET /%d HTTP/1.1\r\nHost: service\r\n\r\n" % value)
        if await reader.readexactly(len(_READY)) != _READY:
            raise RuntimeError(f"the service did not answer for {value}")
        self._free.append((reader, writer))
        return [value]

    def close(self) -> None:
        for _, writer in self._free:
            writer.close()


@contextmanager
def slow_service(delay_ms: int) -> Iterator[int]:
    """The running service; yields its port."""
    command = [sys.executable, __file__, str(delay_ms)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None and child.stdout is not None
        try:
            yield int(child.stdout.readline())
        finally:
            child.stdin.close()
            child.wait(60)


async def _serve(delay_s: float) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(_HEAD_END)
                await asyncio.sleep(delay_s)
                writer.write(_READY)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()  # the client has disconnected

    server = await asyncio.start_server(answer, "127.0.0.1", 0, backlog=1_000)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)
    os._exit(0)  # connected clients are not notified


if __name__ == "__main__":
    asyncio.run(_serve(int(sys.argv[1]) / 1000))
