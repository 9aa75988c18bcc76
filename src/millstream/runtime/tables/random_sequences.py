"""Saves the sequences of RAND(seed) across epochs and restarts, as operator state of the operator that draws.

A sequence is a 48-bit number for each call with a constant seed, in each subtask. New subtasks and new calls start with
the seed; in Flink every start does.
"""

from __future__ import annotations

from typing import Any

from millstream.common.typeinfo import Types
from millstream.expressions.row_expressions import Call, Literal, RowExpression, walk
from millstream.runtime.expressions.draws import Draws
from millstream.runtime.expressions.java_random import JavaRandom

__all__ = ["RandomSequences", "random_sequences"]


class _SequencesState:
    """Describes the state to the store: subtask, index of the call, seed, and current number."""

    type_info = Types.LIST(Types.TUPLE([Types.INT(), Types.INT(), Types.LONG(), Types.LONG()]))

    def get_name(self) -> str:
        return "random sequences"


class RandomSequences:
    """Saves the sequences of one subtask."""

    def __init__(self, draws: Draws, subtask: int) -> None:
        self._draws, self._subtask = draws, subtask
        self._saved: Any = None
        draws.keeps_sequences = True

    def initialize_state(self, context: Any) -> None:
        """Restore the saved sequences."""
        self._saved = context.get_operator_state_store().get_union_list_state(_SequencesState())
        self._draws.sequences.clear()
        for subtask, place, seed, state in self._saved.get():
            if subtask == self._subtask:
                self._draws.sequences[place, seed] = JavaRandom.at(state)

    def snapshot_state(self, context: Any) -> None:
        """Save the current numbers."""
        sequences = self._draws.sequences.items()
        self._saved.update([(self._subtask, place, seed, each.state) for (place, seed), each in sequences])


def random_sequences(draws: Draws, subtask: int, *expressions: RowExpression | None) -> RandomSequences | None:
    """The state of the sequences that expressions draw from; None if they use no sequence."""
    parts = (part for whole in expressions if whole is not None for part in walk(whole))
    return RandomSequences(draws, subtask) if any(map(follows_seed, parts)) else None


def follows_seed(part: RowExpression) -> bool:
    """Whether the call has its own sequence: RAND(1), RAND_INTEGER(1, 10)."""
    if not isinstance(part, Call) or part.function not in ("RAND", "RAND_INTEGER"):
        return False
    return len(part.arguments) == _WITH_SEED[part.function] and isinstance(part.arguments[0], Literal)


_WITH_SEED = {"RAND": 1, "RAND_INTEGER": 2}
