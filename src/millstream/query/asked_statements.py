"""Statements of SQL that are asked of a job: the form of question and answer, and who answers.

Whoever reads stores stands below whoever understands SQL. So `millstream.table` says here, when it is loaded, what
answers a statement; in a process that never loaded it, as that of `millstream query-server`, nobody does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from millstream.query.job_view import JobView

__all__ = ["StatementAnswer", "StatementAsker", "answer_by", "asker"]


@dataclass(frozen=True)
class StatementAnswer:
    """Rows of one epoch: the name and the type of each column, and lists of values."""

    epoch: int
    committed_ms: int
    watermark: int | None
    columns: tuple[tuple[str, str], ...]
    rows: list[list[Any]]


StatementAsker: TypeAlias = Callable[[JobView, str, Callable[[str], None], int, threading.Event], StatementAnswer]
"""Answers a statement: of which job, its text, what refuses a table that may not be read, how many rows at most, and
what is set when nobody waits for the answer any more: then the work on it ends soon.
SqlError and ProgramError say what is wrong with it."""

_ASKER: list[StatementAsker] = []


def answer_by(statement_asker: StatementAsker) -> None:
    """Let this answer statements in this process."""
    _ASKER[:] = [statement_asker]


def asker() -> StatementAsker | None:
    """What answers statements; None where nobody does."""
    return _ASKER[0] if _ASKER else None
