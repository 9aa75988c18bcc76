"""A cached stream is computed by the first job that reads it, and read from the cache by later jobs of its
environment.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from waits.refusals import Refused

from millstream.common import Row, Time, Types, WatermarkStrategy
from millstream.common.configuration import Configuration
from millstream.common.typeinfo import TypeInformation
from millstream.connectors.contracts import CommitId
from millstream.datastream import DataStream, OutputTag, RuntimeExecutionMode, StreamExecutionEnvironment
from millstream.datastream.data_stream import CachedDataStream
from millstream.datastream.functions import MapFunction, ProcessFunction
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.errors import JobFailedError, ProgramError
from millstream.runtime.exchange.cached_blocks import CacheSink, cached_source
from millstream.storage.memory import MemoryStore
from millstream.testing import CRASH, EPOCH, Collect, Script, run

NUMBERS = list(range(40))
LOG: list[int] = []  # calls counted in this process, in which the tasks run


class CountedMap(MapFunction):
    def map(self, value: int) -> int:
        LOG.append(value)
        return value * 10


@pytest.fixture(autouse=True)
def cleared_calls() -> None:
    LOG.clear()


@pytest.fixture
def env() -> Iterator[StreamExecutionEnvironment]:
    made = StreamExecutionEnvironment()
    yield made
    made.close()


def counted_stream(env: StreamExecutionEnvironment, type_info: TypeInformation | None = None) -> DataStream:
    script = Script(NUMBERS[:15], [*NUMBERS[15:30], EPOCH, *NUMBERS[30:]], type_info=Types.LONG())
    return env.add_source(script).map(CountedMap(), type_info)


def collect_sorted(env: StreamExecutionEnvironment, stream: DataStream, **settings: Any) -> list[Any]:
    out = Collect()
    stream.sink_to(out)
    return sorted(run(env, **settings)[out])


@pytest.mark.slow
@pytest.mark.parametrize("type_info", [Types.LONG(), None], ids=["typed", "untyped"])
@pytest.mark.parametrize("parallelism", [1, 3])
@pytest.mark.parametrize("epoch_records", [None, 4], ids=["one epoch", "many epochs"])
def test_later_jobs_read_what_the_first_computed(
    env: StreamExecutionEnvironment, type_info: Any, parallelism: int, epoch_records: int | None
) -> None:
    cached = counted_stream(env, type_info).cache()
    settings = {"parallelism": parallelism, "epoch_records": epoch_records}
    assert collect_sorted(env, cached.map(lambda n: n + 1), **settings) == [n * 10 + 1 for n in NUMBERS]
    assert sorted(LOG) == NUMBERS
    assert collect_sorted(env, cached.map(lambda n: -n), **settings) == sorted(-n * 10 for n in NUMBERS)
    assert collect_sorted(env, cached, parallelism=2) == [n * 10 for n in NUMBERS]
    assert sorted(LOG) == NUMBERS
    assert cached.get_type() == (type_info or Types.PICKLED_BYTE_ARRAY())


def test_the_plan_of_a_later_job_begins_with_the_cache(env: StreamExecutionEnvironment) -> None:
    cached = counted_stream(env, Types.LONG()).cache()
    cached.filter(lambda n: n > 5).print()
    first = env.explain()
    assert "writes the records of 'Cached Map' for later jobs, exactly-once" in first and "Custom Source" in first
    run(env)
    cached.filter(lambda n: n < 5).print()
    later = env.explain()
    assert "reads the records of 'Cached Map'" in later and "Custom Source" not in later and "later jobs" not in later


def test_a_branch_without_the_cache_is_computed(env: StreamExecutionEnvironment) -> None:
    stream = counted_stream(env)
    cached = stream.cache()
    collect_sorted(env, cached)
    assert collect_sorted(env, stream.union(cached)) == sorted([n * 10 for n in NUMBERS] * 2)
    assert len(LOG) == 2 * len(NUMBERS)


def test_an_invalidated_cache_is_computed_and_stored_again(env: StreamExecutionEnvironment) -> None:
    cached = counted_stream(env).cache()
    for computed in (1, 1, 2, 2):
        if computed != len(LOG) // len(NUMBERS) and LOG:
            cached.invalidate()
        assert collect_sorted(env, cached) == [n * 10 for n in NUMBERS]
        assert len(LOG) == computed * len(NUMBERS)


class Stamped(ProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Any:
        yield value, ctx.timestamp()


@pytest.mark.parametrize("type_info", [Types.LONG(), None], ids=["typed", "untyped"])
def test_cached_records_retain_their_timestamps_for_windows(
    env: StreamExecutionEnvironment, type_info: TypeInformation | None
) -> None:
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value // 10)
    cached = counted_stream(env, type_info).assign_timestamps_and_watermarks(strategy).cache()
    windows = cached.key_by(lambda n: 0, Types.LONG()).window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
    sums = windows.reduce(lambda a, b: a + b)
    expected = [sum(n * 10 for n in range(start, start + 10)) for start in range(0, 40, 10)]
    assert collect_sorted(env, sums) == collect_sorted(env, sums.map(lambda n: n)) == expected
    assert collect_sorted(env, cached.process(Stamped())) == [(n * 10, n) for n in NUMBERS]
    assert len(LOG) == len(NUMBERS)


def test_a_cache_preserves_rows_and_their_order_per_subtask(env: StreamExecutionEnvironment) -> None:
    pair = Types.ROW_NAMED(["n", "text"], [Types.LONG(), Types.STRING()])
    rows = [Row(n=n, text=str(n)) for n in range(1_000)]
    cached = env.from_collection(rows, pair).cache()
    out = Collect()
    for _ in range(2):
        cached.sink_to(out)
        assert run(env, epoch_records=300)[out] == rows


def test_side_outputs_unions_and_empty_streams_can_be_cached(env: StreamExecutionEnvironment) -> None:
    odd = OutputTag("odd", Types.LONG())

    class Split(ProcessFunction):
        def process_element(self, value: int, ctx: Any) -> Any:
            yield (odd, value) if value % 2 else value

    numbers = env.from_collection(range(6), Types.LONG())
    side = numbers.process(Split(), Types.LONG()).get_side_output(odd).cache()
    both = numbers.union(numbers.rebalance()).cache()
    none = numbers.filter(lambda n: n > 100).cache()
    for _ in range(2):
        assert collect_sorted(env, side) == [1, 3, 5]
        assert collect_sorted(env, both, parallelism=2) == sorted([*range(6), *range(6)])
        assert collect_sorted(env, none) == []


def test_batch_jobs_share_caches_too(env: StreamExecutionEnvironment) -> None:
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    cached = counted_stream(env).cache()
    for _ in range(2):
        assert collect_sorted(env, cached, parallelism=2) == [n * 10 for n in NUMBERS]
    assert len(LOG) == len(NUMBERS)


def test_after_a_crash_the_cache_has_every_record_once(env: StreamExecutionEnvironment) -> None:
    cached = env.add_source(Script([1, 2, EPOCH, 3, CRASH, 4, EPOCH, 5])).map(lambda n: n * 2).cache()
    for _ in range(2):
        assert collect_sorted(env, cached, parallelism=2) == [2, 4, 6, 8, 10]


class FailsAtFirst(MapFunction):
    def map(self, value: int) -> int:
        LOG.append(value)
        if len(LOG) == 3:
            raise ValueError("the first time")
        return value


def test_a_job_that_failed_leaves_no_cache(env: StreamExecutionEnvironment) -> None:
    cached = env.add_source(Script([1, EPOCH, 2, EPOCH, 3, EPOCH, 4])).map(FailsAtFirst()).cache()
    with pytest.raises(JobFailedError, match="the first time"):
        collect_sorted(env, cached)
    assert collect_sorted(env, cached) == [1, 2, 3, 4]
    assert collect_sorted(env, cached) == [1, 2, 3, 4]
    assert LOG == [1, 2, 3, 1, 2, 3, 4]


def resumable(env: StreamExecutionEnvironment, out: Collect) -> CachedDataStream:
    cached = env.add_source(Script([1, EPOCH, 2, EPOCH, 3], type_info=Types.LONG())).uid("in").cache()
    cached.sink_to(out).uid("out")
    return cached


def test_neither_a_stopped_job_nor_its_continuation_leaves_a_cache() -> None:
    out = Collect()
    env = StreamExecutionEnvironment()
    cached = resumable(env, out)
    assert run(env, store="cached-and-stopped", epochs=1)[out] == [1]
    cached.map(lambda n: -n).sink_to(out)
    assert "Sink: Cache" in env.explain()
    assert run(env)[out] == [-1, -2, -3]
    other = StreamExecutionEnvironment()  # as in a process that resumes the job
    resumed = resumable(other, out)
    assert run(other, store="cached-and-stopped")[out] == [2, 3]
    assert collect_sorted(other, resumed) == [1, 2, 3]
    env.close()
    other.close()


def test_an_epoch_staged_by_another_driver_invalidates_the_cache(tmp_path: Path) -> None:
    sink, store = CacheSink(str(tmp_path), "numbers"), MemoryStore("unused")
    sink.commit(CommitId("a-job", "cache", 1), sink.plan_commit([], None, 0, final=True).publish, store)
    assert cached_source(str(tmp_path), "numbers", None) is not None
    staged = {"file": "blocks/1-0-abc-0", "bytes": 1, "crc32": 0, "records": 1, "subtask": 0}
    sink.commit(CommitId("a-job", "cache", 1), sink.plan_commit([staged], None, 0, final=True).publish, store)
    assert cached_source(str(tmp_path), "numbers", None) is None


def test_closing_the_environment_removes_its_caches(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment(
        configuration=Configuration().set_string("millstream.cache.directory", str(tmp_path))
    )
    cached = counted_stream(env).cache()
    collect_sorted(env, cached)
    assert any(files for _, _, files in os.walk(tmp_path))
    env.close()
    assert not any(files for _, _, files in os.walk(tmp_path))
    assert collect_sorted(env, cached) == [n * 10 for n in NUMBERS]
    assert len(LOG) == 2 * len(NUMBERS)
    env.close()


def test_a_damaged_cache_is_not_read(tmp_path: Path) -> None:
    env = StreamExecutionEnvironment(
        configuration=Configuration().set_string("millstream.cache.directory", str(tmp_path))
    )
    cached = counted_stream(env).cache()
    collect_sorted(env, cached)
    block = next(path for path in tmp_path.rglob("blocks/*"))
    block.write_bytes(block.read_bytes()[:-3])
    with pytest.raises(JobFailedError, match=r"was cut or changed after it was written\. Call invalidate"):
        collect_sorted(env, cached)
    cached.invalidate()
    assert collect_sorted(env, cached) == [n * 10 for n in NUMBERS]
    env.close()


# --- refusals -------------------------------------------------------------------------------------------------------


def test_an_unbounded_stream_is_rejected_at_the_line_of_its_cache(env: StreamExecutionEnvironment) -> None:
    class Endless(Script):
        bounded = False

    stream = env.add_source(Endless([1]))
    stream.cache().print()
    with pytest.raises(ProgramError, match=r"cache: 'Source: Custom Source'.*never ends.*bounded input.*test_cached"):
        env.explain()


def test_a_cached_stream_has_no_operator_settings(env: StreamExecutionEnvironment) -> None:
    cached = counted_stream(env).cache()
    assert isinstance(cached, CachedDataStream) and cached.cache() is cached
    with Refused("name: a cached stream is not an operator", "before cache()"):
        cached.name("x")
    with Refused("set_parallelism", "not an operator"):
        cached.set_parallelism(2)
    with Refused("uid", "not an operator"):
        cached.uid("x")
    with Refused("a keyed stream cannot be cached"):
        counted_stream(env).key_by(lambda n: n).cache()
