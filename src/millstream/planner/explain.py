"""EXPLAIN: prints a plan in Flink's sections, and as JSON.

== Abstract Syntax Tree ==         the bound query
== Optimized Physical Plan ==      after all passes
== Optimized Execution Plan ==     the same, with infix calls and shared parts printed once
== Notes ==                        operators that could run in more than one task
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

from millstream.planner.changing_relations import Normalise
from millstream.planner.expression_text import Notation
from millstream.planner.passes import optimised
from millstream.planner.passes.rewriting import relations_of
from millstream.planner.plan_text import logical_line, physical_inputs, physical_line
from millstream.planner.relations import Relation, Scan, Sink
from millstream.planner.session import PlannerSession
from millstream.planner.traits.changes import changes_of, changes_text
from millstream.planner.traits.null_aware import null_aware_note
from millstream.planner.traits.shipping import ship_strategy

__all__ = ["explained", "plan_tree"]

_NOT_SHOWN = {
    "ESTIMATED_COST": "the planner does not estimate costs",
    "PLAN_ADVICE": "the planner gives no advice; warnings about unbounded state are logged when the job starts",
}


def explained(sinks: Sequence[Sink], session: PlannerSession, details: Sequence[str] = ()) -> str:
    """Flink's sections for bound, not yet optimised sinks: as written, optimised, and as executed. `details`:
    CHANGELOG_MODE, JSON_EXECUTION_PLAN, ESTIMATED_COST, PLAN_ADVICE; for the last two it prints that they are
    unknown."""
    words = {detail.upper() for detail in details}
    plan = optimised(sinks, session)
    shows_changes = "CHANGELOG_MODE" in words

    def physical(relation: Relation) -> str:
        line = physical_line(relation)
        if not shows_changes:
            return line
        mode = "NONE" if isinstance(relation, Sink) else changes_text(changes_of(relation, is_batch=session.is_batch))
        return f"{line[:-1]}, changelogMode=[{mode}])"

    written, made = [_root(sink) for sink in sinks], [_root(sink) for sink in plan]
    sections = [
        ("Abstract Syntax Tree", _tree(written, logical_line, _written_inputs)),
        ("Optimized Physical Plan", _tree(made, physical, physical_inputs)),
        ("Optimized Execution Plan", _shared_tree(made)),
    ]
    if notes := [note for each in relations_of(plan) if (note := _note(each))]:
        sections.append(("Notes", "\n".join(notes)))
    if "JSON_EXECUTION_PLAN" in words:
        sections.append(("Physical Execution Plan", json.dumps(_nodes(plan), indent=2)))
    if not_shown := [f"{word}: {note}" for word, note in _NOT_SHOWN.items() if word in words]:
        sections.append(("Not Shown", "\n".join(not_shown)))
    return "\n".join(f"== {title} ==\n{text}\n" for title, text in sections)


def _note(relation: Relation) -> str | None:
    """The warning about a relation at job start."""
    return null_aware_note(relation) if ship_strategy(relation) == "GLOBAL" else None


def _written_inputs(relation: Relation) -> Sequence[Relation]:
    """The inputs of a line of the syntax tree, which omits normalisations."""
    return [each.input if isinstance(each, Normalise) else each for each in relation.inputs]


def _root(sink: Sink) -> Relation:
    """The root to print: as in Flink, a query without INSERT shows no sink, although the program collects it."""
    return sink.input if getattr(sink.target, "kind", None) == "collect" else sink


def plan_tree(sinks: Sequence[Relation]) -> str:
    """Only the optimised section, for golden tests and authors of passes."""
    return _tree(sinks, physical_line, physical_inputs)


Inputs = Callable[[Relation], Sequence[Relation]]


def _tree(roots: Sequence[Relation], line: Callable[[Relation], str], inputs: Inputs) -> str:
    """Draws every root with its inputs, in Calcite's style."""
    lines: list[str] = []

    def draw(relation: Relation, prefix: str, corner: str) -> None:
        lines.append(f"{prefix}{corner}{line(relation)}")
        below = inputs(relation)
        deeper = prefix + {"": "", "+- ": "   ", ":- ": ":  "}[corner]
        for index, each in enumerate(below):
            draw(each, deeper, "+- " if index == len(below) - 1 else ":- ")

    for index, root in enumerate(roots):
        if index:
            lines.append("")
        draw(root, "", "")
    return "\n".join(lines)


def _shared_tree(roots: Sequence[Relation]) -> str:
    """The tree with infix calls; shared relations are drawn once and referenced."""
    uses: dict[int, int] = {}
    visible: list[Relation] = []

    def count(relation: Relation) -> None:
        uses[id(relation)] = uses.get(id(relation), 0) + 1
        if uses[id(relation)] == 1:
            visible.append(relation)
            for each in physical_inputs(relation):
                count(each)

    for root in roots:
        count(root)
    numbers = {id(each): index for index, each in enumerate((e for e in visible if uses[id(e)] > 1), start=1)}
    drawn: set[int] = set()

    def line(relation: Relation) -> str:
        number = numbers.get(id(relation))
        if number is None:
            return physical_line(relation, Notation.EXECUTION)
        if id(relation) in drawn:
            return f"Reused(reference_id=[{number}])"
        return f"{physical_line(relation, Notation.EXECUTION)}(reuse_id=[{number}])"

    def inputs(relation: Relation) -> Sequence[Relation]:
        if id(relation) in drawn:
            return ()
        if id(relation) in numbers:
            drawn.add(id(relation))
        return physical_inputs(relation)

    return _tree(roots, line, inputs)


def _nodes(plan: Sequence[Sink]) -> dict[str, list[dict[str, object]]]:
    """The plan as Flink's JSON: nodes with ids, types and predecessors."""
    hidden = {
        id(below)
        for relation in relations_of(plan)
        for below in relation.inputs
        if below not in physical_inputs(relation)
    }
    numbers: dict[int, int] = {}
    nodes: list[dict[str, object]] = []
    for relation in relations_of(plan):
        if id(relation) in hidden:
            continue
        numbers[id(relation)] = len(numbers) + 1
        text = physical_line(relation, Notation.EXECUTION)
        word = text.split("(", 1)[0]
        kind = (
            "Data Source" if isinstance(relation, Scan) else "Data Sink" if isinstance(relation, Sink) else "Operator"
        )
        node: dict[str, object] = {
            "id": numbers[id(relation)],
            "type": f"{word}[{numbers[id(relation)]}]",
            "pact": kind,
            "contents": f"[{numbers[id(relation)]}]:{text}",
        }
        below = physical_inputs(relation)
        if below:
            way = ship_strategy(relation)
            node["predecessors"] = [{"id": numbers[id(each)], "ship_strategy": way} for each in below]
        nodes.append(node)
    return {"nodes": nodes}
