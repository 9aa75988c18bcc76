"""Kinesis and Firehose, against moto's server, which imitates them: requests and responses are real, AWS is not."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
from servers.moto import MotoServer

from millstream.common import Types
from millstream.common.serialization import SimpleStringSchema
from millstream.connectors.contracts import CommitId, SourceContext, Split, WriterContext
from millstream.connectors.kinesis import clients
from millstream.connectors.kinesis import source as kinesis_source
from millstream.connectors.kinesis.clients import AwsAddress
from millstream.connectors.kinesis.sink import FIREHOSE, STREAMS, AwsSink, SendLimits
from millstream.connectors.kinesis.source import LATEST, TRIM_HORIZON, KinesisSource, StartRule
from millstream.datastream import OutputTag, StreamExecutionEnvironment
from millstream.datastream.connectors.kinesis import (
    FlinkKinesisConsumer,
    KinesisFirehoseSink,
    KinesisStreamsSink,
    PartitionKeyGenerator,
)
from millstream.datastream.formats.json import JsonRowDeserializationSchema
from millstream.errors import ConnectorAwayError, MillstreamError
from millstream.records.batch import Batch
from millstream.storage.memory import MemoryStore
from millstream.testing import Collect, run
from millstream.testing.connectors import Broken, check_sink, check_source

NOW = SourceContext(0, 0, 1)
LATER = SourceContext(60_000, 0, 1)


@pytest.fixture
def stream(moto_server: MotoServer, unique_name: str) -> str:
    moto_server.client("kinesis").create_stream(StreamName=unique_name, ShardCount=2)
    return unique_name


def properties(server: MotoServer, **more: str) -> dict[str, str]:
    return {
        "aws.region": server.region,
        "aws.endpoint": server.url,
        "aws.credentials.provider.basic.accesskeyid": server.access_key,
        "aws.credentials.provider.basic.secretkey": server.secret_key,
        "flink.stream.initpos": "TRIM_HORIZON",
        **more,
    }


def address(server: MotoServer) -> AwsAddress:
    return AwsAddress(server.region, server.url, server.access_key, server.secret_key)


def put(server: MotoServer, stream: str, texts: Sequence[str], key: str | None = None) -> None:
    records = [{"Data": text.encode(), "PartitionKey": key or text} for text in texts]
    server.client("kinesis").put_records(StreamName=stream, Records=records)


def stored(server: MotoServer, stream: str) -> list[tuple[str, str]]:
    """Data and key of every record of a stream, shard by shard."""
    client, found = server.client("kinesis"), []
    for shard in client.list_shards(StreamName=stream)["Shards"]:
        at = client.get_shard_iterator(StreamName=stream, ShardId=shard["ShardId"], ShardIteratorType="TRIM_HORIZON")
        for record in client.get_records(ShardIterator=at["ShardIterator"], Limit=10_000)["Records"]:
            found.append((record["Data"].decode(), record["PartitionKey"]))
    return found


def opened(server: MotoServer, stream: str, start: StartRule = TRIM_HORIZON) -> KinesisSource:
    source = KinesisSource(address(server), [stream], SimpleStringSchema(), start=start).opened(MemoryStore("k"), None)
    assert isinstance(source, KinesisSource)
    return source


def read(source: KinesisSource, split: Split, start: Any, stop: Any) -> tuple[list[str], Any]:
    """The values of a range, and its end position."""
    items, values = source.read(split, start, stop), []
    while True:
        try:
            values += next(items).values()
        except StopIteration as end:
            return values, end.value


def test_written_records_are_read_with_their_arrival_times(moto_server: MotoServer, stream: str) -> None:
    texts = [f"text {n}" for n in range(1_200)]
    before_ms = time.time_ns() // 1_000_000
    sink = (
        KinesisStreamsSink.builder()
        .set_stream_name(stream)
        .set_kinesis_client_properties(properties(moto_server))
        .set_serialization_schema(SimpleStringSchema())
        .set_partition_key_generator(PartitionKeyGenerator(lambda text: text[-1]))
        .build()
    )
    run(lambda env: env.from_collection(texts, Types.STRING()).sink_to(sink))
    written = stored(moto_server, stream)
    assert sorted(text for text, _ in written) == sorted(texts)
    assert all(key == text[-1] for text, key in written)
    for key in "0123456789":
        assert [text for text, of in written if of == key] == [text for text in texts if text[-1] == key]

    source = opened(moto_server, stream)
    found = []
    for split in source.splits(NOW):
        for batch in source.read(split, split.start, source.reach(split, split.start, 10_000, NOW)):
            found += batch.values()
            assert batch.timestamps.min() >= before_ms - 1
    assert sorted(found) == sorted(texts)


def test_a_job_reads_all_shards_of_its_streams(moto_server: MotoServer, stream: str) -> None:
    put(moto_server, stream, [str(n) for n in range(100)])
    out = Collect()
    source = FlinkKinesisConsumer([stream], SimpleStringSchema(), properties(moto_server))
    found = run(lambda env: env.add_source(source).sink_to(out), epochs=1)[out]
    assert sorted(found, key=int) == [str(n) for n in range(100)]


def test_a_range_is_bounded_and_the_next_continues_at_its_end(moto_server: MotoServer, stream: str) -> None:
    put(moto_server, stream, [str(n) for n in range(10)], key="one")
    source = opened(moto_server, stream)
    split, counts, found = _with_records(source), [], []
    at = split.start
    for _ in range(3):
        stop = source.reach(split, at, 4, NOW)
        assert stop != at
        values, end = read(source, split, at, stop)
        assert read(source, split, at, end) == (values, end)  # the same again
        found += values
        counts.append(len(values))
        at = end
        source._peeks.clear()
    assert counts == [4, 4, 2] and found == [str(n) for n in range(10)]
    assert source.reach(split, at, 4, NOW) == at


def _with_records(source: KinesisSource) -> Split:
    [split] = [split for split in source.splits(NOW) if "from" in split.start]
    return split


def test_bytes_end_a_range_early(moto_server: MotoServer, stream: str) -> None:
    put(moto_server, stream, ["x" * 1000] * 10, key="one")
    source = KinesisSource(address(moto_server), [stream], SimpleStringSchema(), start=TRIM_HORIZON, records_max=2)
    split = _with_records(source)
    items = list(source.read_within(split, split.start, {**split.start, "records": 10}, 3_000))
    assert sum(len(batch) for batch in items) == 4


def test_latest_is_decided_once(moto_server: MotoServer, stream: str) -> None:
    """A driver that reads the first one's decision from the manifest does not skip records that arrived in between."""
    put(moto_server, stream, ["old"], key="one")
    first = opened(moto_server, stream, LATEST)
    positions = {}
    for split in first.splits(NOW):
        stop = first.reach(split, split.start, 10, NOW)
        assert stop != split.start  # discovered, so that an epoch records its start position
        positions[split.name] = read(first, split, split.start, stop)[1]
    put(moto_server, stream, ["new"], key="one")
    second = opened(moto_server, stream, LATEST)
    second.committed(positions)
    found = []
    for split in second.splits(NOW):
        at = positions[split.name]
        stop = second.reach(split, at, 10, NOW)
        found += read(second, split, at, stop)[0] if stop != at else []
    assert found == ["new"]


def next_moment_ms() -> int:
    """A time later than every event so far."""
    before_ms = time.time_ns() // 1_000_000
    while (now_ms := time.time_ns() // 1_000_000) <= before_ms + 1:
        time.sleep(0.001)
    return now_ms


def test_at_timestamp_starts_with_the_records_after_it(moto_server: MotoServer, stream: str) -> None:
    put(moto_server, stream, ["old"], key="one")
    at_ms = next_moment_ms()
    put(moto_server, stream, ["new"], key="one")
    given = properties(moto_server, **{"flink.stream.initpos": "AT_TIMESTAMP"})
    given["flink.stream.initpos.timestamp"] = str(at_ms / 1000)
    out = Collect()
    source = FlinkKinesisConsumer(stream, SimpleStringSchema(), given)
    assert run(lambda env: env.add_source(source).sink_to(out), epochs=1)[out] == ["new"]


def test_child_shards_are_discovered_and_wait_for_their_parent(moto_server: MotoServer, unique_name: str) -> None:
    """moto still puts records into the shard that was split, so there are none here: tests/fast covers the rest."""
    client = moto_server.client("kinesis")
    client.create_stream(StreamName=unique_name, ShardCount=1)
    source = opened(moto_server, unique_name, LATEST)
    [parent] = source.splits(NOW)
    client.split_shard(StreamName=unique_name, ShardToSplit=parent.info["shard"], NewStartingHashKey=str(2**127))
    parent, *children = source.splits(LATER)
    stop = source.reach(parent, parent.start, 10, LATER)
    assert [source.reach(child, child.start, 10, LATER) for child in children] == [child.start for child in children]
    values, end = read(source, parent, parent.start, stop)
    assert values == [] and source.finished(parent, end)
    source.committed({parent.name: end})
    assert all(source.reach(child, child.start, 10, LATER) != child.start for child in children)


def test_a_malformed_record_is_reported_with_its_position_or_goes_to_the_side_output(
    moto_server: MotoServer, stream: str
) -> None:
    put(moto_server, stream, ["nonsense"])
    schema = JsonRowDeserializationSchema.builder().type_info(Types.ROW_NAMED(["n"], [Types.LONG()])).build()
    source = FlinkKinesisConsumer(stream, schema, properties(moto_server))
    with pytest.raises(MillstreamError, match=r"shard shardId-\d+, sequence number \d+.*nonsense"):
        run(lambda env: env.add_source(source).print(), epochs=1)
    tag, bad = OutputTag("bad"), Collect()

    def program(env: StreamExecutionEnvironment) -> None:
        consumer = FlinkKinesisConsumer(stream, schema.with_dead_letters(tag), properties(moto_server))
        env.add_source(consumer).get_side_output(tag).sink_to(bad)

    [letter] = run(program, epochs=1)[bad]
    assert letter["value"] == b"nonsense" and letter["key"] == b"nonsense"


# --- sinks ---------------------------------------------------------------------------------------------------------


def staged(sink: AwsSink, store: MemoryStore, values: list[str]) -> Any:
    writer = sink.writer(WriterContext("out", 1, 0, 1, "n", store, 0, Types.STRING(), "job"))
    writer.write(Batch.of_values(values, Types.STRING()))
    return writer.stage()


def test_records_are_invisible_before_the_commit_and_repeated_by_a_repeated_commit(
    moto_server: MotoServer, stream: str
) -> None:
    store = MemoryStore(f"kinesis-{stream}")
    sink = AwsSink(STREAMS, address(moto_server), stream, SimpleStringSchema(), key_rule="fixed")
    publish = staged(sink, store, ["a", "b"])
    assert stored(moto_server, stream) == []
    for _ in range(2):
        sink.commit(CommitId("job", "out", 1), publish, store)
    assert stored(moto_server, stream) == [("a", "out-0"), ("b", "out-0")] * 2


def test_large_records_are_sent_within_kinesis_request_limits(moto_server: MotoServer, stream: str) -> None:
    store = MemoryStore(f"kinesis-{stream}")
    sink = AwsSink(STREAMS, address(moto_server), stream, SimpleStringSchema())
    texts = [f"{n:05d}" + "x" * 500_000 for n in range(15)]
    sink.commit(CommitId("job", "out", 1), staged(sink, store, texts), store)
    assert sorted(text for text, _ in stored(moto_server, stream)) == texts


def test_firehose_delivers_written_records(moto_server: MotoServer, unique_name: str) -> None:
    s3, name = moto_server.client("s3"), unique_name
    s3.create_bucket(Bucket=name)
    moto_server.client("firehose").create_delivery_stream(
        DeliveryStreamName=name,
        S3DestinationConfiguration={"RoleARN": "arn:aws:iam::123456789012:role/r", "BucketARN": f"arn:aws:s3:::{name}"},
    )
    sink = (
        KinesisFirehoseSink.builder()
        .set_delivery_stream_name(name)
        .set_firehose_client_properties({k: v for k, v in properties(moto_server).items() if k.startswith("aws.")})
        .set_serialization_schema(SimpleStringSchema())
        .set_max_batch_size(2)
        .build()
    )
    run(lambda env: env.from_collection(["a\n", "b\n", "c\n"], Types.STRING()).sink_to(sink))
    objects = [
        s3.get_object(Bucket=name, Key=found["Key"])["Body"].read().decode()
        for found in s3.list_objects_v2(Bucket=name)["Contents"]
    ]
    assert sorted("".join(objects).split()) == ["a", "b", "c"] and sorted(map(len, objects)) == [2, 4]


# --- the kit -------------------------------------------------------------------------------------------------------


def test_the_source_passes_the_kit(moto_server: MotoServer, stream: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        kinesis_source, "_PEEK_S", 0.0
    )  # the kit repeats its reads immediately, without moto's rate limit
    texts = [f"t{n}" for n in range(40)]
    put(moto_server, stream, texts)
    nowhere = Broken("a missing stream", lambda: consumer(moto_server, "nosuch"), ["nosuch"])
    check_source(consumer(moto_server, stream), expected=texts, broken=[nowhere], secrets=[moto_server.secret_key])


def consumer(server: MotoServer, stream: str) -> FlinkKinesisConsumer:
    return FlinkKinesisConsumer(stream, SimpleStringSchema(), properties(server))


def test_the_sink_passes_the_kit(moto_server: MotoServer, unique_name: str) -> None:
    client, made = moto_server.client("kinesis"), set()

    def make(place: str) -> AwsSink:
        name = f"{unique_name}{place}"
        if name not in made:
            made.add(name)
            client.create_stream(StreamName=name, ShardCount=1)
        return AwsSink(STREAMS, address(moto_server), name, SimpleStringSchema(), key_rule="fixed")

    def found(place: str) -> list[str]:
        name = f"{unique_name}{place}"
        return [text for text, _ in stored(moto_server, name)] if name in made else []

    texts, secrets = [f"t{n}" for n in range(14)], [moto_server.secret_key]
    check_sink(make, found, records=texts, type_info=Types.STRING(), secrets=secrets, crash_points=8)


def test_firehose_passes_the_kit(moto_server: MotoServer, unique_name: str) -> None:
    """Firehose has no reader: delivered records are in the objects of its bucket."""
    s3, firehose, made = moto_server.client("s3"), moto_server.client("firehose"), set[str]()

    def name_of(place: str) -> str:
        return f"{unique_name}{place}".lower().replace("_", "-")[-63:].lstrip("-")

    def make(place: str) -> AwsSink:
        name = name_of(place)
        if name not in made:
            made.add(name)
            s3.create_bucket(Bucket=name)
            destination = {"RoleARN": "arn:aws:iam::123456789012:role/r", "BucketARN": f"arn:aws:s3:::{name}"}
            firehose.create_delivery_stream(DeliveryStreamName=name, S3DestinationConfiguration=destination)
        return AwsSink(FIREHOSE, address(moto_server), name, SimpleStringSchema())

    def found(place: str) -> list[str]:
        name = name_of(place)
        if name not in made:
            return []
        objects = s3.list_objects_v2(Bucket=name).get("Contents", ())
        bodies = (s3.get_object(Bucket=name, Key=one["Key"])["Body"].read().decode() for one in objects)
        return [line for body in bodies for line in body.splitlines(keepends=True)]

    texts, secrets = [f"t{n}\n" for n in range(14)], [moto_server.secret_key]
    check_sink(make, found, records=texts, type_info=Types.STRING(), secrets=secrets, crash_points=6)


# --- bad input -----------------------------------------------------------------------------------------------------


def test_a_missing_stream_is_reported_without_credentials(moto_server: MotoServer) -> None:
    source = FlinkKinesisConsumer("nowhere", SimpleStringSchema(), properties(moto_server))
    with pytest.raises(MillstreamError, match=r"Kinesis stream 'nowhere' at http.* does not exist") as refusal:
        run(lambda env: env.add_source(source).print(), epochs=1)
    assert moto_server.secret_key not in str(refusal.value)
    for service in (STREAMS, FIREHOSE):
        sink = AwsSink(service, address(moto_server), "nowhere", SimpleStringSchema())
        with pytest.raises(MillstreamError, match=r"'nowhere' at http.* does not exist"):
            run(lambda env, sink=sink: env.from_collection(["a"], Types.STRING()).sink_to(sink))


def test_a_cut_connection_is_reported_and_the_retry_succeeds(
    moto_server: MotoServer, stream: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "PATIENCE_S", 0.5)
    put(moto_server, stream, ["a"], key="one")
    with moto_server.proxy() as proxy:
        far = AwsAddress(
            moto_server.region, moto_server.url_at(proxy.port), moto_server.access_key, moto_server.secret_key
        )
        source = KinesisSource(far, [stream], SimpleStringSchema(), start=TRIM_HORIZON)
        split, store = _with_records(source), MemoryStore(f"kinesis-{stream}")
        stop = source.reach(split, split.start, 10, NOW)
        sink = AwsSink(STREAMS, far, stream, SimpleStringSchema(), key_rule="fixed")
        publish, commit = staged(sink, store, ["b"]), CommitId("job", "out", 1)
        proxy.cut()
        with pytest.raises(ConnectorAwayError, match=r"Kinesis stream .* does not answer"):
            read(source, split, split.start, stop)
        with pytest.raises(ConnectorAwayError, match=r"Kinesis stream .* does not answer"):
            sink.commit(commit, publish, store)
        proxy.mend()
        assert read(source, split, split.start, stop)[0] == ["a"]
        sink.commit(commit, publish, store)
    assert sorted(text for text, _ in stored(moto_server, stream)) == ["a", "b"]


def test_an_oversized_record_fails_the_job_before_the_commit(moto_server: MotoServer, stream: str) -> None:
    sink = AwsSink(STREAMS, address(moto_server), stream, SimpleStringSchema(), limits=SendLimits(record_bytes=100))
    with pytest.raises(MillstreamError, match=r"a record has .* bytes with its key, but at most 100 are allowed"):
        run(lambda env: env.from_collection(["x" * 100], Types.STRING()).sink_to(sink))
    assert stored(moto_server, stream) == []
