"""Which changes flow where. In this half of SQL all rows are only added: what would change them is refused, by name."""

from __future__ import annotations

from millstream.errors import NotYetError
from millstream.planner.entries import TableEntry
from millstream.planner.not_yet import not_yet
from millstream.planner.passes.rewriting import relations_of
from millstream.planner.plan_text import physical_line
from millstream.planner.relations import Aggregate, Relation, Sink
from millstream.planner.session import PlannerSession
from millstream.planner.traits.changes import what_changes
from millstream.planner.traits.windows import window_columns

__all__ = ["infer_changes"]


def infer_changes(sinks: tuple[Sink, ...], session: PlannerSession) -> tuple[Sink, ...]:
    """Refuse what needs tables that change."""
    for sink in sinks:
        for relation in relations_of([sink]):
            word = what_changes(relation)
            if word is not None:
                raise _refusal(word, relation, sink)
    return sinks


def _refusal(word: str, relation: Relation, sink: Sink) -> NotYetError:
    words = [str(not_yet(word, getattr(relation.site, "span", None)))]
    if isinstance(relation, Aggregate):
        name = ".".join(sink.target.path) if isinstance(sink.target, TableEntry) else "*anonymous*"
        node = physical_line(relation)
        words.append(f"Table sink '{name}' doesn't support consuming update changes which is produced by node {node}.")
        inside = window_columns(relation.input)
        if inside is not None and inside.starts:
            words.append("Group by both window_start and window_end for an aggregation in windows.")
    return NotYetError("\n".join(words))
