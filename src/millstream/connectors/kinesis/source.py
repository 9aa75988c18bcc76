"""Kinesis streams as a source: a shard is a split, and its position is a sequence number (`shards`).

The driver lists the shards at an interval, and checks before an epoch, at most once a second per shard, whether records
are available; only a read shows how many. A task reads up to a number of records and returns the position reached.
The records between two sequence numbers never change, so an epoch can be read again within the stream's retention.

Shards that were split or merged are read to their end before their children are started: records of one
partition key stay in order. Shards present at the first listing start as the program specifies; later
ones are read from their first record.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.common.serialization import DeserializationSchema
from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.connectors.kinesis.clients import AwsAddress, call_with_retries, client_of
from millstream.connectors.kinesis.shards import Position, Shard, epoch_ms, ms_of
from millstream.connectors.messages.codecs import Messages, decoder_of
from millstream.connectors.messages.dead_letters import dead_letters
from millstream.errors import ConnectorError
from millstream.records.batch import Batch
from millstream.storage.store import Store

__all__ = ["LATEST", "TRIM_HORIZON", "KinesisSource", "StartRule"]

_PEEK_S = 1.0
_PROBE_INTERVAL_MS = 3_600_000
"""A quiet shard is read at this interval: its position then proves that no record after it was missed."""
_HOUR_MS = 3_600_000
_READ_S_MAX = 5.0
"""A shard delivers 2 MB per second, so several epochs read a range of many records."""


@dataclass(frozen=True)
class StartRule:
    """Where to start: `kind` is TRIM_HORIZON, LATEST or AT_TIMESTAMP (then at `at_ms`)."""

    kind: str
    at_ms: int = 0


LATEST, TRIM_HORIZON = StartRule("LATEST"), StartRule("TRIM_HORIZON")


@dataclass
class _Peek:
    """The result of the last check of a shard: the position, the time, and whether there are records after it."""

    position: Position
    at_s: float
    has_more: bool


class KinesisSource(Source):
    """The records of `streams`, decoded by `schema`. Record timestamps are arrival times.

    It has many attributes: the program's settings, and the driver's view of the shards.
    """

    carries_timestamps = True
    keeps_starts = True

    def __init__(
        self,
        address: AwsAddress,
        streams: Sequence[str],
        schema: DeserializationSchema,
        *,
        start: StartRule = LATEST,
        discovery_interval_ms: int = 10_000,
        records_max: int = 10_000,
    ) -> None:
        self._address, self._streams, self._schema, self._start = address, tuple(streams), schema, start
        self._discovery_interval_ms, self._records_max = discovery_interval_ms, records_max
        self.type_info = decoder_of(schema).type_info
        self.dead_letter_tag = schema.dead_letter_tag
        self._reset_view()

    def _reset_view(self) -> None:
        """Initialise the driver's view of the streams."""
        self._splits: list[Split] = []
        self._starts: dict[str, Position] = {}
        self._positions: Mapping[str, Position] = {}
        self._unfinished: set[str] = set()
        self._peeks: dict[str, _Peek] = {}
        self._listed_ms: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        # Tasks read assigned ranges: the driver's view stays there.
        return self.__dict__ | {"_splits": [], "_starts": {}, "_positions": {}, "_unfinished": set(), "_peeks": {}}

    def opened(self, store: Store, session: Any) -> Source:
        source = copy.copy(self)
        source._reset_view()
        return source

    # --- shards -----------------------------------------------------------------------------------------------

    def splits(self, context: SourceContext) -> Sequence[Split]:
        if self._listed_ms is None or not 0 <= context.now_ms - self._listed_ms < self._discovery_interval_ms:
            is_first = self._listed_ms is None and not self._positions
            self._splits = [split for stream in self._streams for split in self._splits_of(stream, is_first)]
            self._listed_ms = context.now_ms
        return self._splits

    def _splits_of(self, stream: str, is_first: bool) -> list[Split]:
        """The shards of a stream, parents before their children."""
        client, subject = client_of(self._address, "kinesis"), f"Kinesis stream {stream!r} at {self._address.place}"
        summary = call_with_retries(subject, client.describe_stream_summary, StreamName=stream)
        retention_ms = summary["StreamDescriptionSummary"]["RetentionPeriodHours"] * _HOUR_MS
        shards: dict[str, dict[str, Any]] = {}
        request: dict[str, Any] = {"StreamName": stream}
        while True:
            page = call_with_retries(subject, client.list_shards, **request)
            shards |= {shard["ShardId"]: shard for shard in page["Shards"]}
            if not page.get("NextToken"):
                break
            request = {"NextToken": page["NextToken"]}
        parents = {name: [parent for parent in _parents(shard) if parent in shards] for name, shard in shards.items()}
        splits = []
        for name in sorted(shards, key=lambda name: (_depth(name, parents), name)):
            shard = Shard(self._address, stream, name)
            info = {
                "stream": stream,
                "shard": name,
                "parents": [_split_name(stream, parent) for parent in parents[name]],
                "is_closed": "EndingSequenceNumber" in shards[name]["SequenceNumberRange"],
                "retention_ms": retention_ms,
            }
            splits.append(Split(_split_name(stream, name), self._start_of(shard, is_first), info))
        return splits

    def _start_of(self, shard: Shard, is_first: bool) -> Position:
        """The start of a shard, determined once: the manifest stores it."""
        name = _split_name(shard.stream, shard.name)
        if name in self._positions:
            return self._positions[name]
        if name not in self._starts:
            rule = self._start if is_first else TRIM_HORIZON
            self._starts[name] = _resolved(shard, rule, is_first)
        return self._starts[name]

    def committed(self, positions: dict[str, Offset]) -> None:
        self._positions = dict(positions)
        for name, position in positions.items():
            (self._unfinished.discard if position.get("ended") else self._unfinished.add)(name)

    # --- ranges -----------------------------------------------------------------------------------------------

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        # Only unfinished shards are queried, parents before their children.
        self._unfinished.add(split.name)
        if any(parent in self._unfinished for parent in split.info["parents"]):
            return offset
        if offset.get("more") or self._has_more(split, offset):
            return {**offset, "records": max(1, budget)}
        # No records, but a read may show that the shard has ended, or that no record was missed.
        if split.info["is_closed"] or epoch_ms() - offset["ms"] >= _PROBE_INTERVAL_MS:
            return {**offset, "records": 1}
        return offset

    def _has_more(self, split: Split, offset: Position) -> bool:
        peek, now_s = self._peeks.get(split.name), time.monotonic()
        if peek is None or now_s - peek.at_s >= _PEEK_S:
            peek = _Peek(offset, now_s, self._shard(split).has_more(offset))
            self._peeks[split.name] = peek
        elif peek.position != offset:
            return False  # the shard was read since; the next check decides
        return peek.has_more

    def finished(self, split: Split, offset: Offset) -> bool:
        return bool(offset.get("ended", False))

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        return (yield from self._read(split, start, stop, None))

    def read_within(self, split: Split, start: Offset, stop: Offset, bytes_max: int) -> Read:
        return (yield from self._read(split, start, stop, bytes_max))

    def _read(self, split: Split, start: Position, stop: Position, bytes_max: int | None) -> Read:
        shard = self._shard(split)
        if "records" in stop and "or_oldest" in start:
            start = shard.retained_or_oldest(start, split.info["retention_ms"])
        else:
            shard.check_retained(start, split.info["retention_ms"])
        if "records" in stop:
            return (yield from self._read_on(split, start, stop["records"], bytes_max))
        if "after" in stop and stop["after"] != start.get("after"):
            yield from self._read_again(split, start, int(stop["after"]), shard.missing_record_error(stop))
        return stop

    def _read_on(self, split: Split, start: Position, count: int, bytes_max: int | None) -> Read:
        """At most `count` available records; returns the position after them."""
        position, size, has_read = {key: start[key] for key in start if key != "more"}, 0, False
        requested_ms, until_s = epoch_ms(), time.monotonic() + _READ_S_MAX
        for response in self._shard(split).responses(start, min(count, self._records_max)):
            records = response.records[:count]
            count -= len(records)
            is_all = len(records) == len(response.records)
            if records:
                yield from self._items(split, records)
                size += sum(len(record["Data"]) for record in records)
                position, has_read = {"after": records[-1]["SequenceNumber"], "ms": ms_of(records[-1])}, True
            elif response.is_at_tip:
                position = {**position, "ms": max(requested_ms, position["ms"])}
            # A closed shard receives no more records. If no record follows, it has ended.
            if is_all and (response.is_at_end or (split.info["is_closed"] and response.is_at_tip and not records)):
                return {**position, "ended": True}
            is_enough = count <= 0 or (bytes_max is not None and size >= bytes_max) or time.monotonic() >= until_s
            if is_enough and has_read:
                return position if is_all and response.is_at_tip else {**position, "more": True}
            if response.is_at_tip and not split.info["is_closed"]:
                return position
            requested_ms = epoch_ms()
        return position

    def _read_again(self, split: Split, start: Position, through: int, missing_record_error: ConnectorError) -> Read:
        """The records up to a position that were read before."""
        for response in self._shard(split).responses(start, self._records_max):
            records = [record for record in response.records if int(record["SequenceNumber"]) <= through]
            if records:
                yield from self._items(split, records)
            if records and int(records[-1]["SequenceNumber"]) == through:
                return None
            if len(records) < len(response.records) or (not response.records and response.is_at_tip):
                break
        raise missing_record_error

    def _items(self, split: Split, records: list[dict[str, Any]]) -> Read:
        place = f"Kinesis stream {split.info['stream']!r}, shard {split.info['shard']}, sequence number "
        messages = Messages(
            pa.array([record["Data"] for record in records], pa.binary()),
            lambda index: place + records[index]["SequenceNumber"],
            pa.array([record["PartitionKey"].encode("utf-8", "surrogatepass") for record in records], pa.binary()),
        )
        decoder = decoder_of(self._schema)
        decoded = decoder.decode(messages)
        letters = dead_letters(decoded, messages, self.dead_letter_tag)
        if letters is not None:
            yield letters
        batch = decoded.batch
        if decoder.type_info is None and self.type_info is not None:
            batch = Batch.of_values(batch.values(), self.type_info)
        stamps = np.fromiter(map(ms_of, records), np.int64, len(records))
        batch.timestamps = stamps if decoded.origins is None else stamps[decoded.origins]
        if len(batch):
            yield batch
        return None

    def _shard(self, split: Split) -> Shard:
        return Shard(self._address, split.info["stream"], split.info["shard"])

    def describe(self) -> str:
        plural = "s" if len(self._streams) > 1 else ""
        return f"Kinesis stream{plural} {', '.join(self._streams)} at {self._address.place} from {self._start.kind}"


def _split_name(stream: str, shard: str) -> str:
    return f"{stream}-{shard}"


def _parents(shard: dict[str, Any]) -> list[str]:
    return [shard[key] for key in ("ParentShardId", "AdjacentParentShardId") if shard.get(key)]


def _depth(name: str, parents: Mapping[str, list[str]]) -> int:
    """The number of ancestor generations of a shard."""
    depth, generation = 0, {name}
    while generation := {parent for each in generation for parent in parents[each]}:
        depth += 1
    return depth


def _resolved(shard: Shard, rule: StartRule, is_first: bool) -> Position:
    """The position that a rule currently denotes. Its `ms` is old enough to cause an early read, which then stores the
    position."""
    now_ms = epoch_ms()
    soon_ms = now_ms - _PROBE_INTERVAL_MS
    if rule.kind == "LATEST":
        return {"at": now_ms, "ms": soon_ms}
    at: Any = "TRIM_HORIZON" if rule.kind == "TRIM_HORIZON" else rule.at_ms
    records = shard.first({"at": at}).records
    if records:
        position = {"from": records[0]["SequenceNumber"], "ms": ms_of(records[0])}
        return {**position, "or_oldest": True} if is_first else position
    return {"at": at, "ms": soon_ms}
