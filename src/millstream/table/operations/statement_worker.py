"""The child process that computes statements for a query server; `statement_processes` is its parent.

    python -m millstream.table.operations.statement_worker

It reads requests from its standard input, one JSON line each, and writes a line per answer; the first line names the
store. It ends with its input. It limits its own memory, with an error for statements that need more, and its CPU time,
so that orphans end as well. It runs at lower priority than the job, and is the first victim of the system's
out-of-memory killer.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO

from millstream.errors import MillstreamError, ProgramError
from millstream.query.job_lookup import open as open_job
from millstream.query.job_view import JobView
from millstream.query.statement_answers import AnswerBounds
from millstream.query.wire.refusals import BadQuestionError, RefusalAnswer, TooLargeError, answer_to
from millstream.table.operations.served_statements import answered

__all__ = ["main"]

_MEMORY_BYTES_MAX = 4 << 30
_REUSED_BYTES_MAX = 1 << 30
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
_PROCESSOR_S_MAX = 600
"""The processor time of one statement after which an orphan ends."""
_LAG_S = 5.0
_NICE = 5
_OOM_SCORE = "1000"
_NO_MEMORY = "the result exceeded the limit of memory. Restrict it by WHERE or by LIMIT"


class _ClosedTableError(Exception):
    """The parent rejected a table, and holds the reason."""


class _Conversation:
    """Lines of JSON exchanged with the parent."""

    def __init__(self, requests: BinaryIO, answers: BinaryIO) -> None:
        self._questions, self._answers = requests, answers

    def next(self) -> dict[str, Any] | None:
        """The parent's next message; None at the end of the input."""
        line = self._questions.readline()
        message: dict[str, Any] | None = json.loads(line) if line.endswith(b"\n") else None
        return message

    def send(self, message: dict[str, Any], rows: bytes = b"") -> None:
        """Sends a line to the parent, followed by as many bytes of rows as the line states."""
        self._answers.write(json.dumps(message).encode() + b"\n")
        self._answers.write(rows)
        self._answers.flush()

    def check(self, table: str) -> None:
        """Checks with the parent whether a table may be read."""
        self.send({"table": table})
        message = self.next()
        if message is None or not message["is_open"]:
            raise _ClosedTableError(table)


def main() -> None:
    """Answers requests until the input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # printed text must not mix with answers
    _bound_memory()
    reused_bytes_max = max(_REUSED_BYTES_MAX, _greatest_rss())  # on Linux the peak starts at the parent's
    conversation = _Conversation(sys.stdin.buffer, answers)
    store = conversation.next()
    if store is None:
        return
    job = _opened(store)
    conversation.send({})  # reports that it is ready for requests
    while (request := conversation.next()) is not None:
        _bound_time()
        try:
            job = job or _job_of(store)
            message, rows = _answer(job, request, conversation)
        except Exception as error:
            message, rows = _error_message(error), b""
        # The process has grown: leave the next request to a new child.
        is_last = _greatest_rss() > reused_bytes_max
        with suppress(BrokenPipeError):
            conversation.send({**message, "is_last": is_last}, rows)


def _opened(store: dict[str, Any]) -> JobView | None:
    """The job, with everything loaded for the first statement; None if it cannot be read now, which the first request
    reports."""
    try:
        job = _job_of(store)
        answered(job, "SELECT 1", lambda _: None, AnswerBounds(1, 1 << 20), threading.Event())
    except MillstreamError:
        return None
    return job


def _job_of(store: dict[str, Any]) -> JobView:
    job = open_job(store["store"], read_only=store["read_only"])
    job.set_name_in_errors(store["name"])
    return job


def _answer(job: JobView, request: dict[str, Any], conversation: _Conversation) -> tuple[dict[str, Any], bytes]:
    job.check_again()
    job.wait_for(request["epoch"], _LAG_S)
    bounds = AnswerBounds(request["rows_max"], request["bytes_max"])
    answer = answered(job, request["statement"], conversation.check, bounds, threading.Event())
    message = {
        "epoch": answer.epoch,
        "newest": job.newest().epoch,
        "committed_ms": answer.committed_ms,
        "watermark": answer.watermark,
        "columns": answer.columns,
        "rows_bytes": len(answer.rows),
    }
    return message, answer.rows


def _error_message(error: Exception) -> dict[str, Any]:
    answer = answer_to(TooLargeError(_NO_MEMORY)) if _is_of_memory(error) else _refusal(error)
    return {"refusal": vars(answer), "details": f"{type(error).__name__}: {error}"}


def _is_of_memory(error: BaseException | None) -> bool:
    """Whether an error, or its cause in a task, was insufficient memory."""
    return error is not None and (isinstance(error, MemoryError) or _is_of_memory(error.__cause__))


def _refusal(error: Exception) -> RefusalAnswer:
    """The error as reported to the client; for an invalid statement without this program's source line."""
    answer = answer_to(error)
    if isinstance(error, ProgramError) or (isinstance(error, MillstreamError) and answer.code == "bad-question"):
        return answer_to(BadQuestionError(error.message))
    return answer


def _greatest_rss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT


def _bound_memory() -> None:
    os.nice(_NICE)
    with suppress(OSError):  # Linux only
        Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
    _limit(resource.RLIMIT_DATA, _MEMORY_BYTES_MAX)


def _bound_time() -> None:
    used = resource.getrusage(resource.RUSAGE_SELF)
    _limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime) + _PROCESSOR_S_MAX)


def _limit(kind: int, most: int) -> None:
    hard = resource.getrlimit(kind)[1]
    resource.setrlimit(kind, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard))


if __name__ == "__main__":
    main()
