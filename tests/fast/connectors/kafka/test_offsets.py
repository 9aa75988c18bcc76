"""Start positions are resolved to offsets as Flink's initializers do, for any partitions and any broker answers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest
from hypothesis import given as for_all
from hypothesis import strategies as st

from millstream.connectors.kafka.offsets import EARLIEST, LATEST, OffsetRule, Partition, committed, resolve, specific
from millstream.errors import ConnectorError


@dataclass
class Broker:
    """Partitions with the offsets [first, end) and, where the group has committed, its offset."""

    spans: dict[Partition, tuple[int, int]]
    group: dict[Partition, int] = field(default_factory=dict)

    def earliest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return {at: self.spans[at][0] for at in partitions}

    def latest(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return {at: self.spans[at][1] for at in partitions}

    def at_time(self, partitions: Iterable[Partition], timestamp_ms: int) -> dict[Partition, int]:
        # Record n has timestamp n.
        return {at: min(max(timestamp_ms, self.spans[at][0]), self.spans[at][1]) for at in partitions}

    def committed(self, partitions: Iterable[Partition]) -> dict[Partition, int]:
        return {at: self.group[at] for at in partitions if at in self.group}


def expected_offset(rule: OffsetRule, partition: Partition, broker: Broker) -> int | None:
    """Reference implementation: the offset of one partition, or None if there is none."""
    first, end = broker.spans[partition]
    if rule.kind == "earliest":
        return first
    if rule.kind == "latest":
        return end
    if rule.kind == "timestamp":
        return min(max(rule.timestamp_ms, first), end)
    offset = dict(rule.offsets).get(partition, -3) if rule.kind == "given" else -3
    if offset == -1:
        return end
    if offset == -2:
        return first
    if offset == -3:
        offset = broker.group.get(partition, -1)
    if first <= offset <= end:
        return offset
    return {"earliest": first, "latest": end, "none": None}[rule.reset]


partitions = st.builds(Partition, st.sampled_from(["a", "b"]), st.integers(0, 3))
spans = st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda pair: (min(pair), max(pair)))
resets = st.sampled_from(["earliest", "latest", "none"])
rules = st.one_of(
    st.sampled_from([EARLIEST, LATEST]),
    st.builds(lambda at: OffsetRule("timestamp", timestamp_ms=at), st.integers(0, 12)),
    st.builds(committed, resets),
    st.builds(specific, st.dictionaries(partitions, st.integers(-3, 12)), resets),
)


@for_all(rules, st.dictionaries(partitions, spans, min_size=1), st.dictionaries(partitions, st.integers(0, 12)))
def test_resolving_partitions_together_equals_resolving_each_separately(
    rule: OffsetRule, spans: dict[Partition, tuple[int, int]], group: dict[Partition, int]
) -> None:
    broker = Broker(spans, group)
    expected = {partition: expected_offset(rule, partition, broker) for partition in spans}
    if None in expected.values():
        with pytest.raises(ConnectorError, match="reset strategy is NONE"):
            resolve(rule, spans, broker)
    else:
        assert resolve(rule, spans, broker) == expected


def test_the_error_names_some_of_the_partitions() -> None:
    broker = Broker({Partition("orders", number): (0, 1) for number in range(7)})
    with pytest.raises(ConnectorError, match="orders-0, orders-1, orders-2, orders-3, orders-4 and 2 more"):
        resolve(committed(), broker.spans, broker)
