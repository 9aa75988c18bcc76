"""Compaction keeps up with any write rate: tested on the policy alone, over thousands of epochs of simulated
segments, and on real tables in memory.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from millstream.common import Types
from millstream.state.segments import compaction
from millstream.state.segments.compaction import (
    FAN_IN,
    RARE_FAN_IN,
    SEGMENTS_MAX,
    budget_of,
    compaction_debt,
    next_compaction,
    replace_merged,
)
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.segments.version import Refs, SegmentRef
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.state_table import StateTable, TableSetting
from millstream.storage import open_store

KIB, MIB = 1 << 10, 1 << 20
GROUPS = range(16)


@dataclass(frozen=True)
class Simulated:
    """A table after an epoch: its segments, the bytes written and merged in it, and the remaining debt."""

    refs: Refs
    written: int
    merged: int
    debt: int

    @property
    def height(self) -> int:
        """The maximum number of segments that a lookup of one key may visit."""
        edges = {edge for ref in self.refs for edge in (ref.places.start, ref.places.stop - 1)}
        return max(sum(place in ref.places for ref in self.refs) for place in edges)


def simulated(sizes: Iterator[int], fan_in: int = FAN_IN) -> Iterator[Simulated]:
    """Epochs that write new keys only, so that merging never reduces the size."""
    refs: Refs = ()
    for epoch, size in enumerate(sizes):
        if size:
            refs = (*refs, segment(f"w{epoch}", epoch, GROUPS, size))
        left, merged = budget_of(size), 0
        for steps in itertools.count():
            step = next_compaction(refs, left, steps, fan_in)
            if step is None:
                break
            cost = step.cost_bytes(refs)
            merged_ref = segment(f"c{epoch}-{steps}", epoch, step.groups, cost).of_file_places(step.places)
            refs = replace_merged(refs, step, merged_ref)
            left -= max(cost, 1)
            merged += cost
        yield Simulated(refs, size, merged, compaction_debt(refs))


def segment(file: str, epoch: int, groups: range, size: int) -> SegmentRef:
    edges = (groups.start, groups.stop)
    return SegmentRef(file, epoch, *edges, *edges, rows=1, file_bytes=size)


def mixed(epoch: int) -> int:
    return random.Random(epoch).choice([1, KIB, 100 * KIB, MIB, 4 * MIB, 64 * MIB])


WORKLOADS: dict[str, Callable[[int], int]] = {
    "1 KiB an epoch": lambda epoch: KIB,
    "1 MiB an epoch": lambda epoch: MIB,
    "4 MiB an epoch": lambda epoch: 4 * MIB,
    "64 MiB an epoch": lambda epoch: 64 * MIB,
    "all sizes mixed": mixed,
    "bursts": lambda epoch: 64 * MIB if epoch % 100 < 10 else 4 * KIB,
}


@pytest.mark.slow
@pytest.mark.parametrize("fan_in", [FAN_IN, RARE_FAN_IN])
@pytest.mark.parametrize("name", WORKLOADS)
def test_lookups_visit_few_segments_and_write_amplification_is_bounded(name: str, fan_in: int) -> None:
    epochs = list(simulated(map(WORKLOADS[name], range(400)), fan_in))
    assert max(epoch.height for epoch in epochs[::7]) <= SEGMENTS_MAX
    assert sum(epoch.merged for epoch in epochs) <= 6 * sum(epoch.written for epoch in epochs)
    assert sum(epoch.debt > 0 for epoch in epochs) <= len(epochs) // 20, "it has been overdue for long"


@pytest.mark.parametrize(("keys_read", "segments"), [(None, 1), (0, 4), (1, 4), (500, 1)])
def test_a_table_with_few_lookups_is_merged_later(keys_read: int | None, segments: int) -> None:
    opened = OpenSegments(open_store(f"memory://rarely-read-{keys_read}"))
    table = StateTable("total", Types.LONG(), 128, StateCodec(Types.LONG(), "total"))
    refs: Refs = ()
    for epoch in range(FAN_IN):
        table.begin(TableSetting("count", epoch, 0, f"n{epoch}", range(128), 0, opened), refs)
        table.keys_read = keys_read
        table.put(list(range(1_000 * epoch, 1_000 * epoch + 1_000)), [epoch] * 1_000)
        refs = table.end()
    assert len(refs) == segments
    table.begin(TableSetting("count", FAN_IN, 0, "last", range(128), 0, opened), refs)
    assert table.read([0, 1_999, 3_000, 4_000]) == [0, 1, 3, None]


def test_idle_epochs_merge_the_debt_of_busy_ones() -> None:
    epochs = enumerate(simulated(itertools.repeat(64 * MIB)), start=1)
    busy = next(number for number, epoch in epochs if next_compaction(epoch.refs, MIB, 0) is not None)
    *_, last = simulated(itertools.chain(itertools.repeat(64 * MIB, busy), itertools.repeat(0, 400)))
    assert next_compaction(last.refs, MIB, 0) is None


def test_a_stack_that_is_too_high_is_merged_even_without_budget() -> None:
    refs = tuple(segment(f"s{n}", n, GROUPS, MIB) for n in range(SEGMENTS_MAX + 1))
    assert next_compaction(refs, 0, 99) is not None and next_compaction(refs[1:], 0, 99) is None
    assert compaction_debt(refs) == len(refs) * MIB


def test_a_real_table_stays_low_and_complete_with_a_budget_of_its_own_writes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(compaction, "_BUDGET_BYTES_MIN", 1)
    segments = OpenSegments(open_store("memory://compaction-debt"))
    table = StateTable("notes", Types.LONG(), 128, StateCodec(Types.STRING(), "notes"))
    refs: Refs = ()
    for epoch in range(1, 61):
        table.begin(TableSetting("op", epoch, 0, f"n{epoch}", range(128), 0, segments), refs)
        keys = list(range(100 * epoch, 100 * epoch + 100))
        table.put(keys, [f"{key}" * 20 for key in keys])
        refs = table.end()
        assert max(sum(group in ref.groups for ref in refs) for group in range(128)) <= 16 and not table.debt_bytes
    table.begin(TableSetting("op", 61, 0, "n61", range(128), 0, segments), refs)
    everything = list(range(100, 6_100))
    assert table.read(everything) == [f"{key}" * 20 for key in everything]
