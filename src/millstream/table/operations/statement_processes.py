"""Computes statements for a query server in child processes, which can be killed.

A statement comes from an untrusted client: a pattern may backtrack for years inside one call that blocks all other
threads, or a repeated string may exhaust memory. In the job's process it could block or kill the job. The server
therefore sends it to a child process (`statement_worker`), which reads the store like any reader, has bounded memory,
and is killed when the client stops waiting (docs/decisions/0043). A child is reused after an answer, and ends with the
server or its process. Query results never regress: a child receives the newest epoch known here, and the server
advances to the epoch that a child has read.

A store in this process's memory, as used by tests, is readable only here: its statements are executed in this process.
"""

from __future__ import annotations

import json
import logging
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from millstream.query.job_view import JobView
from millstream.query.statement_answers import AnswerBounds, StatementAnswer, TableCheck
from millstream.query.wire.refusals import DETAILS_IN_LOG, Refusal, RefusalAnswer, TooLargeError, TooSlowError
from millstream.storage.layered_stores import ReadOnlyStore
from millstream.storage.store import shown_address
from millstream.table.operations.served_statements import answered

__all__ = ["StatementProcesses"]

_LOG = logging.getLogger("millstream.query.server")
_WORKER = "millstream.table.operations.statement_worker"
_AT_ONCE = 2
_POLL_S = 0.1
"""How often the server checks whether the client is still waiting."""
_LAG_S = 5.0
_READ_BYTES = 1 << 20
_LINE_BYTES_MAX = 16 << 20
_BY_THE_SYSTEM = (-signal.SIGKILL, -signal.SIGXCPU)
_TOO_MUCH = "the result exceeded the limit of memory or time. Restrict it by WHERE or by LIMIT"
_ABANDONED = "the client has stopped waiting. Request less, or repeat the statement"


class StatementProcesses:
    """Executes statements about one job; see `StatementExecutor`."""

    def __init__(self, job: JobView) -> None:
        self._job = job
        self._idle: list[_StatementProcess] = []
        self._lock = threading.Lock()
        self._places = threading.Semaphore(_AT_ONCE)
        self._is_closed = False

    def answer(
        self, statement: str, check: TableCheck, bounds: AnswerBounds, abandoned: threading.Event
    ) -> StatementAnswer:
        """The answer, from a child process."""
        if self._job.store.url.startswith("memory:"):
            return answered(self._job, statement, check, bounds, abandoned)
        while not self._places.acquire(timeout=_POLL_S):
            if abandoned.is_set():
                raise TooSlowError(_ABANDONED)
        try:
            return self._execute(statement, check, bounds, abandoned)
        finally:
            self._places.release()

    def close(self) -> None:
        """Ends the children."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for process in idle:
            process.end()

    def _execute(
        self, statement: str, check: TableCheck, bounds: AnswerBounds, abandoned: threading.Event
    ) -> StatementAnswer:
        request = {
            "statement": statement,
            "epoch": self._job.newest().epoch,
            "rows_max": bounds.rows_max,
            "bytes_max": bounds.bytes_max,
        }
        message, rows = self._exchange(request, check, abandoned)
        if "refusal" in message:
            raise _refusal(message)
        if message["newest"] > self._job.newest().epoch:
            self._job.check_again()
            self._job.wait_for(message["newest"], _LAG_S)
        columns = tuple((name, written) for name, written in message["columns"])
        return StatementAnswer(message["epoch"], message["committed_ms"], message["watermark"], columns, rows)

    def _exchange(
        self, request: Mapping[str, Any], check: TableCheck, abandoned: threading.Event
    ) -> tuple[dict[str, Any], bytes]:
        process, rights = self._process(), _Rights(check)
        try:
            is_ready = process.is_ready(abandoned)
            message, rows = process.send(request, rights, abandoned) if is_ready else ({}, b"")
        except BaseException:
            process.end()  # its progress is unknown
            raise
        self._release(process, is_reusable=not message.get("is_last", False))
        if not is_ready:  # still starting, which is not the statement's fault: keep it for the next one
            raise TooSlowError(_ABANDONED)
        if rights.refusal is not None:
            raise rights.refusal
        return message, rows

    def _process(self) -> _StatementProcess:
        with self._lock:
            while self._idle:
                process = self._idle.pop()
                if process.is_running:
                    return process
                process.end()
        return _StatementProcess(self._job)

    def _release(self, process: _StatementProcess, *, is_reusable: bool) -> None:
        with self._lock:
            if is_reusable and not self._is_closed:
                self._idle.append(process)
                return
        process.end()


def _refusal(message: Mapping[str, Any]) -> Refusal:
    answer = RefusalAnswer(**message["refusal"])
    if answer.code in DETAILS_IN_LOG:
        _LOG.error("a statement failed: %s", message["details"])
    return Refusal.of(answer)


class _Rights:
    """Whether tables may be read. The reason for a rejection is stored here and not sent to the child."""

    def __init__(self, check: TableCheck) -> None:
        self._check = check
        self.refusal: Exception | None = None

    def is_open(self, table: str) -> bool:
        try:
            self._check(table)
        except Exception as error:
            self.refusal = error
        return self.refusal is None


class _StatementProcess:
    """A child process. Messages are lines of JSON: nothing that a child sends is executed here. An answer's line is
    followed by its rows, which the child has encoded and counted, and which are passed on as bytes."""

    def __init__(self, job: JobView) -> None:
        # In a separate process session, because Ctrl-C at the terminal is for the job. The child ends when its input
        # does.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
            start_new_session=True,
        )
        self._is_ready = False
        self._unread = b""
        self._send(
            {
                "store": shown_address(job.store.url),
                "name": job.where,
                "read_only": isinstance(job.store, ReadOnlyStore),
            }
        )

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def is_ready(self, abandoned: threading.Event) -> bool:
        """Waits until the child accepts requests; returns False if the client stops waiting first."""
        while not self._is_ready and not abandoned.is_set():
            if self._has_message():
                self._received(abandoned)
                self._is_ready = True
        return self._is_ready

    def send(
        self, request: Mapping[str, Any], rights: _Rights, abandoned: threading.Event
    ) -> tuple[dict[str, Any], bytes]:
        """Sends a request; returns the answer and the rows. Also answers the child's requests for permission to read
        tables."""
        self._send(request)
        while "table" in (message := self._received(abandoned)):
            self._send({"is_open": rights.is_open(message["table"])})
        size = message.get("rows_bytes", 0)
        if not 0 <= size <= request["bytes_max"]:
            raise RuntimeError(f"the process that computes answers to statements says that it sends {size} bytes")
        return message, self._received_rows(size, abandoned)

    def end(self) -> None:
        """Kills the child."""
        self._process.kill()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            with suppress(BrokenPipeError):  # the child had not read everything
                pipe.close()
        self._process.wait()

    def _send(self, message: Mapping[str, Any]) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # the child has ended, which the next read reports
            self._process.stdin.write(json.dumps(message).encode() + b"\n")
            self._process.stdin.flush()

    def _received(self, abandoned: threading.Event) -> dict[str, Any]:
        while b"\n" not in self._unread:
            if len(self._unread) > _LINE_BYTES_MAX:
                raise RuntimeError(f"the process that computes answers sends a line of over {_LINE_BYTES_MAX} bytes")
            self._unread += self._read(abandoned)
        line, _, self._unread = self._unread.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    def _received_rows(self, size: int, abandoned: threading.Event) -> bytes:
        """Reads `size` bytes."""
        parts, self._unread = [self._unread[:size]], self._unread[size:]
        left = size - len(parts[0])
        while left > 0:
            parts.append(self._read(abandoned))
            left -= len(parts[-1])
        return b"".join(parts)

    def _read(self, abandoned: threading.Event) -> bytes:
        """Reads the available bytes; waits until there are any."""
        while not self._has_message():
            if abandoned.is_set():
                raise TooSlowError(_ABANDONED)
        data = os.read(self._answers, _READ_BYTES)
        if not data:
            raise self._ended()
        return data

    def _has_message(self) -> bool:
        """Whether a message or end of file is available; waits up to `_POLL_S`."""
        ready = select.poll()
        ready.register(self._answers, select.POLLIN)
        return bool(ready.poll(_POLL_S * 1000))

    @property
    def _answers(self) -> int:
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    def _ended(self) -> Exception:
        code = self._process.wait()
        if code in _BY_THE_SYSTEM:
            return TooLargeError(_TOO_MUCH)
        return RuntimeError(f"the process that computes answers to statements ended with code {code}")
