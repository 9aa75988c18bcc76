"""The sources that need no file system: same records from any cutting of their ranges, and never past their end."""

from __future__ import annotations

import pickle
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common.typeinfo import Types
from millstream.connectors.contracts import Source, SourceContext
from millstream.connectors.program_sources import CollectionSource, DataGeneratorSource, NumberSequenceSource
from millstream.errors import ProgramError


def at(now_ms: int, run_started_ms: int = 0, parallelism: int = 2) -> SourceContext:
    return SourceContext(now_ms=now_ms, run_started_ms=run_started_ms, parallelism=parallelism)


def drain(source: Source, budget: int, context: SourceContext) -> list[list[Any]]:
    """Read a bounded source epoch by epoch, as the driver does; the records of each epoch."""
    epochs: list[list[Any]] = []
    offsets = {split.name: split.start for split in source.splits(context)}
    while True:
        epoch: list[Any] = []
        for split in source.splits(context):
            start = offsets[split.name]
            if source.finished(split, start):
                continue
            stop = source.reach(split, start, budget, context)
            for chunk in source.read(split, start, stop):
                epoch.extend(chunk["value"].to_pylist() if isinstance(chunk, pa.RecordBatch) else chunk)
            offsets[split.name] = stop
        if all(source.finished(split, offsets[split.name]) for split in source.splits(context)):
            return [*epochs, epoch]
        epochs.append(epoch)


def flat(epochs: list[list[Any]]) -> list[Any]:
    return [value for epoch in epochs for value in epoch]


def test_a_collection_yields_its_values_in_order_within_the_budget() -> None:
    source = CollectionSource(list("abcdefg"), Types.STRING())
    assert drain(source, 3, at(0)) == [["a", "b", "c"], ["d", "e", "f"], ["g"]]
    assert source.single and source.bounded and source.complete(at(0))


def test_an_empty_collection_is_finished_at_once() -> None:
    source = CollectionSource([])
    [split] = source.splits(at(0))
    assert source.finished(split, split.start)


@given(st.integers(-(10**6), 10**6), st.integers(0, 5000), st.integers(1, 700))
def test_a_number_sequence_yields_every_number_once_whatever_the_budget(start: int, count: int, budget: int) -> None:
    source = NumberSequenceSource(start, start + count)
    assert sorted(flat(drain(source, budget, at(0)))) == list(range(start, start + count + 1))


def test_the_splits_of_a_number_sequence_do_not_depend_on_the_parallelism_and_are_balanced() -> None:
    source = NumberSequenceSource(1, 1_000_003)
    splits = source.splits(at(0, parallelism=1))
    assert list(splits) == list(source.splits(at(0, parallelism=64)))
    sizes = [split.info - split.start for split in splits]
    assert max(sizes) - min(sizes) <= 1 and sum(sizes) == 1_000_003


def test_a_number_sequence_reaches_both_ends_of_the_long_range() -> None:
    low, high = -(2**63), 2**63 - 1
    assert flat(drain(NumberSequenceSource(high - 2, high), 10, at(0))) == [high - 2, high - 1, high]
    assert flat(drain(NumberSequenceSource(low, low + 1), 10, at(0))) == [low, low + 1]


def test_a_number_sequence_that_runs_backwards_is_refused() -> None:
    with pytest.raises(ProgramError, match="start 5 is above end 1"):
        NumberSequenceSource(5, 1)
    with pytest.raises(ProgramError, match="64-bit"):
        NumberSequenceSource(0, 2**63)


@given(st.integers(0, 300), st.integers(1, 9), st.integers(1, 40))
def test_a_generator_uses_every_index_once(count: int, splits: int, budget: int) -> None:
    source = DataGeneratorSource(lambda index: index, count, splits=splits)
    assert sorted(flat(drain(source, budget, at(0)))) == list(range(count))


def generated(source: DataGeneratorSource, offsets: dict[str, int], context: SourceContext) -> int:
    """One epoch of a generator; how many records it gave."""
    count = 0
    for split in source.splits(context):
        stop = source.reach(split, offsets.get(split.name, 0), 10**9, context)
        count += stop - offsets.get(split.name, 0)
        offsets[split.name] = stop
    return count


@given(st.floats(0.5, 5000), st.lists(st.integers(0, 10_000), min_size=1), st.integers(1, 16))
def test_the_rate_holds_for_the_source_as_a_whole_at_every_moment(rate: float, pauses: list[int], splits: int) -> None:
    source = DataGeneratorSource(lambda index: index, rate_per_second=rate, splits=splits)
    offsets: dict[str, int] = {}
    total, now_ms = 0, 1_000
    for pause_ms in pauses:
        now_ms += pause_ms
        total += generated(source, offsets, at(now_ms, run_started_ms=1_000))
        assert total == int((now_ms - 1_000) * rate / 1000)


def test_a_resumed_generator_does_not_hurry_to_make_up_for_the_time_it_was_down() -> None:
    source = DataGeneratorSource(lambda index: index, rate_per_second=100)
    offsets: dict[str, int] = {}
    assert generated(source, offsets, at(10_000, run_started_ms=0)) == 1000
    for resumed in (source, pickle.loads(pickle.dumps(DataGeneratorSource(abs, rate_per_second=100)))):
        later = dict(offsets)
        assert generated(resumed, later, at(3_600_000, run_started_ms=3_600_000)) == 0
        assert generated(resumed, later, at(3_601_000, run_started_ms=3_600_000)) == 100


def test_a_generator_without_a_count_is_unbounded_and_never_finished() -> None:
    source = DataGeneratorSource(lambda index: index)
    assert not source.bounded and not source.complete(at(0))
    assert not any(source.finished(split, 10**12) for split in source.splits(at(0)))


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ({"generator_function": 3}, "callable"),
        ({"generator_function": abs, "count": -1}, "count is -1"),
        ({"generator_function": abs, "rate_per_second": 0}, "rate_per_second is 0"),
        ({"generator_function": abs, "splits": 0}, "splits is 0"),
    ],
)
def test_a_generator_refuses_what_cannot_work(arguments: dict[str, Any], text: str) -> None:
    with pytest.raises(ProgramError, match=text):
        DataGeneratorSource(**arguments)
