"""Checks that every relation accepts its inputs' changes; errors use Flink's wording.

The plan is not changed. Row-wise relations and aggregations accept retractions; all others require append-only input. A
sink declares the kinds it accepts.
"""

from __future__ import annotations

from millstream.common.types import RowKind
from millstream.errors import NotYetError, SqlError
from millstream.planner.changing_relations import LookupJoin, Normalise, ToChangelog
from millstream.planner.entries import TableEntry
from millstream.planner.lowering.endpoints import CollectTarget, StreamTarget
from millstream.planner.not_yet import not_yet
from millstream.planner.passes.rewriting import relations_of
from millstream.planner.plan_text import physical_line
from millstream.planner.relations import (
    Aggregate,
    Correlate,
    Filter,
    Join,
    Over,
    Project,
    Rank,
    Relation,
    Scan,
    SetOperation,
    Sink,
    Unnest,
    WatermarkAssign,
)
from millstream.planner.session import PlannerSession
from millstream.planner.table_definitions import table_definition, table_factory
from millstream.planner.traits.changes import GROWS, Changes, changes_of, scan_changes, unsupported_clause
from millstream.planner.traits.windows import window_columns
from millstream.sql.places import problem

__all__ = ["infer_changes"]

_TAKE_CHANGES = (
    Project,
    Filter,
    Correlate,
    Unnest,
    SetOperation,
    Aggregate,
    Join,
    Over,
    Rank,
    Normalise,
    LookupJoin,
    ToChangelog,
    WatermarkAssign,
)


def infer_changes(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Rejects relations that cannot process the changes of their inputs."""
    for sink in sinks:
        for relation in relations_of([sink]):
            word = unsupported_clause(relation)
            if word is not None:
                raise NotYetError(str(not_yet(word, getattr(relation.site, "span", None))))
    if session.is_batch:
        _refuse_changing_scans(sinks)
        return sinks
    for relation in relations_of(sinks):
        for below in relation.inputs:
            changes = changes_of(below)
            if isinstance(relation, Sink):
                _check_sink(relation, changes, session)
            elif changes != GROWS and not isinstance(relation, _TAKE_CHANGES):
                word = physical_line(relation).split("(", 1)[0]
                raise _refusal(f"{word} doesn't support consuming {_words(changes, below)}", below)
    return sinks


def _refuse_changing_scans(sinks: tuple[Sink, ...]) -> None:
    for relation in relations_of(sinks):
        if isinstance(relation, Scan) and scan_changes(relation) != GROWS:
            name = ".".join(getattr(relation.table, "path", ())) or "Unregistered table"
            raise problem(
                "Querying a table in batch mode is currently only possible for INSERT-only table sources. But the "
                f"source for table '{name}' produces other changelog messages than INSERT. Run the query in "
                "streaming mode",
                getattr(relation.site, "span", None),
            )


def _check_sink(sink: Sink, changes: Changes, session: PlannerSession) -> None:
    missing = changes - _accepted_kinds(sink, session)
    if missing:
        name = ".".join(sink.target.path) if isinstance(sink.target, TableEntry) else "*anonymous_datastream_sink*"
        raise _refusal(f"Table sink '{name}' doesn't support consuming {_words(missing, sink.input)}", sink.input)


def _accepted_kinds(sink: Sink, session: PlannerSession) -> Changes:
    """The row kinds that a sink accepts."""
    target = sink.target
    if isinstance(target, StreamTarget):
        return frozenset(RowKind) if target.changes else GROWS
    if isinstance(target, CollectTarget) or not isinstance(target, TableEntry) or target.origin is not None:
        return frozenset(RowKind)
    accepted = table_factory(target).accepted_changes(table_definition(target, session))
    kinds = frozenset(kind for kind in RowKind if str(kind) in accepted)
    # A sink by key replaces the previous row, so it needs no update-before.
    return kinds | {RowKind.UPDATE_BEFORE} if RowKind.UPDATE_AFTER in kinds else kinds


def _refusal(sentence: str, below: Relation) -> SqlError:
    """The error: a sentence, a hint, and the location of the relation that emits changes."""
    return problem(f"{sentence}.{_hint(below)}", getattr(_maker(below).site, "span", None))


def _words(kinds: Changes, below: Relation) -> str:
    """The row kinds in Flink's wording, and the node that emits them."""
    names = []
    if kinds & {RowKind.UPDATE_BEFORE, RowKind.UPDATE_AFTER}:
        names.append("update")
    if RowKind.DELETE in kinds:
        names.append("delete")
    return f"{' and '.join(names)} changes which is produced by node {physical_line(_maker(below))}"


def _maker(relation: Relation) -> Relation:
    """The relation whose rows change."""
    while isinstance(relation, Project | Filter | Correlate | Unnest):
        relation = relation.input
    return relation


def _hint(relation: Relation) -> str:
    """A suggestion based on the likely intent."""
    maker = _maker(relation)
    if isinstance(maker, Aggregate):
        inside = window_columns(maker.input)
        if inside is not None and inside.starts:
            return " Group by both window_start and window_end for an aggregation in windows."
    return ""
