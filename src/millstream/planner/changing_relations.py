"""Relations at the edges of tables: normalised upserts, conversions between changes and rows, and lookup joins.

Passes treat them like any other relation with one input.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.expressions.row_expressions import RowExpression
from millstream.planner.entries import Options, TableEntry
from millstream.planner.relations import JoinKind, Relation

__all__ = ["FromChangelog", "LookupJoin", "LookupKey", "Normalise", "ToChangelog"]


@dataclass(frozen=True)
class Normalise(Relation):
    """Turns upserts into complete changes: retains the last row per key (`keys` are columns of the input) and retracts
    it before the next row with that key. Flink's ChangelogNormalize."""

    input: Relation
    keys: tuple[int, ...]


@dataclass(frozen=True)
class ToChangelog(Relation):
    """The input's changes as an append-only table: its columns, then a code for the row kind. `codes`: one per row
    kind, in their order; kinds without a code are dropped. `key`: the upsert key, as columns of the input; each key is
    emitted once per epoch."""

    input: Relation
    codes: tuple[str | None, ...]
    key: tuple[int, ...] = ()

    @property
    def key_names(self) -> tuple[str, ...]:
        """The columns of the key."""
        return tuple(self.schema.names[at] for at in self.key)

    @property
    def text(self) -> str:
        """The arguments as shown in plans."""
        by = f", by=[{', '.join(self.key_names)}]" if self.key else ""
        return f"op=[{self.schema.names[-1]}], codes=[{', '.join(code or 'none' for code in self.codes)}]{by}"


@dataclass(frozen=True)
class FromChangelog(Relation):
    """Turns rows whose column `op` holds a change code into changes. `kinds` maps codes to row kinds. `skips`: rows
    with another code are dropped."""

    input: Relation
    op: int
    kinds: tuple[tuple[str, str], ...]
    skips: bool = False

    @property
    def text(self) -> str:
        """The arguments as shown in plans."""
        return f"op=[{self.schema.names[self.op]}], kinds=[{', '.join(f'{code}={kind}' for code, kind in self.kinds)}]"


@dataclass(frozen=True)
class LookupKey:
    """One column of the lookup key and its value. `column` indexes the join's columns of the table."""

    value: RowExpression
    column: int


@dataclass(frozen=True)
class LookupJoin(Relation):
    """Joins every input row with the rows that `table` has for its key on arrival: FOR SYSTEM_TIME AS OF a processing
    time. The schema is the input's columns, then `columns` of the table, as positions in its readable columns. Keys are
    expressions over the input's columns; the rest of the condition is over all columns. `hints`: the LOOKUP hints."""

    input: Relation
    table: TableEntry
    columns: tuple[int, ...]
    keys: tuple[LookupKey, ...]
    condition: RowExpression | None
    kind: JoinKind = JoinKind.INNER
    options: Options = ()
    hints: Options = ()
