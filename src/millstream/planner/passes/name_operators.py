"""Assigns every relation a uid derived from the plan's shape: its kind, its position, and the tables around it.

Columns and expressions are not part of the uid, so a query that selects another column still finds its state. Windows
and group names are part of it, since they determine the meaning of the state.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import replace

from millstream.planner.changing_relations import FromChangelog, LookupJoin, Normalise
from millstream.planner.entries import TableEntry
from millstream.planner.passes.rewriting import rewritten
from millstream.planner.relations import (
    Aggregate,
    Over,
    Rank,
    Relation,
    Scan,
    Sink,
    Unnest,
    WindowAggregate,
    WindowAssign,
)
from millstream.planner.session import PlannerSession

__all__ = ["name_operators"]

_STATELESS = ("Project", "Filter", "WatermarkAssign")


def name_operators(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Assigns every relation its uid."""
    seen: Counter[str] = Counter()

    def rule(relation: Relation) -> Relation:
        word = type(relation).__name__
        digest = hashlib.sha256(_shape(relation).encode()).hexdigest()[:12]
        name = f"{_dashed(word)}-{digest}"
        seen[name] += 1
        number = seen[name]
        return replace(relation, uid=name if number == 1 else f"{name}-{number}")

    return rewritten(sinks, rule)


def _dashed(word: str) -> str:
    return "".join(f"-{letter.lower()}" if letter.isupper() else letter for letter in word).lstrip("-")


def _shape(relation: Relation) -> str:
    """A relation's kind and inputs, without its columns."""
    below = ",".join(_below(each) for each in relation.inputs)
    return f"{type(relation).__name__}[{_own(relation)}]({below})"


def _below(relation: Relation) -> str:
    # Projections, filters and watermarks are ignored, because edits of a query add and remove them.
    if type(relation).__name__ in _STATELESS:
        return _below(relation.inputs[0])
    return _shape(relation)


def _rooted(entry: TableEntry) -> tuple[str, ...]:
    """The path of a table; for a fork, that of the table whose state it continues."""
    return getattr(entry.definition, "root", ()) or entry.path


def _own(relation: Relation) -> str:
    if isinstance(relation, Scan | Sink):
        table = relation.table if isinstance(relation, Scan) else relation.target
        name = ".".join(_rooted(table)) if isinstance(table, TableEntry) else type(table).__name__
        # Other hint options change the source: its start position or its rows.
        hints = relation.options if isinstance(relation, Scan) else ()
        return ";".join([name, *(f"{key}={value}" for key, value in sorted(hints))])
    if isinstance(relation, WindowAggregate | WindowAssign):
        window = relation.window
        shape = f"{window.kind.value},{window.size_ms},{window.slide_ms},{window.offset_ms},{window.time_kind.value}"
        if isinstance(relation, WindowAggregate):
            names = [relation.input.schema.names[group] for group in relation.groups]
            return f"{shape};{','.join(names)}"
        return shape
    if isinstance(relation, Rank):
        columns = relation.input.schema.names
        order = [f"{columns[key.column]}{'-' if key.descending else ''}" for key in relation.order]
        return f"{relation.kind};{','.join(columns[column] for column in relation.partition)};{','.join(order)}"
    if isinstance(relation, Over):
        columns = relation.input.schema.names
        order = [f"{columns[key.column]}{'-' if key.descending else ''}" for key in relation.order]
        frames = [f"{call.call.function}:{call.frame}:{call.preceding}:{call.following}" for call in relation.calls]
        partition = ",".join(columns[column] for column in relation.partition)
        return f"{partition};{','.join(order)};{','.join(frames)}"
    if isinstance(relation, LookupJoin):
        return ".".join(relation.table.path)
    if isinstance(relation, Normalise):
        return ",".join(relation.schema.names[at] for at in relation.keys)
    if isinstance(relation, FromChangelog):
        return relation.schema.names[relation.op]
    if isinstance(relation, Aggregate):
        return ",".join(relation.input.schema.names[group] for group in relation.groups)
    return str(relation.with_ordinality) if isinstance(relation, Unnest) else ""
