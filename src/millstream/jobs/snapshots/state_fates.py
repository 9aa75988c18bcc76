"""Compares a program with the state in a manifest, before anything runs: whether all state is used, and whether its
meaning is unchanged.

Operators are matched by uid (`checkpoint/restoring.py`), and operators of SQL by the meaning of their state as well
(`checkpoint/meanings.py`). Incompatible state is rejected with the whole list, and nothing is changed: state whose uid
no operator has, unless it may be dropped; state with another meaning, unless 'millstream.sql.lost-state' says to drop
it, or to keep it at the user's risk. A new operator that cannot begin empty is always rejected.
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
_CHOICES = {"drop": "; it begins empty", "keep": "; it is used all the same, as configured"}


def keeping_operators(manifest: Manifest) -> dict[str, str]:
    """The names, by uid, of operators that hold positions, state, or output that is held back."""
    accounts = accounts_of(manifest).items()
    keeping = {uid for uid, account in accounts if account.keeps_state or account.pending is not None}
    return {uid: manifest.operator_name(uid) for uid in sorted({*keeping, *manifest.sources})}


def stateful_nodes(nodes: Sequence[Node], keeping: Mapping[str, str]) -> tuple[StatefulOperator, ...]:
    """The operators of a program that have state, had state, or read a source, each with its nearest upstream operators
    among them."""
    stateful: list[StatefulOperator] = []
    nearest: dict[int, tuple[str, ...]] = {}
    for node in sorted(nodes, key=lambda each: each.id):  # edges point upstream
        inputs = tuple(dict.fromkeys(uid for edge in node.inputs for uid in nearest.get(edge.source, ())))
        nearest[node.id] = inputs
        uid = node.uid or ""
        if node.meaning is not None or isinstance(node.operation, Read) or uid in keeping:
            stateful.append(StatefulOperator(uid, node.name, node.meaning, inputs))
            nearest[node.id] = (uid,)
    return tuple(stateful)


def judged_program(manifest: Manifest, nodes: Sequence[Node], where: str, on_lost: str) -> set[str]:
    """The uids of operators whose state is dropped because its meaning changed (`on_lost`: the option's value). Raises
    StateSchemaError if the option rejects that, or if an operator cannot begin empty."""
    keeping = keeping_operators(manifest)
    operators = stateful_nodes(nodes, keeping)
    if not any(each.meaning is not None for each in operators):
        return set()
    _warn_of_unknown_meanings(manifest, operators, keeping, where)
    judged = fates(meanings_of(manifest), keeping, operators)
    lost = {each.uid for each in judged if each.fate == "lost"}
    is_refused = lost and on_lost == "refuse"
    if is_refused or any(each.is_stuck and not (each.fate == "lost" and on_lost == "keep") for each in judged):
        raise StateSchemaError(_refusal(where, judged))
    for each in judged:
        if each.note and each.fate in ("kept", "extended", "lost"):
            _LOG.warning("starting from %s: %s%s", where, each.line, _CHOICES[on_lost] if each.fate == "lost" else "")
    return lost if on_lost == "drop" else set()


def _warn_of_unknown_meanings(
    manifest: Manifest, operators: Sequence[StatefulOperator], keeping: Mapping[str, str], where: str
) -> None:
    """Warns if an older version did not store the meaning of operators' state. The next epoch stores it."""
    meanings = meanings_of(manifest)
    silent = [each.uid for each in operators if each.meaning is not None and each.uid in program_of(manifest)]
    silent = [uid for uid in silent if uid in keeping and uid not in meanings]
    if silent:
        _LOG.warning(
            "%s was written by a version of Millstream that did not store the meaning of a query's state (%s). Whether "
            "the state matches this query was not checked; from the next epoch on it is.",
            where,
            ", ".join(silent),
        )


def _refusal(where: str, judged: Sequence[OperatorFate]) -> str:
    stuck = {each.fate for each in judged if each.is_stuck}
    choices = []
    if not stuck:
        choices.append("'drop', and lost state begins empty, with rows that arrive from now on")
    if "new" not in stuck:
        choices.append("'keep', if you know that its meaning is the same")
    option = f"; or set '{SQL_LOST_STATE.key}' to {', or to '.join(choices)}" if choices else ""
    return (
        f"{where} has state with another meaning than this query's, so continuing would be wrong:\n"
        f"{fates_text(judged)}\nNothing was changed. Use a store (or a pipeline.name) of its own for "
        f"the changed query, where it begins anew; run the unchanged query{option}."
    )
