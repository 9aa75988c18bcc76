"""The programs that `bench_queries` queries while they run: impressions per ad, by a function per record and in
columns.

A separate module, so that workers import it and functions are pickled by name. Records are those of `window_records`:
(ad, time in ms, amount).
"""

from __future__ import annotations

import time
from typing import Any

from window_records import DISORDER_MS, TIMED_TYPE

from millstream.common import Duration, WatermarkStrategy
from millstream.common.typeinfo import Types
from millstream.datastream import DataStream, KeyedProcessFunction
from millstream.datastream import aggregates as agg
from millstream.datastream.state import ValueStateDescriptor
from millstream.datastream.window import TumblingEventTimeWindows

__all__ = ["COUNTS", "HOURS", "counted", "flushed", "hourly"]

COUNTS, HOURS = "impressions-by-ad", "impressions-by-hour"
HOUR_MS = 3_600_000
_FLUSH_S = 1.0
_KEYS_PER_COMMAND = 1_000


class Counts(KeyedProcessFunction):
    """The record count of a key, in one queryable `ValueState`."""

    def open(self, runtime_context: Any) -> None:
        descriptor = ValueStateDescriptor("count", Types.LONG())
        descriptor.set_queryable(COUNTS)
        self.count = runtime_context.get_state(descriptor)

    def process_element(self, value: Any, ctx: Any) -> Any:
        self.count.update((self.count.value() or 0) + 1)
        yield value


class FlushedCounts(Counts):
    """The same, with changes written to Redis every second, for services that cannot query the job.

    Written by `MSET`, a thousand keys in a command, which is cheapest for Redis and its client.
    """

    def __init__(self, port: int) -> None:
        self._port = port

    def open(self, runtime_context: Any) -> None:
        import redis  # only here: it is no dependency of ours

        super().open(runtime_context)
        self._redis = redis.Redis(port=self._port)
        self._changed: dict[str, int] = {}
        self._flushed_s, self._seen = time.monotonic(), 0

    def process_element(self, value: Any, ctx: Any) -> Any:
        count = (self.count.value() or 0) + 1
        self.count.update(count)
        self._changed[f"ad:{value[0]}"] = count
        self._seen += 1
        if not self._seen & 1023 and time.monotonic() - self._flushed_s >= _FLUSH_S:
            self._flush()
        yield value

    def _flush(self) -> None:
        changed, self._changed = list(self._changed.items()), {}
        for first in range(0, len(changed), _KEYS_PER_COMMAND):
            self._redis.mset(dict(changed[first : first + _KEYS_PER_COMMAND]))
        self._flushed_s = time.monotonic()


def counted(stream: DataStream) -> DataStream:
    """Records counted by key, by a function per record."""
    return stream.key_by(0).process(Counts(), TIMED_TYPE)


def flushed(stream: DataStream, port: int) -> DataStream:
    """The same, flushed to the Redis on this machine's port."""
    return stream.key_by(0).process(FlushedCounts(port), TIMED_TYPE)


def hourly(stream: DataStream) -> DataStream:
    """Count and sum by key in windows of an hour, in columns; the windows can be queried until they end."""
    strategy = WatermarkStrategy.for_bounded_out_of_orderness(Duration.of_millis(DISORDER_MS))
    timed = stream.assign_timestamps_and_watermarks(strategy.with_timestamp_assigner(1))
    hours = timed.key_by(0).window(TumblingEventTimeWindows(HOUR_MS, 0)).queryable(HOURS)
    return hours.aggregate(agg.Aggregates(count=agg.count(), total=agg.sum(2)))
