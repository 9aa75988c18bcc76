"""A random view with FIRST_VALUE and LAST_VALUE of a changing table, and its contents computed row by row.

Which value is first depends on the arrival order, which no batch engine knows. So the view is computed here, by
decision 0040: the first value is the one present for the longest time, the last value the one inserted last, change by
change, wherever epochs are cut. A list of distinct values is ordered by the start of their presence. The view has
aggregates of distinct values and others too, each with or without a FILTER.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from millstream.common.types import Row, RowKind
from millstream.runtime.tables.references.groups import arrivals_of, distinct_values, values_by_arrival

__all__ = ["FirstValues"]

ADDED = (RowKind.INSERT, RowKind.UPDATE_AFTER)
Changes = list[tuple[Any, int]]
"""Values that come (1) and go (-1), NULLs left out."""


def _present(changes: Changes) -> list[Any]:
    counts: Counter[Any] = Counter()
    for value, times in changes:
        counts[value] += times
    return list((+counts).elements())


def _of_distinct(changes: Changes) -> list[Any]:
    return distinct_values(_present(changes))


ORDERED: dict[str, Callable[[Changes], Any]] = {
    "FIRST_VALUE({})": lambda changes: arrivals_of(changes)[0],
    "LAST_VALUE({})": lambda changes: arrivals_of(changes)[1],
}
TEXTS: dict[str, Callable[[Changes], Any]] = {
    "LISTAGG(DISTINCT {})": lambda changes: ",".join(stays) if (stays := values_by_arrival(changes)[0]) else None,
}
OTHERS: dict[str, Callable[[Changes], Any]] = {
    "MIN({})": lambda changes: min(_present(changes), default=None),
    "MAX(DISTINCT {})": lambda changes: max(_present(changes), default=None),
}
SUMS: dict[str, Callable[[Changes], Any]] = {
    "SUM(DISTINCT {})": lambda changes: sum(_of_distinct(changes)) if _present(changes) else None,
    "SUM({})": lambda changes: sum(_present(changes)) if _present(changes) else None,
}
COUNTS: dict[str, Callable[[Changes], Any]] = {
    "COUNT(DISTINCT {})": lambda changes: len(_of_distinct(changes)),
    "COUNT({})": lambda changes: len(_present(changes)),
}
FILTERS: dict[str, Callable[[Sequence[Any]], bool]] = {
    "": lambda row: True,
    " FILTER (WHERE v > 0)": lambda row: row[1] is not None and row[1] > 0,
    " FILTER (WHERE s IS NULL OR x < 1)": lambda row: row[2] is None or (row[3] is not None and row[3] < 1),
}
WHERES: dict[str, Callable[[Sequence[Any]], bool]] = {
    "": lambda row: True,
    " WHERE s <> 'a'": lambda row: row[2] is not None and row[2] != "a",
}


@dataclass(frozen=True)
class _Call:
    """An aggregate of a column of the table."""

    text: str
    column: int
    result: Callable[[Changes], Any]
    is_met: Callable[[Sequence[Any]], bool]


@dataclass(frozen=True)
class FirstValues:
    """The view: groups of `k`, with two numbers, a text and a real, named like the table's columns."""

    table: str
    calls: tuple[_Call, ...]
    where: str

    @classmethod
    def random(cls, random: Random, table: str) -> FirstValues:
        """A random view."""
        calls = []
        for column, name, others in ((1, "v", SUMS | COUNTS), (2, "s", OTHERS | TEXTS), (3, "x", SUMS | OTHERS)):
            choices = {**ORDERED, **(others if random.random() < 0.4 else {})}
            form, condition = random.choice(list(choices)), random.choice(["", "", *FILTERS])
            text = f"{form.format(name)}{condition} AS {name}"
            calls.append(_Call(text, column, choices[form], FILTERS[condition]))
        return cls(table, tuple(calls), random.choice(["", *WHERES]))

    @property
    def query(self) -> str:
        listed = ", ".join(call.text for call in self.calls)
        return f"SELECT k, {listed} FROM {self.table}{self.where} GROUP BY k"

    def rows(self, changes: Sequence[Row]) -> list[tuple[Any, ...]]:
        """Its contents, after these changes of the table."""
        where = WHERES[self.where]
        sizes: Counter[Any] = Counter()
        seen: dict[tuple[Any, _Call], Changes] = {}
        for row in filter(where, changes):
            sign = 1 if row.get_row_kind() in ADDED else -1
            sizes[row[0]] += sign
            for call in self.calls:
                if call.is_met(row) and row[call.column] is not None:
                    seen.setdefault((row[0], call), []).append((row[call.column], sign))
        groups = [key for key, size in sizes.items() if size]
        return [(key, *(call.result(seen.get((key, call), [])) for call in self.calls)) for key in groups]
