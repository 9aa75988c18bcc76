"""The door before the Flight server: what it lets through is small enough, and comes and goes fast enough.

The Flight server takes in a message of any size before anybody may look at it, waits for the rest of a call for ever,
and cannot be told otherwise. So it listens on a socket in a folder of its own, and this door listens to the network: it
counts what goes through (`flight_frames.py`), tells a client whose call is refused, and hangs up on both sides, which
ends the call in the server too. TLS ends here. Everything runs on one thread with a loop of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
import threading
import time
from collections.abc import Callable
from pathlib import Path

from millstream.query.server.flight_frames import PREFACE, CallRefusal, Calls, Frames, refusal_frames
from millstream.query.server.rates import Rates
from millstream.query.server.settings import Limits

__all__ = ["FlightGate"]

_LOG = logging.getLogger(__name__)
_PIECE_BYTES = 1 << 18
_LINGER_S = 1.0
_STOP_S = 5.0


class FlightGate:
    """Lets connections to `listening` through to the server at `inner`, from the moment it is made."""

    def __init__(self, listening: socket.socket, inner: Path, limits: Limits, tls: ssl.SSLContext | None) -> None:
        self._listening, self._inner, self._limits, self._tls = listening, inner, limits, tls
        self.port: int = listening.getsockname()[1]
        self._passages: dict[_Passage, None] = {}
        self._rates = Rates(limits.requests_per_s)
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="query-server-flight", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Take no more connections, wait a moment for open calls, then hang up."""
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_STOP_S + _LINGER_S + 5)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(
            self._pass,
            sock=self._listening,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else self._limits.header_timeout_s,
            limit=_PIECE_BYTES,
        )
        await self._stopping.wait()
        server.close()
        until_s = time.monotonic() + _STOP_S
        while time.monotonic() < until_s and any(len(one.calls) for one in self._passages):
            await asyncio.sleep(0.02)
        for passage in list(self._passages):
            passage.abort()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = str((writer.get_extra_info("peername") or [""])[0])
        calls = Calls(self._limits, lambda now_s: self._rates.wait_s(client, now_s))
        passage = _Passage(reader, writer, self._limits, calls)
        if len(self._passages) >= self._limits.connections_max:
            idle = next((one for one in self._passages if not len(one.calls)), None)
            (idle or passage).abort()
        self._passages[passage] = None
        try:
            await passage.run(self._inner)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.CancelledError, ssl.SSLError) as error:
            _LOG.debug("a Flight connection ended: %r", error)
        finally:
            self._passages.pop(passage, None)
            passage.abort()


class _Passage:
    """One connection, and the one to the server that belongs to it."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limits: Limits, calls: Calls
    ) -> None:
        self._reader, self._writer, self._limits, self.calls = reader, writer, limits, calls
        self._inner_writer: asyncio.StreamWriter | None = None
        self._questions, self._answers = Frames(), Frames()

    def abort(self) -> None:
        """Hang up on both sides."""
        self._writer.transport.abort()
        if self._inner_writer is not None:
            self._inner_writer.transport.abort()

    async def run(self, inner: Path) -> None:
        """Let through what comes, until one side ends or a call is refused."""
        async with asyncio.timeout(self._limits.header_timeout_s):
            if await self._reader.readexactly(len(PREFACE)) != PREFACE:
                return  # whatever this is, it is no Flight, and would not understand what we say
        inner_reader, self._inner_writer = await asyncio.open_unix_connection(str(inner), limit=_PIECE_BYTES)
        self._inner_writer.write(PREFACE)
        ways = [
            asyncio.ensure_future(_pump(self._reader, self._inner_writer, self._see_question)),
            asyncio.ensure_future(_pump(inner_reader, self._writer, self._see_answer)),
            asyncio.ensure_future(self._keep_time()),
        ]
        try:
            done, _ = await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
        try:
            for way in done:
                way.result()
        except CallRefusal as refusal:
            await self._refuse(refusal)

    def _see_question(self, data: bytes) -> None:
        now_s = time.monotonic()
        for frame, piece, is_last in self._questions.of(memoryview(data)):
            self.calls.asked(frame, piece, is_last, now_s)

    def _see_answer(self, data: bytes) -> None:
        now_s = time.monotonic()
        for frame, _, is_last in self._answers.of(memoryview(data)):
            self.calls.answered(frame, is_last, now_s)

    async def _keep_time(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self._limits.request_timeout_s / 4))
            self.calls.check_time(time.monotonic())

    async def _refuse(self, refusal: CallRefusal) -> None:
        """Say so, where a frame may be said, and wait a moment: hanging up at once would have it thrown away."""
        if self._inner_writer is not None:
            self._inner_writer.transport.abort()
        if self._answers.is_between:
            self._writer.write(refusal_frames(refusal))
        async with asyncio.timeout(_LINGER_S):
            while await self._reader.read(_PIECE_BYTES):
                pass


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, see: Callable[[bytes], None]) -> None:
    while data := await reader.read(_PIECE_BYTES):
        see(data)
        writer.write(data)
        await writer.drain()
