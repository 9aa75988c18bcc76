"""Relations at the edges of tables, beside `relations`: upserts made whole, changes as rows and back, and tables that
are asked by key.

They are no different from other relations. A pass or a rule that knows nothing of them sees one input, whole.
"""

from __future__ import annotations

from dataclasses import dataclass

from millstream.expressions.row_expressions import RowExpression
from millstream.planner.entries import Options, TableEntry
from millstream.planner.relations import JoinKind, Relation

__all__ = ["FromChangelog", "LookupJoin", "LookupKey", "Normalise", "ToChangelog"]


@dataclass(frozen=True)
class Normalise(Relation):
    """A table of upserts as one whose rows go as they were: a row by `keys`, columns of the input, is kept, and given
    back before the next one with its key. Flink's ChangelogNormalize."""

    input: Relation
    keys: tuple[int, ...]


@dataclass(frozen=True)
class ToChangelog(Relation):
    """The changes of the input as rows that are only added: its columns, then the code of what happened. `codes`: one
    for each kind, in their order; kinds without one are left out. `key`: columns of the input by which upserts are
    told, each key once in an epoch."""

    input: Relation
    codes: tuple[str | None, ...]
    key: tuple[int, ...] = ()

    @property
    def key_names(self) -> tuple[str, ...]:
        """The columns of the key."""
        return tuple(self.schema.names[at] for at in self.key)

    @property
    def text(self) -> str:
        """What it does, for plans."""
        by = f", by=[{', '.join(self.key_names)}]" if self.key else ""
        return f"op=[{self.schema.names[-1]}], codes=[{', '.join(code or 'none' for code in self.codes)}]{by}"


@dataclass(frozen=True)
class FromChangelog(Relation):
    """Rows whose column `op` tells what happened, as changes: `kinds` are codes with names of kinds. `skips`: rows with
    another code are left out."""

    input: Relation
    op: int
    kinds: tuple[tuple[str, str], ...]
    skips: bool = False

    @property
    def text(self) -> str:
        """What it does, for plans."""
        return f"op=[{self.schema.names[self.op]}], kinds=[{', '.join(f'{code}={kind}' for code, kind in self.kinds)}]"


@dataclass(frozen=True)
class LookupKey:
    """What a table is asked for: the value that `column`, one of the join's own columns of it, must have."""

    value: RowExpression
    column: int


@dataclass(frozen=True)
class LookupJoin(Relation):
    """Every row of the input with the rows that `table` has for its key when it comes: FOR SYSTEM_TIME AS OF a time of
    the clock. The schema is the input's columns, then `columns` of the table, by their places in what can be read of
    it. Keys are over the input's columns, the rest of the condition over all. `hints`: of LOOKUP."""

    input: Relation
    table: TableEntry
    columns: tuple[int, ...]
    keys: tuple[LookupKey, ...]
    condition: RowExpression | None
    kind: JoinKind = JoinKind.INNER
    options: Options = ()
    hints: Options = ()
