"""The epochs of one operator in the harness: the steps of a task, without the task.

The steps are executed by the task's own code (`run_epoch`). State is in a store in memory, in the same form as in any
store, and every epoch continues from the acknowledgement of the previous one.

Invariant: a failed epoch has no effect. The next one opens the state of the last complete one.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from millstream.datastream.streams.argument_checks import refuse
from millstream.records.watermarks import MIN_WATERMARK
from millstream.runtime.exchange.messages import Acknowledgement
from millstream.runtime.keyed.broadcast_state import WRITER
from millstream.runtime.operators.broadcast_operators import BroadcastInputs
from millstream.runtime.operators.operator import Operator, run_epoch
from millstream.runtime.task.spec import EpochSpec, JobFacts
from millstream.state.stored.accounts import FunctionAccount, StoredTables, SubtaskAccount
from millstream.storage.memory import MemoryStore

__all__ = ["HarnessEpochs", "HarnessSnapshot", "harness_facts"]


@dataclass(frozen=True)
class HarnessSnapshot:
    """A committed epoch of a function: its state, its timers and its event time.

    `OperatorHarness.snapshot` creates it; pass it to another harness as `restore=`. It is self-contained: the original
    harness may continue or be discarded. `parallelism` is the harness's.
    """

    epoch: int
    watermark: int
    parallelism: int
    max_parallelism: int
    _states: Mapping[int, SubtaskAccount]  # by subtask, as in a manifest, like the next attributes
    _functions: Mapping[int, FunctionAccount]
    _files: Mapping[str, bytes]
    _broadcast: StoredTables | None = None  # versions of broadcast states, shared by all subtasks

    def __repr__(self) -> str:
        subtasks = ", ".join(map(str, sorted({*self._states, *self._functions}))) or "none"
        return f"HarnessSnapshot(epoch={self.epoch}, watermark={self.watermark}, subtasks={subtasks})"


def harness_facts() -> JobFacts:
    """A job of one operator, with a store in memory. Batches are of one record."""
    store = MemoryStore(f"harness-{secrets.token_hex(8)}")
    return JobFacts("harness", "harness", secrets.token_hex(4), store, batch_records_max=1)


class _OneCall:
    """The exchange of one harness epoch: its input is that of one call, and it buffers results instead of sending
    them."""

    def __init__(self, work: Callable[[], None] | None, watermark: int) -> None:
        self._work, self._watermark = work, watermark
        self.reached = watermark

    def arrivals(self) -> Generator[Any, None, bool]:
        if self._work is not None:
            self._work()
        yield from ()
        return True

    def departures(self) -> Iterator[Any]:
        return iter(())

    def watermark(self, node: int, watermarks: Mapping[int, int]) -> int:
        return self._watermark

    def end(self, watermarks: Mapping[int, int]) -> Iterator[Any]:
        (self.reached,) = watermarks.values()
        return iter(())


class HarnessEpochs:
    """Runs epochs of `operator`, starting from the snapshots, one per subtask."""

    def __init__(self, operator: Operator, snapshots: Sequence[HarnessSnapshot]) -> None:
        self._operator = operator
        self._context = operator.setting.context
        self._facts = operator.setting.facts
        self._attempts = 0
        _check(snapshots, self._context.max_parallelism)
        self._epoch = max((snapshot.epoch for snapshot in snapshots), default=0)
        self._watermark = min((snapshot.watermark for snapshot in snapshots), default=MIN_WATERMARK)
        self._states = dict(item for snapshot in snapshots for item in snapshot._states.items())
        self._functions = dict(item for snapshot in snapshots for item in snapshot._functions.items())
        broadcast = (snapshot._broadcast for snapshot in snapshots)
        self._broadcast = next((tables for tables in broadcast if tables is not None and tables.versions), None)
        if isinstance(operator, BroadcastInputs):
            operator.broadcast.is_only_subtask = True
        for snapshot in snapshots:
            for name, data in snapshot._files.items():
                self._facts.store.put(name, data)

    def open(self) -> None:
        """Restore the function's operator state, and open it."""
        self._operator.open(self._functions)

    def run(self, now_ms: int, work: Callable[[], None] | None = None, watermark: int = MIN_WATERMARK) -> None:
        """Run one epoch at the time `now_ms`: `work` pushes its input; event time advances to `watermark`, if later."""
        self._attempts += 1
        acknowledgement = Acknowledgement(0, self._context.subtask, f"{self._facts.run}n{self._attempts}")
        traffic = _OneCall(work, max(watermark, self._watermark))
        operators = {self._operator.node.id: self._operator}
        for _ in run_epoch(operators, self._spec(now_ms), acknowledgement, traffic):
            pass
        self._commit(acknowledgement, traffic.reached)

    def snapshot(self) -> HarnessSnapshot:
        """The snapshot of the last epoch."""
        store = self._facts.store
        files = {name: store.get(name) for name in store.list("")}
        parallelism, max_parallelism = self._context.parallelism, self._context.max_parallelism
        accounts = self._states, self._functions, files, self._broadcast
        return HarnessSnapshot(self._epoch, self._watermark, parallelism, max_parallelism, *accounts)

    def _spec(self, now_ms: int) -> EpochSpec:
        uid, states = self._operator.uid, dict(self._states)
        if self._broadcast is not None:
            states[WRITER] = replace(states.get(WRITER, SubtaskAccount()), broadcast=self._broadcast)
        spec = EpochSpec(
            epoch=self._epoch + 1,
            round=self._attempts,
            now_ms=now_ms,
            final=False,
            reads={},
            floors={},
            watermarks={uid: self._watermark},
            states={uid: states},
            operator_states={uid: self._functions} if self._functions else {},
        )
        # Through JSON text, as in a task: values that JSON cannot represent must fail here too.
        return EpochSpec.decode(spec.encode(), self._context.subtask)

    def _commit(self, acknowledgement: Acknowledgement, reached: int) -> None:
        subtask, uid = self._context.subtask, self._operator.uid
        # From now on only this subtask's own account: it has restored its share of the others'.
        account = acknowledgement.states.get(uid)
        self._broadcast = None if account is None else account.broadcast
        self._states = {} if account is None else {subtask: replace(account, broadcast=None)}
        functions = acknowledgement.operator_states
        self._functions = {subtask: functions[uid]} if uid in functions else {}
        self._epoch += 1
        self._watermark = reached


def _check(snapshots: Sequence[HarnessSnapshot], max_parallelism: int) -> None:
    for snapshot in snapshots:
        if not isinstance(snapshot, HarnessSnapshot):
            raise refuse(
                f"OperatorHarness: restore= found {snapshot!r}, expected what snapshot() of a harness returned"
            )
        if snapshot.max_parallelism != max_parallelism:
            raise refuse(
                f"OperatorHarness: the snapshot has max_parallelism={snapshot.max_parallelism}, this harness "
                f"{max_parallelism}. Keys would be looked for in the wrong places: give both the same"
            )
    if len({snapshot.parallelism for snapshot in snapshots}) > 1:
        raise refuse(
            f"OperatorHarness: restore= found {list(snapshots)}, of jobs with different parallelisms. "
            "Give the snapshots of the subtasks of one"
        )
    subtasks = [subtask for snapshot in snapshots for subtask in {*snapshot._states, *snapshot._functions}]
    if len(subtasks) != len(set(subtasks)):
        raise refuse(
            f"OperatorHarness: restore= found {list(snapshots)}, two of the same subtask. "
            "Give one snapshot of each subtask"
        )
