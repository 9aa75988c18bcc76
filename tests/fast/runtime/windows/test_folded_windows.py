"""Windows folded in bulk: which rows they leave in the store, and how much of it they read."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from millstream.common import Types, WatermarkStrategy
from millstream.compiler.passes import compile_graph
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.window import SlidingEventTimeWindows, TumblingEventTimeWindows
from millstream.metrics.registry import MetricRegistry
from millstream.plan.operations import FoldedWindow
from millstream.records.batch import Batch
from millstream.records.watermarks import MIN_WATERMARK
from millstream.runtime.exchange.messages import Acknowledgement
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.operators.user_code import TaskContext
from millstream.runtime.task.registry import operator_for
from millstream.runtime.task.spec import EpochSpec, JobFacts
from millstream.runtime.windows import folding
from millstream.runtime.windows.folding import FoldingWindowOperator
from millstream.storage.memory import MemoryStore
from millstream.testing import Collect, Script

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
STORES = itertools.count()


class OneOperator:
    """One window node in one subtask, through epochs."""

    def __init__(self, assigner: Any, lateness_ms: int) -> None:
        env = StreamExecutionEnvironment()
        env.set_parallelism(1)
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(1)
        stream = env.from_source(Script([], type_info=PAIR), strategy, "in").key_by(0).window(assigner)
        stream.allowed_lateness(lateness_ms).reduce(lambda a, b: (a[0], a[1] + b[1])).sink_to(Collect())
        plan = compile_graph(env._graph(None))
        (node,) = (node for node in plan.nodes() if isinstance(node.operation, FoldedWindow))
        context = TaskContext("windows", 1, 128, 0, 0, {}, MetricRegistry().group("windows"))
        facts = JobFacts("job", "id", "run", MemoryStore(f"folded-{next(STORES)}"), batch_records_max=1_024)
        made = operator_for(OperatorSetting(node, context, facts))
        assert isinstance(made, FoldingWindowOperator)
        self.operator = made
        self._epoch, self._watermark, self._states = 0, MIN_WATERMARK, dict[str, Any]()

    def run(self, records: list[tuple[str, int]], watermark: int) -> list[Any]:
        """An epoch with these records, each at the time that is its number."""
        self._epoch += 1
        operator, uid, out = self.operator, self.operator.uid, list[Any]()
        operator.outputs = [lambda batch: out.extend(batch.values())]
        spec = EpochSpec(self._epoch, 0, 0, False, {}, {}, {uid: self._watermark}, {uid: self._states})
        operator.begin(spec, f"n{self._epoch}")
        if records:
            operator.take(Batch.of_values(records, PAIR, np.array([time for _, time in records], dtype=np.int64)))
        operator.advance(watermark)
        acknowledgement = Acknowledgement(0, 0, "n", {})
        operator.acknowledge(acknowledgement)
        self._watermark, self._states = watermark, {"0": acknowledgement.states[uid]}
        return out

    @property
    def left(self) -> int:
        """The number of windows in the store."""
        return sum(rows.num_rows for rows in self.operator._table.view.scan())


@pytest.mark.parametrize("assigner", [TumblingEventTimeWindows(10, 0), SlidingEventTimeWindows(20, 10, 0)], ids=type)
def test_expired_windows_leave_no_rows_with_or_without_late_records(assigner: Any) -> None:
    one = OneOperator(assigner, lateness_ms=15)
    one.run([("a", 5), ("b", 7)], 12)
    assert one.left
    assert one.run([("a", 6)], 13)  # late within the allowed lateness: it fires again
    assert one.left
    one.run([], 1_000)
    one.run([], 1_001)
    assert one.left == 0


def test_a_late_record_adds_to_what_its_window_held_when_it_fired() -> None:
    one = OneOperator(TumblingEventTimeWindows(10, 0), lateness_ms=15)
    assert one.run([("a", 5)], 12) == [("a", 5)]
    assert one.run([("a", 3), ("a", 1)], 13) == [("a", 8), ("a", 9)]
    assert one.run([("a", 2)], 14) == [("a", 11)]


def test_only_due_windows_are_read_when_the_watermark_advances() -> None:
    one = OneOperator(TumblingEventTimeWindows(10, 0), lateness_ms=0)
    one.run([("a", 10 * number) for number in range(100)], 25)
    seen: list[int] = []
    close = one.operator._close

    def counted(rows: Any) -> None:
        seen.append(rows.num_rows)
        close(rows)

    one.operator._close = counted  # type: ignore[method-assign]
    assert len(one.run([], 45)) == 2
    assert seen == [2]


def test_results_do_not_depend_on_the_piece_size(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [("ab"[time % 2], time) for time in range(60)]

    def results() -> list[Any]:
        one = OneOperator(SlidingEventTimeWindows(50, 10, 0), 0)
        return [one.run(records, -1), one.run(records, 1_000)]

    whole = results()
    monkeypatch.setattr(folding, "_PIECE_RECORDS", 7)
    monkeypatch.setattr(folding, "_PIECE_PAIRS", 12)
    assert results() == whole
    assert list(map(len, whole)) == [0, 20]
