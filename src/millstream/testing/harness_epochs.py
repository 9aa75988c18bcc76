"""The life of one operator from epoch to epoch, for the harness: the steps of a task, without the task.

An epoch is, in order: begin, open the state at the last version, fire timers of processing time that have come, take
input, let event time move, write the state, keep what the function put down. State lies in a store in memory, in the
form it has in any store, and every epoch goes on from what the one before acknowledged.

Invariant: an epoch that fails never happened. The next one opens the state where the last whole one left it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from millstream.datastream.streams.argument_checks import refuse
from millstream.records.watermarks import MIN_WATERMARK
from millstream.runtime.keyed.broadcast_state import ACCOUNT, WRITER
from millstream.runtime.operators.broadcast_operators import BroadcastInputs, BroadcastProcessOperator
from millstream.runtime.operators.keyed_operator import KeyedOperator
from millstream.runtime.operators.operator import Operator
from millstream.runtime.task.barrier import Acknowledgement
from millstream.runtime.task.spec import EpochSpec, JobFacts
from millstream.storage.memory import MemoryStore

__all__ = ["HarnessEpochs", "Snapshot"]

Accounts = Mapping[str, Any]
_STATEFUL = (KeyedOperator, BroadcastProcessOperator)


@dataclass(frozen=True)
class Snapshot:
    """What a committed epoch keeps of a function: its state, its timers and its event time.

    `OperatorHarness.snapshot` makes it; give it to another harness as `restore=`. It is whole in itself, and the
    harness it came from may go on or be thrown away. `parallelism` is that of the harness.
    """

    epoch: int
    watermark: int
    parallelism: int
    max_parallelism: int
    _states: Accounts  # by subtask, as a manifest has them; so are the next
    _functions: Accounts
    _files: Mapping[str, bytes]
    _broadcast: Accounts = field(default_factory=dict)  # what all subtasks have: versions of broadcast states

    def __repr__(self) -> str:
        subtasks = sorted({*self._states, *self._functions}, key=int)
        return f"Snapshot(epoch={self.epoch}, watermark={self.watermark}, subtasks={', '.join(subtasks) or 'none'})"


class HarnessEpochs:
    """Runs epochs of `operator`, from where `restored` left off. Several snapshots are those of different subtasks."""

    def __init__(self, operator: Operator, restored: Sequence[Snapshot]) -> None:
        self._operator = operator
        self._context = operator.setting.context
        self._run = secrets.token_hex(4)
        self._attempts = 0
        store = MemoryStore(f"harness-{secrets.token_hex(8)}")
        self._facts = JobFacts("harness", "harness", self._run, store)
        _check(restored, self._context.max_parallelism)
        self._epoch = max((one.epoch for one in restored), default=0)
        self._watermark = min((one.watermark for one in restored), default=MIN_WATERMARK)
        self._states: Accounts = {subtask: kept for one in restored for subtask, kept in one._states.items()}
        self._functions: Accounts = {subtask: kept for one in restored for subtask, kept in one._functions.items()}
        self._broadcast: Accounts = next((one._broadcast for one in restored if one._broadcast), {})
        if isinstance(operator, BroadcastInputs):
            operator.broadcast.is_alone = True
        self._store = store
        for one in restored:
            for name, data in one._files.items():
                store.put(name, data)

    def open(self) -> None:
        """Give the function what was kept of its operator state, and open it."""
        self._operator.operator_state.restore(self._functions, self._store)
        self._operator.open()

    def run(self, now_ms: int, work: Callable[[], None] | None = None, watermark: int = MIN_WATERMARK) -> None:
        """One epoch at the time `now_ms`: `work` brings its input; event time comes to `watermark`, if it is later."""
        self._attempts += 1
        nonce, operator, uid = f"{self._run}n{self._attempts}", self._operator, self._operator.uid
        spec = self._spec(now_ms)
        operator.begin(spec)
        kept = spec.operator_states.get(uid, {})
        operator.operator_state.begin(kept, self._store, nonce, spec.epoch, now_ms)
        if isinstance(operator, _STATEFUL):
            operator.prepare(spec, self._facts, nonce)
        operator.wake()
        if work is not None:
            work()
        reached = operator.advance(max(watermark, self._watermark))
        acknowledgement = Acknowledgement(0, self._context.subtask, nonce)
        if isinstance(operator, _STATEFUL):
            operator.acknowledge(acknowledgement)
        operator.keep(acknowledgement)
        self._commit(acknowledgement, reached)

    def snapshot(self) -> Snapshot:
        """What the last epoch kept."""
        files = {name: self._store.get(name) for name in self._store.list("")}
        parallelism, max_parallelism = self._context.parallelism, self._context.max_parallelism
        kept = self._states, self._functions, files, self._broadcast
        return Snapshot(self._epoch, self._watermark, parallelism, max_parallelism, *kept)

    def _spec(self, now_ms: int) -> EpochSpec:
        uid, states = self._operator.uid, dict(self._states)
        if self._broadcast:
            states[WRITER] = {**states.get(WRITER, {}), ACCOUNT: self._broadcast}
        spec = EpochSpec(
            epoch=self._epoch + 1,
            try_=self._attempts,
            now_ms=now_ms,
            final=False,
            reads={},
            floors={},
            watermarks={uid: self._watermark},
            states={uid: states},
            operator_states={uid: self._functions} if self._functions else {},
        )
        # Through text, as a task gets it: what does not survive JSON must fail here too.
        return EpochSpec.decode(spec.encode(), self._context.subtask)

    def _commit(self, acknowledgement: Acknowledgement, reached: int) -> None:
        subtask, uid = str(self._context.subtask), self._operator.uid
        # From now on only what this subtask wrote: what others kept before a rescale, it has taken its part of.
        account = dict(acknowledgement.states.get(uid, {}))
        self._broadcast = account.pop(ACCOUNT, {})
        self._states = {subtask: account} if uid in acknowledgement.states else {}
        kept = acknowledgement.operator_states
        self._functions = {subtask: kept[uid]} if uid in kept else {}
        self._epoch += 1
        self._watermark = reached


def _check(restored: Sequence[Snapshot], max_parallelism: int) -> None:
    for one in restored:
        if not isinstance(one, Snapshot):
            raise refuse(f"OperatorHarness: restore= found {one!r}, expected what snapshot() of a harness returned")
        if one.max_parallelism != max_parallelism:
            raise refuse(
                f"OperatorHarness: the snapshot has max_parallelism={one.max_parallelism}, this harness "
                f"{max_parallelism}. Keys would be looked for in the wrong places: give both the same"
            )
    if len({one.parallelism for one in restored}) > 1:
        raise refuse(
            f"OperatorHarness: restore= found {list(restored)}, of jobs with different parallelisms. "
            "Give the snapshots of the subtasks of one"
        )
    subtasks = [subtask for one in restored for subtask in {*one._states, *one._functions}]
    if len(subtasks) != len(set(subtasks)):
        raise refuse(
            f"OperatorHarness: restore= found {list(restored)}, two of the same subtask. "
            "Give one snapshot of each subtask"
        )
