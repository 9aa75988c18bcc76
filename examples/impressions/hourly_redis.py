"""The same hours without queryable state: for readers of open hours, a database runs in addition to the job.

    millstream run examples/impressions/hourly_redis.py --store jobs/hourly-redis -- --output jobs/hourly-redis-output
    redis-cli HGET impressions:1767258000000 7

This is the alternative to hourly.py, written as well as we can. The job counts a second time, per ad and hour, and once
a second writes the count of every changed ad to Redis: one hash for each hour, thousands of ads in one HSET, sent in a
pipeline. Counts are written as absolute values, so that a repeated second does no harm.

Its cost: a second copy of the counts, a million of them an hour over the network, in keyed state of our own and in the
memory of a server that must be operated. What it lacks: a consistent snapshot of all counts, earlier epochs, and, after
a crash, a guarantee that no count decreases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

import numpy as np
import pyarrow as pa
from hourly import HOUR, NAME, AdServer, arguments, hours_in, hours_of, impressions, summed_up

from millstream.common import Configuration, Row, Types
from millstream.connectors.contracts import CommitId, Json, Sink, SinkWriter, WriterContext
from millstream.datastream import DataStream, StreamExecutionEnvironment
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor
from millstream.errors import PlatformError
from millstream.records.batch import Batch
from millstream.storage.store import Store

# An ad and an hour are one key, a number: the hour's in the upper half, the ad's in the lower one.
PLACE_BITS = 32
COUNTED = Types.ROW_NAMED(["place", "impressions"], [Types.LONG(), Types.LONG()])
ADS_PER_COMMAND = 5_000
KEPT_S = 3_600


def counted(seen: pa.RecordBatch) -> pa.RecordBatch:
    """The impressions of a batch, counted by ad and hour, so that a hot ad is one record and not a thousand."""
    hours = seen.column("at_ms").to_numpy() // HOUR.to_millis()
    places, counts = np.unique(hours << PLACE_BITS | seen.column("ad").to_numpy(), return_counts=True)
    return pa.RecordBatch.from_arrays([pa.array(places), pa.array(counts)], COUNTED.get_field_names())


class SoFar(KeyedProcessFunction):
    """The count of an ad in an open hour, emitted whenever it has changed."""

    def open(self, runtime_context: Any) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count", Types.LONG()))

    def process_element(self, more: Row, ctx: Any) -> Iterator[Row]:
        place, impressions = more
        before = self.count.value()
        if before is None:
            timers, closes_ms = ctx.timer_service(), ((place >> PLACE_BITS) + 1) * HOUR.to_millis() - 1
            if closes_ms <= timers.current_watermark():
                return  # late, as for the window: the count has expired, and must not restart
            timers.register_event_time_timer(closes_ms)
        total = (before or 0) + impressions
        self.count.update(total)
        yield Row(place, total)

    def on_timer(self, timestamp: int, ctx: Any) -> Iterator[Row]:
        self.count.clear()
        yield from ()


class RedisHours(Sink):
    """Writes the newest count of every changed ad at the end of an epoch: at least once."""

    guarantee = "at-least-once"

    def __init__(self, host: str, port: int) -> None:
        if find_spec("redis") is None:
            raise PlatformError("the client of Redis is not installed. Install it: pip install redis")
        self.host, self.port = host, port
        self._client: Any = None  # of a worker's copy, which opens it once and reuses it

    def writer(self, context: WriterContext) -> SinkWriter:
        if self._client is None:
            import redis

            self._client = redis.Redis(self.host, self.port)
        return _RedisWriter(self._client)

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        """Nothing is left to publish."""

    def describe(self) -> str:
        return f"Redis at {self.host}:{self.port} (at-least-once)"


class _RedisWriter(SinkWriter):
    def __init__(self, redis: Any) -> None:
        self._redis = redis
        self._changed: dict[int, int] = {}

    def write(self, batch: Batch) -> None:
        places, counts = (column.to_pylist() for column in batch.columns().columns)
        self._changed.update(zip(places, counts, strict=True))  # of several in a second, the last

    def stage(self) -> Sequence[Json]:
        hours: dict[int, list[int]] = {}
        for place, total in self._changed.items():
            hours.setdefault(place >> PLACE_BITS, []).extend((place & 2**PLACE_BITS - 1, total))
        with self._redis.pipeline(transaction=False) as pipeline:
            for hour, items in hours.items():
                name = f"{NAME}:{hour * HOUR.to_millis()}"
                for first in range(0, len(items), 2 * ADS_PER_COMMAND):
                    pipeline.hset(name, items=items[first : first + 2 * ADS_PER_COMMAND])
                pipeline.expire(name, KEPT_S)
            pipeline.execute()
        return ()


def program(seen: DataStream, output: str, database: Sink) -> None:
    summed_up(hours_of(seen)).sink_to(hours_in(output)).name("hours")
    changes = seen.map_batches(counted, COUNTED).name("count").key_by("place").process(SoFar(), COUNTED)
    changes.name("so far").uid("so-far").sink_to(database).name("redis")


def main(output: str, ads: int, rate: float, records: int | None, redis_host: str, redis_port: int) -> None:
    chosen = Configuration().set_string("millstream.epoch.min-interval", "1 s")
    env = StreamExecutionEnvironment.get_execution_environment(chosen)
    seen = impressions(env, AdServer(ads, rate), records, paced=True)
    program(seen, output, RedisHours(redis_host, redis_port))
    env.execute("hourly-redis")


if __name__ == "__main__":
    options = arguments(__doc__)
    options.add_argument("--redis-host", default="127.0.0.1", help="(default %(default)s)")
    options.add_argument("--redis-port", type=int, default=6379, help="(default %(default)s)")
    main(**vars(options.parse_args()))
