"""A program held against what a manifest keeps, before anything runs: is its state found, and does it mean the same?

Operators are matched by uid (`checkpoint/restoring.py`), and those of SQL by what they keep as well
(`checkpoint/meanings.py`). What cannot go on is refused with the whole list, and nothing has happened: state that
nothing has the uid of unless it may be left behind, state with another meaning unless 'millstream.sql.lost-state' says
that it is dropped, or that a person knows better. A new operator that cannot begin empty is always refused.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from millstream.checkpoint.manifest import Manifest
from millstream.checkpoint.meanings import OperatorFate, StatefulOperator, fates, fates_text, meanings_of
from millstream.checkpoint.program import program_of
from millstream.common.options import SQL_LOST_STATE
from millstream.errors import StateSchemaError
from millstream.graph.nodes import Node, Read
from millstream.state.stored.accounts import accounts_of

__all__ = ["judged_program", "keeping_operators", "stateful_nodes"]

_LOG = logging.getLogger("millstream.restore")
_CHOICES = {"drop": "; it begins empty", "keep": "; it goes on all the same, as configured"}


def keeping_operators(manifest: Manifest) -> dict[str, str]:
    """Names by uid of the operators that have something to lose: positions, state, or output that is held back."""
    accounts = accounts_of(manifest).items()
    keeping = {uid for uid, account in accounts if account.keeps_state or account.pending is not None}
    return {uid: manifest.operator_name(uid) for uid in sorted({*keeping, *manifest.sources})}


def stateful_nodes(nodes: Sequence[Node], keeping: Mapping[str, str]) -> tuple[StatefulOperator, ...]:
    """The operators of a program that keep something, kept something, or read a source; each behind what it reads."""
    found: list[StatefulOperator] = []
    nearest: dict[int, tuple[str, ...]] = {}
    for node in sorted(nodes, key=lambda each: each.id):  # edges point backwards
        inputs = tuple(dict.fromkeys(uid for edge in node.inputs for uid in nearest.get(edge.source, ())))
        nearest[node.id] = inputs
        uid = node.uid or ""
        if node.meaning is not None or isinstance(node.operation, Read) or uid in keeping:
            found.append(StatefulOperator(uid, node.name, node.meaning, inputs))
            nearest[node.id] = (uid,)
    return tuple(found)


def judged_program(manifest: Manifest, nodes: Sequence[Node], where: str, on_lost: str) -> set[str]:
    """The uids of operators whose state is to be left behind, since it means something else (`on_lost`: as the option
    says); StateSchemaError where that is refused, or where an operator cannot begin."""
    keeping = keeping_operators(manifest)
    operators = stateful_nodes(nodes, keeping)
    if not any(each.meaning is not None for each in operators):
        return set()
    _tell_unjudged(manifest, operators, keeping, where)
    judged = fates(meanings_of(manifest), keeping, operators)
    lost = {each.uid for each in judged if each.fate == "lost"}
    is_refused = lost and on_lost == "refuse"
    if is_refused or any(each.is_stuck and not (each.fate == "lost" and on_lost == "keep") for each in judged):
        raise StateSchemaError(_refusal(where, judged))
    for each in judged:
        if each.note and each.fate in ("kept", "extended", "lost"):
            _LOG.warning("starting from %s: %s%s", where, each.line, _CHOICES[on_lost] if each.fate == "lost" else "")
    return lost if on_lost == "drop" else set()


def _tell_unjudged(
    manifest: Manifest, operators: Sequence[StatefulOperator], keeping: Mapping[str, str], where: str
) -> None:
    """Older Millstreams did not store what operators keep. From the next epoch on it is."""
    meanings = meanings_of(manifest)
    silent = [each.uid for each in operators if each.meaning is not None and each.uid in program_of(manifest)]
    silent = [uid for uid in silent if uid in keeping and uid not in meanings]
    if silent:
        _LOG.warning(
            "%s was written by a Millstream that did not store what the operators of a query keep (%s). Whether their "
            "state means what this query wants was not judged; from the next epoch on it is.",
            where,
            ", ".join(silent),
        )


def _refusal(where: str, judged: Sequence[OperatorFate]) -> str:
    stuck = {each.fate for each in judged if each.is_stuck}
    choices = []
    if not stuck:
        choices.append("'drop', and what is lost begins empty, with rows that come from now on")
    if "new" not in stuck:
        choices.append("'keep', if you know that it means the same")
    option = f"; or set '{SQL_LOST_STATE.key}' to {', or to '.join(choices)}" if choices else ""
    return (
        f"{where} keeps state that means something else than this query wants, so going on would be wrong:\n"
        f"{fates_text(judged)}\nNothing was changed. Give the changed query a store (or a pipeline.name) of its own, "
        f"where it begins anew; run the query as it was{option}."
    )
