"""Statements of SQL that are asked of a job: the form of question and answer, and who answers.

Whoever reads stores stands below whoever understands SQL. So `millstream.table` says here, when it is loaded, what
answers statements; in a process that never loaded it, as that of `millstream query-server`, nobody does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from millstream.query.job_view import JobView

__all__ = ["AnswerBounds", "StatementAnswer", "StatementAsker", "TableCheck", "answer_by", "asker_of"]

TableCheck: TypeAlias = Callable[[str], None]
"""Refuses, by raising, a table that may not be read."""


@dataclass(frozen=True)
class StatementAnswer:
    """Rows of one epoch: the name and the type of each column, and `rows`, a JSON array with an array for each row.

    The rows are encoded where they are computed: they count by the bytes that are sent, and nobody encodes them again.
    """

    epoch: int
    committed_ms: int
    watermark: int | None
    columns: tuple[tuple[str, str], ...]
    rows: bytes


@dataclass(frozen=True)
class AnswerBounds:
    """How many rows an answer may have, and how many bytes of JSON."""

    rows_max: int
    bytes_max: int


class StatementAsker(Protocol):
    """Answers statements about one job, on any number of threads."""

    def answer(
        self, statement: str, check: TableCheck, bounds: AnswerBounds, given_up: threading.Event
    ) -> StatementAnswer:
        """The answer. `given_up` is set when nobody waits for it any more: then the work on it ends soon. ProgramError
        and `Refusal` say what is wrong with the statement."""

    def close(self) -> None:
        """Nothing is asked any more: end what still computes."""


_MAKER: list[Callable[[JobView], StatementAsker]] = []


def answer_by(maker: Callable[[JobView], StatementAsker]) -> None:
    """Let what this makes answer statements in this process."""
    _MAKER[:] = [maker]


def asker_of(job: JobView) -> StatementAsker | None:
    """What answers statements about a job; None where nobody does."""
    return _MAKER[0](job) if _MAKER else None
