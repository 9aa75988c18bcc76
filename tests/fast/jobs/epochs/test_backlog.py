"""An epoch is bounded in bytes as well as in records, and a job reports its backlog."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common import Configuration, Types, WatermarkStrategy
from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import ProgramError
from millstream.jobs.epochs.backlog import WINDOW_MS, Backlog, BacklogSample, backlog_after
from millstream.jobs.epochs.epoch_history import EpochEntry, history
from millstream.jobs.epochs.input_plan import PlannedSource
from millstream.jobs.epochs.input_planner import plan_input
from millstream.jobs.settings.driver_settings import epoch_target_ms
from millstream.jobs.settings.job_settings import JobSettings
from millstream.testing import Collect, run
from millstream.testing.collecting import Collected


class TwoLogs(Source):
    """Two logs of texts; the record at offset n has `sizes[n]` bytes. Reads up to its bound of bytes and no further."""

    bounded = True
    type_info = Types.STRING()

    def __init__(self, sizes: Sequence[int]) -> None:
        self.sizes = sizes

    def splits(self, context: SourceContext) -> Sequence[Split]:
        return [Split("left"), Split("right")]

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        return min(offset + budget, len(self.sizes))

    def finished(self, split: Split, offset: Offset) -> bool:
        return bool(offset >= len(self.sizes))

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        yield [f"{split.name}:{n}:" + "x" * self.sizes[n] for n in range(start, stop)]

    def read_within(self, split: Split, start: Offset, stop: Offset, bytes_max: int) -> Read:
        size, at = 0, start
        while at < stop and size < bytes_max:
            yield [f"{split.name}:{at}:" + "x" * self.sizes[at]]
            size += self.sizes[at]
            at += 1
        return at

    def backlog(self, split: Split, offset: Offset, context: SourceContext) -> int | None:
        return len(self.sizes) - int(offset)


def expected(sizes: Sequence[int]) -> list[str]:
    """Every record of both logs, in order."""
    return sorted(f"{side}:{n}:" + "x" * size for side in ("left", "right") for n, size in enumerate(sizes))


def results(source: Source, bytes_max: int, records_max: int = 1_000) -> tuple[list[Collected], list[EpochEntry]]:
    """The output of a job over the source, and its epochs."""
    out = Collect()

    def program(env: StreamExecutionEnvironment) -> None:
        settings = Configuration()
        settings.set_integer("millstream.epoch.max-bytes", bytes_max)
        settings.set_integer("millstream.epoch.max-records", records_max)
        env.configure(settings)
        env.from_source(source, WatermarkStrategy.no_watermarks(), "letters").sink_to(out)

    result = run(program, parallelism=2)
    return result.of(out), history(result.manifests)


def test_an_epoch_ends_at_its_byte_bound_for_records_of_any_size_without_loss() -> None:
    sizes = [10] * 20 + [5_000] * 20 + [10] * 20
    records, _ = results(TwoLogs(sizes), bytes_max=20_000)
    assert sorted(record.value for record in records) == expected(sizes)
    epoch_bytes = Counter[int]()
    for record in records:
        epoch_bytes[record.epoch] += len(record.value)
    # The bound, and one more record of each log: its size is unknown before it is read.
    assert max(epoch_bytes.values()) <= 20_000 + 2 * 5_100
    assert len(epoch_bytes) >= 200_000 // 30_200


@given(st.lists(st.integers(0, 300), max_size=30), st.integers(1, 2_000), st.integers(1, 20))
def test_every_record_is_read_once_with_any_bounds(sizes: list[int], bytes_max: int, records_max: int) -> None:
    records, _ = results(TwoLogs(sizes), bytes_max, records_max)
    assert sorted(record.value for record in records) == expected(sizes)


def test_a_range_that_may_be_read_in_part_is_never_planned_as_the_last() -> None:
    """Otherwise its rest would follow the end of event time."""
    source = TwoLogs([1] * 10)
    planned = plan_input((PlannedSource("in", source, 1),), {}, 1_000, SourceContext(0, 0, 1, record_bytes_max=10))
    assert planned.has_input and not planned.exhausted
    assert [range_.bytes_max for range_ in planned.reads["in"]] == [5_000, 5_000]


def test_epochs_report_their_backlog() -> None:
    _, epochs = results(TwoLogs([1] * 50), bytes_max=1_000_000, records_max=20)
    assert [epoch.behind for epoch in epochs if epoch.records_in] == [80, 60, 40, 20, 0]


def test_an_epoch_that_ended_at_its_byte_bound_reports_lagging_input() -> None:
    _, epochs = results(TwoLogs([5_000] * 6), bytes_max=20_000)
    first = next(epoch for epoch in epochs if epoch.records_in)
    assert first.records_in < 12 and first.lags  # far less than its share of records


def test_a_source_that_cannot_count_reports_no_backlog() -> None:
    class Uncounted(TwoLogs):
        def backlog(self, split: Split, offset: Offset, context: SourceContext) -> int | None:
            return None if split.name == "left" else 7

    _, epochs = results(Uncounted([1] * 50), bytes_max=1_000_000, records_max=20)
    assert {epoch.behind for epoch in epochs if epoch.records_in} == {None}


def test_an_invalid_backlog_is_rejected_with_its_source() -> None:
    class Wrong(TwoLogs):
        def backlog(self, split: Split, offset: Offset, context: SourceContext) -> int | None:
            return -3

    with pytest.raises(ProgramError, match=r"Wrong.backlog returned -3 \(int\), expected how many records are left"):
        results(Wrong([1]), bytes_max=1_000)


# --- when it will have caught up ---------------------------------------------------------------------------------


def catch_up_after(*behind: int, step_ms: int = 1_000) -> Backlog:
    backlog = None
    for number, count in enumerate(behind):
        backlog = backlog_after(backlog, BacklogSample(number * step_ms, count))
    assert backlog is not None
    return backlog


def test_the_end_of_a_falling_backlog_is_extrapolated() -> None:
    assert catch_up_after(1_000, 900, 800).caught_up_in_ms == 8_000


def test_a_growing_or_constant_backlog_has_no_estimated_end() -> None:
    assert catch_up_after(100).caught_up_in_ms is None
    assert catch_up_after(100, 100).caught_up_in_ms is None
    assert catch_up_after(100, 150).caught_up_in_ms is None


def test_an_empty_backlog_is_caught_up_at_once() -> None:
    assert catch_up_after(0).caught_up_in_ms == 0 and catch_up_after(5, 0).caught_up_in_ms == 0


def test_old_measurements_are_ignored() -> None:
    stood_then_falls = [10_000] * 100 + [10_000 - 10 * n for n in range(61)]
    assert catch_up_after(*stood_then_falls).caught_up_in_ms == pytest.approx(940_000, rel=0.02)
    assert len(catch_up_after(*stood_then_falls).samples) == WINDOW_MS // 1_000 + 1


# --- how long an epoch should take -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("interval_ms", "settings", "target_ms"),
    [
        (None, {}, None),
        (1_000, {}, 1_000),
        (1_000, {"execution.buffer-timeout.interval": "200 ms"}, 200),
        (1_000, {"execution.buffer-timeout": "200 ms"}, 200),
        (None, {"execution.buffer-timeout.interval": "0 ms"}, 0),
        (100, {"execution.buffer-timeout.interval": "5 s"}, 100),
        (1_000, {"execution.buffer-timeout.interval": "1 ms", "execution.buffer-timeout.enabled": "false"}, 1_000),
    ],
)
def test_the_buffer_timeout_bounds_an_epoch_where_it_is_set(
    interval_ms: int | None, settings: dict[str, str], target_ms: int | None
) -> None:
    assert epoch_target_ms(JobSettings(checkpoint_interval_ms=interval_ms, configuration=settings)) == target_ms
