"""The gate of the Flight server: it enforces size and time limits on calls.

The Flight server accepts a message of any size before anybody can examine it, waits forever for the rest of a call, and
cannot be configured otherwise. So it listens on a socket in a private folder, and the gate listens on the network. The
gate measures the traffic (`flight_frames.py`), reports a refusal to the client, and closes both connections, which also
ends the call in the server. TLS is terminated here. Everything runs on one thread with its own loop.

A passage is two sides that forward data as it arrives, without a task or a buffer in between: a side that cannot be
written to makes the other one stop reading.
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

import uvloop

from millstream.query.server.flight_frames import PREFACE, CallRefusal, Calls, Frames, refusal_frames
from millstream.query.server.guard import Rates
from millstream.query.server.settings import Limits

__all__ = ["FlightGate"]

_LOG = logging.getLogger(__name__)
_LINGER_S = 1.0
_STOP_S = 5.0


class FlightGate:
    """Forwards connections from `listening` to the server at `inner`, from its creation on."""

    def __init__(self, listening: socket.socket, inner: Path, limits: Limits, tls: ssl.SSLContext | None) -> None:
        self._listening, self._tls = listening, tls
        self.inner, self.limits, self.rates = inner, limits, Rates(limits.requests_per_s)
        self.port: int = listening.getsockname()[1]
        self.passages: dict[_Passage, None] = {}
        self._loop = uvloop.new_event_loop()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="query-server-flight", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Accept no more connections, wait briefly for open calls, then close."""
        with contextlib.suppress(RuntimeError):  # it has ended already
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_STOP_S + _LINGER_S + 5)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await self._loop.create_server(
            lambda: _Passage(self, self._loop).client,
            sock=self._listening,
            ssl=self._tls,
            ssl_handshake_timeout=None if self._tls is None else self.limits.header_timeout_s,
        )
        await self._stopping.wait()
        server.close()
        until_s = time.monotonic() + _STOP_S
        while time.monotonic() < until_s and any(len(passage.calls) for passage in self.passages):
            await asyncio.sleep(0.02)
        for passage in list(self.passages):
            passage.abort()


class _Side(asyncio.Protocol):
    """One of the two connections of a passage. `see` receives the data; `on_lost` is called at its end."""

    def __init__(self, on_made: Callable[[], None], see: Callable[[bytes], None], on_lost: Callable[[], None]) -> None:
        self._on_made, self.see, self._on_lost = on_made, see, on_lost
        self.transport: asyncio.Transport | None = None
        self.other: _Side | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.transport = transport
        self._on_made()

    def data_received(self, data: bytes) -> None:
        self.see(data)

    def pause_writing(self) -> None:
        if self.other is not None:
            self.other.read(False)

    def resume_writing(self) -> None:
        if self.other is not None:
            self.other.read(True)

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost()

    @property
    def is_open(self) -> bool:
        """Whether data may be written."""
        return self.transport is not None and not self.transport.is_closing()

    def write(self, data: bytes) -> None:
        """Send the data, if the connection is open."""
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def read(self, is_wanted: bool) -> None:
        """Continue reading, or stop."""
        if self.transport is None or self.transport.is_closing() or self.transport.is_reading() is is_wanted:
            return
        if is_wanted:
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    def close(self) -> None:
        """Close the connection once everything is sent."""
        if self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """Close the connection."""
        if self.transport is not None:
            self.transport.abort()


class _Passage:
    """One client connection, and its connection to the server.

    the client's first bytes   -> connect to the server
    frames of either           -> examine and forward
    a refused call             -> disconnect the server; report to the client, and disconnect it a moment later
    either side is closed      -> send the other its pending data, and disconnect it a moment later
    """

    def __init__(self, gate: FlightGate, loop: asyncio.AbstractEventLoop) -> None:
        self._gate, self._loop = gate, loop
        self.client = _Side(self._begin, self._see_preface, self._end)
        self._server = _Side(lambda: None, self._see_answer, self._end)
        self._questions, self._answers = Frames(), Frames()
        self._preface = b""
        self._address = ""
        self.calls = Calls(gate.limits, lambda now_s: gate.rates.wait_s(self._address, now_s))
        self._timer: asyncio.TimerHandle | None = None
        self._connecting: asyncio.Task[None] | None = None

    def abort(self) -> None:
        """Close both connections."""
        self._gate.passages.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
        if self._connecting is not None:
            self._connecting.cancel()
        self.client.abort()
        self._server.abort()

    def _begin(self) -> None:
        assert self.client.transport is not None
        self._address = str((self.client.transport.get_extra_info("peername") or [""])[0])
        gate = self._gate
        if len(gate.passages) >= gate.limits.connections_max:
            idle = next((passage for passage in gate.passages if not len(passage.calls)), None)
            (idle or self).abort()
            if idle is None:
                return
        gate.passages[self] = None
        self._timer = self._loop.call_later(gate.limits.header_timeout_s, self.abort)

    def _see_preface(self, data: bytes) -> None:
        """The first bytes, which are the same for every client of Flight."""
        self._preface += data
        if not PREFACE.startswith(self._preface[: len(PREFACE)]):
            return self.abort()  # not a Flight client, so it would not understand an answer
        if len(self._preface) >= len(PREFACE) and self._connecting is None:
            self.client.read(False)
            self._connecting = self._loop.create_task(self._connect())
        return None

    async def _connect(self) -> None:
        try:
            await self._loop.create_unix_connection(lambda: self._server, str(self._gate.inner))
        except OSError as error:
            _LOG.debug("a Flight connection could not be forwarded: %r", error)
            return self.abort()
        self.client.other, self._server.other = self._server, self.client
        self.client.see = self._see_question
        self._server.write(PREFACE)
        rest, self._preface = self._preface[len(PREFACE) :], b""
        self._keep_time()
        self.client.read(True)
        if rest:
            self._see_question(rest)
        return None

    def _see_question(self, data: bytes) -> None:
        now_s = time.monotonic()
        try:
            for frame, piece, is_last in self._questions.of(memoryview(data)):
                self.calls.note_question(frame, piece, is_last, now_s)
        except CallRefusal as refusal:
            self._refuse(refusal)
        else:
            self._server.write(data)

    def _see_answer(self, data: bytes) -> None:
        now_s = time.monotonic()
        for frame, _, is_last in self._answers.of(memoryview(data)):
            self.calls.note_answer(frame, is_last, now_s)
        self.client.write(data)

    def _keep_time(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        try:
            self.calls.check_time(time.monotonic())
        except CallRefusal as refusal:
            self._refuse(refusal)
        else:
            self._timer = self._loop.call_later(min(1.0, self._gate.limits.request_timeout_s / 4), self._keep_time)

    def _refuse(self, refusal: CallRefusal) -> None:
        """Report the refusal, if a frame may be sent, and wait briefly: closing at once would discard it."""
        self._server.other = self.client.other = None
        self._server.abort()
        if self._answers.is_between:
            self.client.write(refusal_frames(refusal))
        self.client.see = lambda data: None
        self.client.read(True)
        self._linger()

    def _end(self) -> None:
        """One side is closed."""
        if self not in self._gate.passages:
            return
        for side in (self.client, self._server):
            if side.is_open and side.other is not None:
                side.close()
        self._linger()

    def _linger(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        is_over = not self.client.is_open and not self._server.is_open
        self._timer = self._loop.call_later(0.0 if is_over else _LINGER_S, self.abort)
