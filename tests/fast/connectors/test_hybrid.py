"""A hybrid source reads its sources one after the other, and switches in the same place whatever happens meanwhile."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.savepoints import copy_savepoint, find_snapshot
from millstream.checkpoint.snapshot_names import parse_snapshot_name
from millstream.common import Configuration, RestartStrategies, WatermarkStrategy
from millstream.connectors import hybrid
from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.connectors.hybrid import HybridSource
from millstream.connectors.program_sources import NumberSequenceSource
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import ProgramError
from millstream.jobs.replay.replay import replay
from millstream.storage.memory import MemoryStore
from millstream.testing import Collect, Result, run

NOW = SourceContext(now_ms=0, run_started_ms=0, parallelism=1, uid="in")


class Lists(Source):
    """A split for each list. `decided` counts how often it was asked for its splits."""

    bounded = True

    def __init__(self, *lists: list[Any]) -> None:
        self.lists, self.decided = lists, 0

    def splits(self, context: SourceContext) -> list[Split]:
        self.decided += 1
        return [Split(f"list-{number}", 0, number) for number in range(len(self.lists))]

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        return min(len(self.lists[split.info]), offset + budget)

    def finished(self, split: Split, offset: Offset) -> bool:
        return bool(offset >= len(self.lists[split.info]))

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        yield self.lists[split.info][start:stop]
        return stop


class FailsOnce(Lists):
    """Fails when it reads past `at` for the first time in this process."""

    failures: ClassVar[set[str]] = set()

    def __init__(self, name: str, at: int, *lists: list[Any]) -> None:
        super().__init__(*lists)
        self.name, self.at = name, at

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        if start <= self.at < stop and self.name not in self.failures:
            self.failures.add(self.name)
            raise OSError("away for a moment")
        return (yield from super().read(split, start, stop))


def job(source: Source, **options: Any) -> tuple[list[Any], Result]:
    out = Collect()
    result = run(
        lambda env: env.from_source(source, WatermarkStrategy.no_watermarks(), "in").uid("in").sink_to(out), **options
    )
    return result[out], result


@given(
    st.lists(st.lists(st.lists(st.integers(0, 9), max_size=5), max_size=3), min_size=1, max_size=4),
    st.integers(1, 7),
)
def test_stages_follow_one_another(stages: list[list[list[int]]], epoch_records: int) -> None:
    marked = [[[(at, value) for value in values] for values in lists] for at, lists in enumerate(stages)]
    got, _ = job(HybridSource([Lists(*lists) for lists in marked]), epoch_records=epoch_records)
    assert [stage for stage, _ in got] == sorted(stage for stage, _ in got)
    assert sorted(got) == sorted(record for lists in marked for values in lists for record in values)


@pytest.mark.parametrize("failing", [0, 1])
@pytest.mark.parametrize("at", [0, 3])
def test_a_failure_in_either_stage_changes_nothing(failing: int, at: int) -> None:
    plain = [Lists(["a", "b", "c", "d"]), Lists(["e", "f", "g", "h"])]
    plain[failing] = FailsOnce(f"{failing}-{at}", at, *plain[failing].lists)
    FailsOnce.failures.clear()
    got, result = job(HybridSource(plain), epoch_records=1, restart=RestartStrategies.fixed_delay_restart(1, 0))
    assert (got, result.restarts) == (list("abcdefgh"), 1)


@pytest.mark.parametrize("epochs", range(1, 7))
def test_a_job_that_stops_anywhere_goes_on_there(epochs: int, request: pytest.FixtureRequest) -> None:
    store = request.node.name
    first, _ = job(three_stages(), epoch_records=1, epochs=epochs, store=store)
    rest, _ = job(three_stages(), store=store, epochs=99)
    assert [*first, *rest] == list("abcdef")


def test_the_next_source_is_not_queried_before_its_turn() -> None:
    later = Lists(["b"])
    hybrid = HybridSource([Lists(["a"]), later])
    assert [split.name for split in hybrid.splits(NOW)] == ["0/list-0"]
    assert later.decided == 0 and not hybrid.complete(NOW)
    hybrid.committed({"0/list-0": 1})
    assert [split.name for split in hybrid.splits(NOW)] == ["0/list-0", "1/list-0"]
    hybrid.committed({"0/list-0": 1, "1/list-0": 0})
    assert [split.name for split in hybrid.splits(NOW)] == ["1/list-0"] and hybrid.complete(NOW)


class InSequence(Lists):
    """Its lists may be read one after the other."""

    sequential = True


@pytest.mark.slow
@given(
    st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=9),
    st.lists(st.lists(st.integers(0, 9), max_size=4), max_size=9),
    st.integers(1, 7),
)
def test_a_stage_of_many_splits_is_read_some_at_a_time_and_to_its_end(
    first: list[list[int]], second: list[list[int]], epoch_records: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hybrid, "SPLITS_AT_ONCE", 2)
        source = HybridSource([InSequence(*first), InSequence(*second)])
        got, _ = job(source, epoch_records=epoch_records)
        assert len(source.splits(NOW)) <= 2 + len([values for values in first + second if not values])
    assert sorted(got) == sorted(value for values in first + second for value in values)


def test_a_split_that_was_begun_stays_listed_though_fewer_are_read_at_once_now(monkeypatch: pytest.MonkeyPatch) -> None:
    source = HybridSource([InSequence(*[[1, 2, 3]] * 5)])
    monkeypatch.setattr(hybrid, "SPLITS_AT_ONCE", 1)
    source.committed({"0/list-0": 1, "0/list-3": 1})
    assert [split.name for split in source.splits(NOW)] == ["0/list-0", "0/list-3"]
    source.committed({"0/list-0": 3, "0/list-3": 3})
    assert [split.name for split in source.splits(NOW)] == ["0/list-0", "0/list-1", "0/list-3"]
    assert not source.complete(NOW)


def test_a_source_that_never_ends_may_only_be_the_last() -> None:
    endless = Lists(["a"])
    endless.bounded = False
    assert not HybridSource([Lists(["a"]), endless]).bounded
    with pytest.raises(ProgramError, match=r"source 0 .* is unbounded"):
        HybridSource([endless, Lists(["a"])])


def test_sources_of_different_types_are_refused() -> None:
    with pytest.raises(ProgramError, match="different record types"):
        HybridSource([NumberSequenceSource(1, 2), Lists(["a"])])


def three_stages() -> HybridSource:
    return HybridSource([Lists(["a", "b"]), Lists(["c"], []), Lists(["d", "e", "f"])])


def test_every_epoch_replays(request: pytest.FixtureRequest) -> None:
    store = request.node.name
    job(three_stages(), epoch_records=1, store=store)
    log = ManifestLog(MemoryStore(store))
    epochs = [epoch for epoch in log.epochs() if log.read(epoch).status in ("RUNNING", "DRAINED")]
    assert len(epochs) >= 6
    for epoch in epochs:
        env = StreamExecutionEnvironment()
        env.from_source(three_stages(), WatermarkStrategy.no_watermarks(), "in").uid("in").sink_to(Collect())
        outcome = replay(env._graph(None), env._job_settings(), f"memory://{store}@{epoch}", "Source: in")
        assert outcome.is_same, outcome.text()


@pytest.mark.parametrize("epoch", range(1, 7))
def test_a_job_that_begins_from_any_epoch_of_another_reads_the_rest(epoch: int, request: pytest.FixtureRequest) -> None:
    store = request.node.name
    job(three_stages(), epoch_records=1, store=store)
    copy = MemoryStore(f"{store}-copy")
    copy_savepoint(find_snapshot(parse_snapshot_name(f"memory://{store}@{epoch}")), copy)
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        env.configure(Configuration().set_string("execution.state-recovery.path", copy.url))
        env.from_source(three_stages(), WatermarkStrategy.no_watermarks(), "in").uid("in").sink_to(out)

    assert run(build, store=f"{store}-again")[out] == list("abcdef")[epoch:]
