"""The child process that computes answers to statements for a query server; `statement_processes` is its parent.

    python -m millstream.table.operations.statement_worker

It reads questions from its input, a line of JSON each, and writes a line for each answer; the first line says which
store is read. When its input ends, so does it. It bounds itself: memory, of which a statement that wants more is told,
and processor time, so that what its parent left behind ends as well. It gives way to the job, and is what the system
ends first where memory is short.
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
_KEPT_BYTES_MAX = 1 << 30
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
_PROCESSOR_S_MAX = 600
"""How long one statement may compute when nobody is left to end it."""
_LAG_S = 5.0
_NICE = 5
_OOM_SCORE = "1000"
_NO_MEMORY = "the answer takes more memory than one may. Ask for less: by WHERE or by LIMIT"


class _ClosedTableError(Exception):
    """The parent says that a table may not be read, and says why itself."""


class _Conversation:
    """Lines of JSON with the parent."""

    def __init__(self, questions: BinaryIO, answers: BinaryIO) -> None:
        self._questions, self._answers = questions, answers

    def next(self) -> dict[str, Any] | None:
        """What the parent says next; None when it has gone."""
        line = self._questions.readline()
        message: dict[str, Any] | None = json.loads(line) if line.endswith(b"\n") else None
        return message

    def say(self, message: dict[str, Any], rows: bytes = b"") -> None:
        """Tell the parent: a line, and behind it as many bytes of rows as the line says."""
        self._answers.write(json.dumps(message).encode() + b"\n")
        self._answers.write(rows)
        self._answers.flush()

    def check(self, table: str) -> None:
        """Ask whether a table may be read."""
        self.say({"table": table})
        message = self.next()
        if message is None or not message["is_open"]:
            raise _ClosedTableError(table)


def main() -> None:
    """Answer until the input ends."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what anything prints is no answer
    _bound_memory()
    kept_bytes_max = max(_KEPT_BYTES_MAX, _greatest_rss())  # on Linux it begins with that of the parent
    conversation = _Conversation(sys.stdin.buffer, answers)
    store = conversation.next()
    if store is None:
        return
    job = _opened(store)
    conversation.say({})  # from now on it can be asked
    while (question := conversation.next()) is not None:
        _bound_time()
        try:
            job = job or _job_of(store)
            message, rows = _answer(job, question, conversation)
        except Exception as error:
            message, rows = _told(error), b""
        # The next question is for a child that has not grown.
        is_last = _greatest_rss() > kept_bytes_max
        with suppress(BrokenPipeError):
            conversation.say({**message, "is_last": is_last}, rows)


def _opened(store: dict[str, Any]) -> JobView | None:
    """The job, with all loaded that a first statement needs; None where it cannot be asked now, which the first
    question is told."""
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


def _answer(job: JobView, question: dict[str, Any], conversation: _Conversation) -> tuple[dict[str, Any], bytes]:
    job.check_again()
    job.wait_for(question["epoch"], _LAG_S)
    bounds = AnswerBounds(question["rows_max"], question["bytes_max"])
    answer = answered(job, question["statement"], conversation.check, bounds, threading.Event())
    message = {
        "epoch": answer.epoch,
        "newest": job.newest().epoch,
        "committed_ms": answer.committed_ms,
        "watermark": answer.watermark,
        "columns": answer.columns,
        "rows_bytes": len(answer.rows),
    }
    return message, answer.rows


def _told(error: Exception) -> dict[str, Any]:
    answer = answer_to(TooLargeError(_NO_MEMORY)) if _is_of_memory(error) else _refusal(error)
    return {"refusal": vars(answer), "details": f"{type(error).__name__}: {error}"}


def _is_of_memory(error: BaseException | None) -> bool:
    """Whether memory was short, also where a task said so."""
    return error is not None and (isinstance(error, MemoryError) or _is_of_memory(error.__cause__))


def _refusal(error: Exception) -> RefusalAnswer:
    """What is told of an error: of a wrong statement without the line of this program."""
    answer = answer_to(error)
    if isinstance(error, ProgramError) or (isinstance(error, MillstreamError) and answer.code == "bad-question"):
        return answer_to(BadQuestionError(error.message))
    return answer


def _greatest_rss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _RSS_UNIT


def _bound_memory() -> None:
    os.nice(_NICE)
    with suppress(OSError):  # not every system has it
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
