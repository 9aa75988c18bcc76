"""SQL statements about a job: the types of request and answer, and the registry of the executor.

Modules that read stores must not import those that parse SQL. So `millstream.table` registers its statement executor
here when it is loaded; a process that never loads it, such as `millstream query-server`, has no executor.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from millstream.query.job_view import JobView

__all__ = ["AnswerBounds", "StatementAnswer", "StatementExecutor", "TableCheck", "answer_by", "executor_of"]

TableCheck: TypeAlias = Callable[[str], None]
"""Raises if a table may not be read."""


@dataclass(frozen=True)
class StatementAnswer:
    """Rows of one epoch: the name and the type of each column, and `rows`, a JSON array with an array for each row.

    The rows are encoded where they are computed, because their size limit is in encoded bytes; they are never encoded
    twice.
    """

    epoch: int
    committed_ms: int
    watermark: int | None
    columns: tuple[tuple[str, str], ...]
    rows: bytes


@dataclass(frozen=True)
class AnswerBounds:
    """The maximum number of rows in an answer, and of bytes in its JSON."""

    rows_max: int
    bytes_max: int


class StatementExecutor(Protocol):
    """Executes statements about one job, on any number of threads."""

    def answer(
        self, statement: str, check: TableCheck, bounds: AnswerBounds, abandoned: threading.Event
    ) -> StatementAnswer:
        """The answer. `abandoned` is set when the client no longer waits: the computation then ends soon. Raises
        ProgramError and `Refusal` for invalid statements."""

    def close(self) -> None:
        """Accept no further statements, and end running computations."""


_MAKER: list[Callable[[JobView], StatementExecutor]] = []


def answer_by(maker: Callable[[JobView], StatementExecutor]) -> None:
    """Register the factory of this process's statement executor."""
    _MAKER[:] = [maker]


def executor_of(job: JobView) -> StatementExecutor | None:
    """The executor of statements about a job; None if none is registered."""
    return _MAKER[0](job) if _MAKER else None
