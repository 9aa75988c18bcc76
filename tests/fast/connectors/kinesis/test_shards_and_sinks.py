"""What moto cannot show: shards that are split and merged, retention, iterators that expire, throttling, wrong keys."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from connectors.imitated_kinesis import ImitatedKinesis, aws_error
from hypothesis import given
from hypothesis import strategies as st

from millstream.common import Types
from millstream.common.serialization import SimpleStringSchema
from millstream.connectors.contracts import CommitId, SourceContext, Split, WriterContext
from millstream.connectors.kinesis import clients, shards, sink, source
from millstream.connectors.kinesis.clients import AwsAddress
from millstream.connectors.kinesis.settings import address_of, source_settings_of
from millstream.connectors.kinesis.sink import STREAMS, AwsSink, SendLimits, _batches, _size
from millstream.connectors.kinesis.source import LATEST, TRIM_HORIZON, KinesisSource, StartRule
from millstream.datastream import OutputTag
from millstream.datastream.connectors.kinesis import FlinkKinesisConsumer
from millstream.datastream.formats.json import JsonRowDeserializationSchema
from millstream.errors import ConnectorAwayError, ConnectorError, ProgramError
from millstream.records.batch import Batch
from millstream.storage.memory import MemoryStore
from millstream.testing import Collect, run

HOUR_MS = 3_600_000
FIRST, SECOND, LEFT, RIGHT = (f"shardId-{n:012d}" for n in range(4))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> ImitatedKinesis:
    return new_world(monkeypatch)


def new_world(monkeypatch: pytest.MonkeyPatch) -> ImitatedKinesis:
    """The stream that every client reaches, and the only clock there is."""
    world = ImitatedKinesis(2)
    for module in (shards, source, sink):
        monkeypatch.setattr(module, "client_of", lambda address, service: world)
    for module in (shards, source):
        monkeypatch.setattr(module, "epoch_ms", lambda: world.now_ms)
    for module in (clients, source, sink):
        monkeypatch.setattr(module, "time", _Ticks())  # theirs alone: the engine has its own
    monkeypatch.setattr(source, "_READ_S_MAX", 1e9)
    return world


class _Ticks:
    """A clock that is a second on whenever it is looked at, so that nothing waits."""

    def __init__(self) -> None:
        self._now_s = 0.0

    def monotonic(self) -> float:
        self._now_s += 1.0
        return self._now_s

    def sleep(self, seconds: float) -> None:
        self._now_s += seconds


class Job:
    """A driver and its tasks, without the rest of the engine: it plans, reads and commits, shard by shard."""

    def __init__(self, world: ImitatedKinesis, start: StartRule = TRIM_HORIZON, positions: Any = None) -> None:
        self.world, self.found = world, []  # type: ignore[var-annotated]
        self.source = KinesisSource(AwsAddress("r"), ["s"], SimpleStringSchema(), start=start, discovery_interval_ms=1)
        self.positions: dict[str, Any] = dict(positions or {})
        self.ranges: list[tuple[Any, Any, Any, list[str]]] = []
        if positions:
            self.source.committed(self.positions)
        self._rounds = 0
        self.is_idle = False

    def epoch(self, budget: int = 1000) -> list[str]:
        self._rounds += 1
        context = SourceContext(self._rounds, 0, 1)
        splits = self.source.splits(context)
        live = [(split, self.positions.get(split.name, split.start)) for split in splits]
        live = [(split, at) for split, at in live if not self.source.finished(split, at)]
        planned = [(split, at, self.source.reach(split, at, budget, context)) for split, at in live]
        self.is_idle = all(stop == at for _, at, stop in planned)
        read: list[str] = []
        for split, at, stop in planned:
            values, end = (self.read(split, at, stop)) if stop != at else ([], at)
            self.positions[split.name] = end
            if stop != at:
                self.ranges.append((split, at, end, values))
            read += values
        self.source.committed(self.positions)
        self.found += read
        return read

    def read(self, split: Any, start: Any, stop: Any) -> tuple[list[str], Any]:
        items, values = self.source.read(split, start, stop), []
        while True:
            try:
                values += next(items).values()
            except StopIteration as end:
                return values, end.value


def test_children_are_read_after_their_parents_and_nothing_is_lost(world: ImitatedKinesis) -> None:
    world.add(FIRST, "1", "2", "3")
    world.reshard([FIRST], [LEFT, RIGHT])
    world.add(LEFT, "4")
    world.add(RIGHT, "5")
    job = Job(world)
    assert job.epoch(budget=2) == ["1", "2"]
    assert job.epoch() == ["3"]
    assert sorted(job.epoch()) == ["4", "5"]


def test_a_merged_shard_waits_for_both_of_its_parents_also_after_a_restart(world: ImitatedKinesis) -> None:
    world.add(FIRST, "1", "2")
    world.add(SECOND, "a")
    world.reshard([FIRST, SECOND], [LEFT])
    world.add(LEFT, "z")
    job = Job(world)
    assert job.epoch(budget=1) == ["1", "a"]
    again = Job(world, positions=job.positions)
    assert again.epoch() == ["2"]
    assert again.epoch() == ["z"]


def test_a_parent_that_the_manifest_no_longer_lists_is_not_waited_for(world: ImitatedKinesis) -> None:
    """Finished splits are filed away after a while: the engine asks about them no more."""
    world.reshard([FIRST], [LEFT])
    world.add(LEFT, "z")
    driver = KinesisSource(AwsAddress("r"), ["s"], SimpleStringSchema(), start=TRIM_HORIZON)
    child = driver.splits(SourceContext(1, 0, 1))[-1]
    assert driver.reach(child, child.start, 10, SourceContext(1, 0, 1)) != child.start


def test_what_appears_later_is_read_from_its_beginning_although_the_job_began_at_latest(world: ImitatedKinesis) -> None:
    world.add(FIRST, "old")
    world.now_ms += 1000
    job = Job(world, LATEST)
    assert job.epoch() == []
    world.now_ms += 1000
    world.add(FIRST, "1")
    world.reshard([FIRST], [LEFT])
    world.add(LEFT, "2")
    world.now_ms += 1000
    assert [job.epoch() for _ in range(3)][:2] == [["1"], ["2"]]


@given(st.data())
def test_ranges_read_again_yield_the_same_records(data: st.DataObject) -> None:
    """Adds, reshardings, epochs of any size: all is read once, in order per shard, and again when a range is."""
    with pytest.MonkeyPatch.context() as patch:
        world = new_world(patch)
        job, names, added = Job(world), [FIRST, SECOND], 0
        for act in data.draw(st.lists(st.sampled_from(["add", "split", "epoch", "blank"]), max_size=12)):
            name = data.draw(st.sampled_from(names))
            if act == "add":
                world.add(name, *(str(added + n) for n in range(3)))
                added += 3
            elif act == "split":
                children = [f"shardId-{len(world.shards) + n:012d}" for n in range(2)]
                world.reshard([name], children)
                names = [each for each in names if each != name] + children
            elif act == "blank":
                world.blanks = 2
            else:
                job.epoch(budget=data.draw(st.integers(1, 4)))
        for _ in range(60):
            job.epoch(budget=100)
        assert job.is_idle  # nothing is left, and nothing is looked for without end
        assert sorted(job.found, key=int) == [str(n) for n in range(added)]
        for shard in world.shards.values():
            inside = [record["Data"].decode() for record in shard.records]
            assert [value for value in job.found if value in inside] == inside
        for split, start, end, values in job.ranges:
            assert job.read(split, start, end) == (values, end)


def test_a_shard_has_not_ended_while_a_record_of_its_last_answer_is_left(world: ImitatedKinesis) -> None:
    world.add(FIRST, *map(str, range(4)))
    world.reshard([FIRST], [LEFT])
    job = Job(world)
    job.source = KinesisSource(AwsAddress("r"), ["s"], SimpleStringSchema(), start=TRIM_HORIZON, records_max=2)
    assert [job.epoch(budget=3), job.epoch(budget=3)] == [["0", "1", "2"], ["3"]]


def test_a_range_that_takes_too_long_is_left_to_the_next_epoch(
    world: ImitatedKinesis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_READ_S_MAX", 0.0)
    world.add(FIRST, *map(str, range(6)))
    small = KinesisSource(AwsAddress("r"), ["s"], SimpleStringSchema(), start=TRIM_HORIZON, records_max=2)
    split, _ = small.splits(SourceContext(1, 0, 1))
    world.blanks = 3
    batches = list(small.read(split, split.start, {**split.start, "records": 6}))
    assert [batch.values() for batch in batches] == [["0", "1"]]


def test_a_job_on_the_engine_goes_on_where_it_was_through_a_split(world: ImitatedKinesis, unique_name: str) -> None:
    given = {"aws.region": "r", "flink.stream.initpos": "TRIM_HORIZON", "flink.shard.discovery.intervalmillis": "1"}

    def values(epochs: int, epoch_records: int) -> list[str]:
        out = Collect()
        consumer = FlinkKinesisConsumer("s", SimpleStringSchema(), given)
        build = lambda env: env.add_source(consumer).uid("in").sink_to(out)  # noqa: E731
        found: list[str] = run(build, epochs=epochs, epoch_records=epoch_records, store=unique_name)[out]
        return found

    world.add(FIRST, "1", "2", "3")
    assert values(1, 2) in (["1"], ["1", "2"])
    world.reshard([FIRST], [LEFT, RIGHT])
    world.add(LEFT, "4")
    world.add(RIGHT, "5")
    before = ["1", "2", "3"]
    found = values(4, 100)
    assert found[:-2] in (before[1:], before[2:]) and sorted(found[-2:]) == ["4", "5"]


# --- retention -----------------------------------------------------------------------------------------------------


def test_a_job_that_was_stopped_for_longer_than_the_retention_fails(world: ImitatedKinesis) -> None:
    world.add(FIRST, "1")
    job = Job(world)
    assert job.epoch() == ["1"]
    world.now_ms += HOUR_MS
    world.add(FIRST, "lost")
    world.now_ms += 25 * HOUR_MS
    world.add(FIRST, "2")
    with pytest.raises(ConnectorError, match=r"shard shardId-000000000000: .* may have expired unread.*another uid"):
        Job(world, positions=job.positions).epoch()


def test_a_quiet_shard_that_is_probed_loses_nothing(world: ImitatedKinesis) -> None:
    world.add(FIRST, "1")
    job = Job(world)
    job.epoch()
    for _ in range(30):  # more than the retention, and every record of the stream goes
        world.now_ms += HOUR_MS
        assert job.epoch() == []
    world.add(FIRST, "2")
    assert Job(world, positions=job.positions).epoch() == ["2"]


def test_the_oldest_record_may_go_before_it_is_first_read(world: ImitatedKinesis) -> None:
    world.add(FIRST, "going")
    world.now_ms += 24 * HOUR_MS
    world.add(FIRST, "1")
    job = Job(world)
    job.source.splits(SourceContext(0, 0, 1))
    world.now_ms += 1000
    assert job.epoch() == ["1"]


def test_an_epoch_that_has_aged_out_cannot_be_read_again_in_silence(world: ImitatedKinesis) -> None:
    world.add(FIRST, "1")
    world.now_ms += HOUR_MS
    world.add(FIRST, "2")
    job = Job(world)
    job.epoch()
    split, start, end, _ = next(each for each in job.ranges if each[3])
    world.now_ms += 23 * HOUR_MS + 1
    with pytest.raises(ConnectorError, match="may have expired"):
        job.read(split, start, end)


# --- trouble -------------------------------------------------------------------------------------------------------


def test_an_iterator_that_expired_is_made_anew_behind_the_last_record(world: ImitatedKinesis) -> None:
    world.add(FIRST, *map(str, range(6)))
    job = Job(world)
    [split, _] = job.source.splits(SourceContext(1, 0, 1))
    small = KinesisSource(AwsAddress("r"), ["s"], SimpleStringSchema(), records_max=2)
    items = small.read(split, split.start, {**split.start, "records": 6})
    values = list(next(items).values())  # type: ignore[union-attr]
    world.failures = [aws_error("ExpiredIteratorException")]
    assert values + [value for batch in items for value in batch.values()] == list(map(str, range(6)))


def test_throttling_is_retried_and_then_raised(world: ImitatedKinesis) -> None:
    world.add(FIRST, "1")
    world.failures = [aws_error("ProvisionedThroughputExceededException")] * 3
    assert Job(world).epoch() == ["1"]
    world.failures = [aws_error("InternalFailure", status=500)] * 1000
    with pytest.raises(ConnectorAwayError, match=r"Kinesis stream 's' at r is busy \(InternalFailure\)"):
        Job(world).epoch()
    assert len(world.failures) > 900


@pytest.mark.parametrize("code", ["UnrecognizedClientException", "AccessDeniedException", "InvalidSignatureException"])
def test_wrong_keys_are_reported_at_once_and_never_shown(world: ImitatedKinesis, code: str) -> None:
    world.failures = [aws_error(code, "the string to sign was AKIAEXAMPLE/s3cret")]
    with pytest.raises(ConnectorError, match="denied access") as refusal:
        Job(world).epoch()
    assert "s3cret" not in str(refusal.value) and "AKIA" not in str(refusal.value) and not world.failures
    keys = {"aws.credentials.provider.basic.accesskeyid": "AKIA", "aws.credentials.provider.basic.secretkey": "s3cret"}
    address = address_of("source", {"aws.region": "r", **keys})
    shown = repr(address) + KinesisSource(address, ["s"], SimpleStringSchema()).describe()
    assert "s3cret" not in shown and "AKIA" not in shown and address.secret_key == "s3cret"


# --- sinks ---------------------------------------------------------------------------------------------------------


def published(sink: AwsSink, values: list[str]) -> None:
    store = MemoryStore("kinesis-sink")
    writer = sink.writer(WriterContext("out", 1, 0, 1, "n", store, 0, Types.STRING(), "job"))
    writer.write(Batch.of_values(values, Types.STRING()))
    sink.commit(CommitId("job", "out", 1), writer.stage(), store)


def test_only_refused_records_are_sent_again(world: ImitatedKinesis) -> None:
    world.refused_at = [{1, 3}, {0}]
    published(AwsSink(STREAMS, AwsAddress("r"), "s", SimpleStringSchema()), ["a", "b", "c", "d"])
    assert [record["Data"] for record in world.taken] == [b"a", b"c", b"d", b"b"]


def test_records_that_are_never_accepted_are_an_error_within_the_time_limit(world: ImitatedKinesis) -> None:
    world.refused_at = [{0}] * 1000
    with pytest.raises(ConnectorAwayError, match=r"does not accept 1 records \(ProvisionedThroughput"):
        published(AwsSink(STREAMS, AwsAddress("r"), "s", SimpleStringSchema()), ["a"])
    assert len(world.refused_at) > 900


def test_a_strict_sink_does_not_send_again(world: ImitatedKinesis) -> None:
    world.refused_at = [{0}]
    with pytest.raises(ConnectorAwayError, match="does not accept 1 records"):
        published(AwsSink(STREAMS, AwsAddress("r"), "s", SimpleStringSchema(), is_strict=True), ["a"])


@given(st.lists(st.integers(0, 9)), st.integers(1, 4), st.integers(9, 20))
def test_requests_keep_the_order_and_their_bounds(sizes: list[int], most: int, size_max: int) -> None:
    records = [{"Data": bytes(size), "PartitionKey": ""} for size in sizes]
    batches = list(_batches(iter(records), SendLimits(most, size_max, size_max)))
    assert [record for batch in batches for record in batch] == records
    assert all(0 < len(batch) <= most and sum(map(_size, batch)) <= size_max for batch in batches)


def test_a_partition_key_that_is_half_a_surrogate_pair_is_the_key_of_a_dead_letter() -> None:
    moment = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    records = [
        {"Data": data, "PartitionKey": "\ud800", "SequenceNumber": f"{at}", "ApproximateArrivalTimestamp": moment}
        for at, data in enumerate([b'{"n": 1}', b"\xff"])
    ]
    row = Types.ROW_NAMED(["n"], [Types.INT()])
    schema = JsonRowDeserializationSchema.builder().type_info(row).build().with_dead_letters(OutputTag("bad"))
    from_shards = KinesisSource(AwsAddress("r"), ["s"], schema, start=TRIM_HORIZON)
    letters, batch = from_shards._items(Split("s", 0, {"stream": "s", "shard": "0"}), records)
    assert [letter.key for letter in letters.batch.values()] == [b"\xed\xa0\x80"] and batch.values()[0].n == 1


# --- properties ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "neither aws.region nor aws.endpoint"),
        ({"aws.region": "r", "region": "r"}, "there is no property 'region'"),
        ({"aws.region": "r", "aws.credentials.provider": "SYS_PROP"}, "expected BASIC, PROFILE"),
        ({"aws.region": "r", "aws.credentials.provider": "BASIC"}, "are missing"),
        ({"aws.region": "r", "aws.credentials.provider.basic.secretkey": "s3cret"}, "only one is set"),
        ({"aws.region": "r", "aws.credentials.provider.role.arn": "x"}, "not supported"),
        ({"aws.region": "r", "flink.stream.initpos": "earliest"}, "expected one of LATEST, TRIM_HORIZON"),
        ({"aws.region": "r", "flink.stream.initpos": "AT_TIMESTAMP"}, "expected seconds since 1970"),
        ({"aws.region": "r", "flink.shard.getrecords.maxrecordcount": "20000"}, "from 1 to 10000"),
    ],
)
def test_wrong_properties_are_refused(properties: dict[str, Any], message: str) -> None:
    with pytest.raises(ProgramError, match=message) as refusal:
        address_of("source", properties)
        source_settings_of("source", properties)
    assert "s3cret" not in str(refusal.value)
