"""Reads Kinesis streams, and writes to Kinesis streams and Firehose: `pip install millstream[kinesis]`. Needs no jar.

The source is replayable as long as the stream retains its records, and therefore exactly-once. The sinks are
at-least-once, since neither Kinesis nor Firehose can detect a repeated record.

>>> from millstream.common import SimpleStringSchema
>>> source = FlinkKinesisConsumer("clicks", SimpleStringSchema(), {
...     "aws.region": "eu-central-1", "flink.stream.initpos": "TRIM_HORIZON"})
>>> sink = KinesisStreamsSink.builder().set_stream_name("counts") \\
...     .set_kinesis_client_properties({"aws.region": "eu-central-1"}) \\
...     .set_serialization_schema(SimpleStringSchema()) \\
...     .set_partition_key_generator(PartitionKeyGenerator.random()).build()
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.connectors.kinesis.settings import address_of, source_settings_of
from millstream.connectors.kinesis.sink import FIREHOSE, STREAMS, AwsSink, KeyRule, Service
from millstream.connectors.kinesis.source import KinesisSource
from millstream.datastream.connectors.base import Sink
from millstream.datastream.functions.source_and_sink import SourceFunction
from millstream.datastream.streams.argument_checks import (
    at_users_line,
    checked_count,
    checked_text,
    checked_truth,
    refuse,
)
from millstream.graph.notices import log_once
from millstream.pyflink_names import add_pyflink_names

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "FlinkKinesisConsumer",
    "KinesisDeserializationSchema",
    "KinesisFirehoseSink",
    "KinesisFirehoseSinkBuilder",
    "KinesisShardAssigner",
    "KinesisStreamsSink",
    "KinesisStreamsSinkBuilder",
    "PartitionKeyGenerator",
    "WatermarkTracker",
]


class KinesisShardAssigner:
    """Assigns shards to subtasks. It has no effect: shards are always distributed evenly."""

    def __init__(self, j_kinesis_shard_assigner: Any) -> None:
        self._name = j_kinesis_shard_assigner

    @staticmethod
    def default_shard_assigner() -> KinesisShardAssigner:
        return KinesisShardAssigner("default")

    @staticmethod
    def uniform_shard_assigner() -> KinesisShardAssigner:
        return KinesisShardAssigner("uniform")


class KinesisDeserializationSchema:
    """Deserializes records with a DeserializationSchema for their data."""

    def __init__(self, j_kinesis_deserialization_schema: Any) -> None:
        if not isinstance(j_kinesis_deserialization_schema, DeserializationSchema):
            raise refuse(
                f"KinesisDeserializationSchema: found {j_kinesis_deserialization_schema!r}, expected a "
                "DeserializationSchema"
            )
        self._schema = j_kinesis_deserialization_schema


class WatermarkTracker:
    """Pauses shards that are ahead. Use watermark alignment instead: see `set_watermark_tracker`."""

    def __init__(self, j_watermark_tracker: Any) -> None:
        self._name = j_watermark_tracker

    @staticmethod
    def job_manager_watermark_tracker(
        aggregate_name: str, log_accumulator_interval_millis: int = -1
    ) -> WatermarkTracker:
        return WatermarkTracker(checked_text("job_manager_watermark_tracker", aggregate_name))


class PartitionKeyGenerator:
    """The partition key of a record, which determines its shard.

    Beyond PyFlink: `PartitionKeyGenerator(lambda order: order.customer)` takes a function of the record.
    """

    def __init__(self, j_partition_key_generator: str | Callable[[Any], str]) -> None:
        rule = j_partition_key_generator
        if not callable(rule) and rule not in ("fixed", "random"):
            raise refuse(f"PartitionKeyGenerator: found {rule!r}, expected a function from a record to a string")
        self._rule: KeyRule = rule

    @staticmethod
    def fixed() -> PartitionKeyGenerator:
        """One key per subtask of the sink."""
        return PartitionKeyGenerator("fixed")

    @staticmethod
    def random() -> PartitionKeyGenerator:
        """A different key for every record."""
        return PartitionKeyGenerator("random")


class FlinkKinesisConsumer(SourceFunction):
    """Records of one or more streams, for `add_source`. `config_props` are described in Flink's documentation."""

    def __init__(
        self,
        streams: str | list[str],
        deserializer: DeserializationSchema | KinesisDeserializationSchema,
        config_props: dict[str, Any],
    ) -> None:
        what = "FlinkKinesisConsumer"
        names = [streams] if isinstance(streams, str) else list(streams)
        if not names or len(set(names)) < len(names):
            raise refuse(f"{what}: found the streams {names!r}, expected at least one, and none twice")
        for name in names:
            checked_text(f"{what}, stream", name)
        schema = deserializer._schema if isinstance(deserializer, KinesisDeserializationSchema) else deserializer
        if not isinstance(schema, DeserializationSchema):
            raise refuse(f"{what}: found {schema!r}, expected a DeserializationSchema")
        with at_users_line():
            address, settings = address_of(what, config_props), source_settings_of(what, config_props)
            super().__init__(KinesisSource(address, names, schema, **settings))

    def set_shard_assigner(self, shard_assigner: KinesisShardAssigner) -> Self:
        log_once("kinesis shard assigner", "set_shard_assigner has no effect: shards are spread evenly")
        return self

    def set_periodic_watermark_assigner(self, periodic_watermark_assigner: Any) -> NoReturn:
        raise refuse(
            "set_periodic_watermark_assigner: assign event time with assign_timestamps_and_watermarks("
            "WatermarkStrategy…); directly after the source, every shard has a watermark of its own"
        )

    def set_watermark_tracker(self, watermark_tracker: WatermarkTracker) -> Self:
        log_once(
            "kinesis watermark tracker",
            "set_watermark_tracker has no effect: use WatermarkStrategy.with_watermark_alignment",
        )
        return self


class KinesisStreamsSink(Sink):
    """Writes records to a stream at least once, for `sink_to`."""

    def __init__(self, j_kinesis_streams_sink: Any) -> None:
        super().__init__(_built("KinesisStreamsSink", j_kinesis_streams_sink))

    @staticmethod
    def builder() -> KinesisStreamsSinkBuilder:
        return KinesisStreamsSinkBuilder()


class KinesisFirehoseSink(Sink):
    """Writes records to a Firehose delivery stream at least once, for `sink_to`."""

    def __init__(self, j_kinesis_firehose_sink: Any) -> None:
        super().__init__(_built("KinesisFirehoseSink", j_kinesis_firehose_sink))

    @staticmethod
    def builder() -> KinesisFirehoseSinkBuilder:
        return KinesisFirehoseSinkBuilder()


def _built(what: str, sink: Any) -> AwsSink:
    if not isinstance(sink, AwsSink):
        raise refuse(f"{what}: create one with {what}.builder()")
    return sink


class _SinkSettings:
    """The settings collected by both builders."""

    def __init__(self, service: Service, what: str) -> None:
        self._service, self._what, self._limits = service, what, service.limits
        self._stream: str | None = None
        self._schema: SerializationSchema | None = None
        self._properties: dict[str, Any] = {}
        self._key_rule: KeyRule | None = None
        self._is_strict = False

    def set_serialization_schema(self, serialization_schema: SerializationSchema) -> Self:
        if not isinstance(serialization_schema, SerializationSchema):
            raise refuse(f"{self._what}: found {serialization_schema!r}, expected a SerializationSchema")
        self._schema = serialization_schema
        return self

    def set_fail_on_error(self, fail_on_error: bool) -> Self:
        """Sets whether a rejected record fails the job immediately. Otherwise it is resent for 30 seconds."""
        self._is_strict = checked_truth("set_fail_on_error", fail_on_error)
        return self

    def set_max_batch_size(self, max_batch_size: int) -> Self:
        """Sets the maximum number of records per request, at most 500."""
        self._limits = replace(self._limits, records=self._within("max batch size", max_batch_size, "records"))
        return self

    def set_max_batch_size_in_bytes(self, max_batch_size_in_bytes: int) -> Self:
        size = self._within("max batch size in bytes", max_batch_size_in_bytes, "size_bytes")
        self._limits = replace(self._limits, size_bytes=size)
        return self

    def set_max_record_size_in_bytes(self, max_record_size_in_bytes: int) -> Self:
        """Sets the maximum record size; a larger record is an error."""
        size = self._within("max record size in bytes", max_record_size_in_bytes, "record_bytes")
        self._limits = replace(self._limits, record_bytes=size)
        return self

    def set_max_in_flight_requests(self, max_in_flight_requests: int) -> Self:
        return self._without_effect("set_max_in_flight_requests")

    def set_max_buffered_requests(self, max_buffered_requests: int) -> Self:
        return self._without_effect("set_max_buffered_requests")

    def set_max_time_in_buffer_ms(self, max_time_in_buffer_ms: int) -> Self:
        return self._without_effect("set_max_time_in_buffer_ms")

    def _without_effect(self, method: str) -> Self:
        log_once(f"kinesis {method}", f"{method} has no effect: records are sent when their epoch is committed")
        return self

    def _within(self, name: str, value: Any, limit: str) -> int:
        most = getattr(self._service.limits, limit)
        if checked_count(f"{self._what}, {name}", value) > most:
            raise refuse(f"{self._what}, {name}: found {value!r}, and AWS accepts at most {most}")
        return int(value)

    def _sink(self) -> AwsSink:
        if self._stream is None or self._schema is None:
            missing = "the stream's name" if self._stream is None else "set_serialization_schema"
            raise refuse(f"{self._what}: {missing} is missing")
        with at_users_line():
            return AwsSink(
                self._service,
                address_of(self._what, self._properties),
                self._stream,
                self._schema,
                key_rule=self._key_rule or "random",
                limits=self._limits,
                is_strict=self._is_strict,
            )


class KinesisStreamsSinkBuilder(_SinkSettings):
    """Builds a `KinesisStreamsSink`."""

    def __init__(self) -> None:
        super().__init__(STREAMS, "KinesisStreamsSink")

    def set_stream_name(self, stream_name: str) -> Self:
        self._stream = checked_text("KinesisStreamsSink, stream name", stream_name)
        return self

    def set_partition_key_generator(self, partition_key_generator: PartitionKeyGenerator) -> Self:
        if not isinstance(partition_key_generator, PartitionKeyGenerator):
            raise refuse(f"KinesisStreamsSink: found {partition_key_generator!r}, expected a PartitionKeyGenerator")
        self._key_rule = partition_key_generator._rule
        return self

    def set_kinesis_client_properties(self, kinesis_client_properties: dict[str, Any]) -> Self:
        self._properties = dict(kinesis_client_properties)
        return self

    def build(self) -> KinesisStreamsSink:
        if self._key_rule is None:
            raise refuse("KinesisStreamsSink: set_partition_key_generator is missing")
        return KinesisStreamsSink(self._sink())


class KinesisFirehoseSinkBuilder(_SinkSettings):
    """Builds a `KinesisFirehoseSink`."""

    def __init__(self) -> None:
        super().__init__(FIREHOSE, "KinesisFirehoseSink")

    def set_delivery_stream_name(self, delivery_stream_name: str) -> Self:
        self._stream = checked_text("KinesisFirehoseSink, delivery stream name", delivery_stream_name)
        return self

    def set_firehose_client_properties(self, firehose_client_properties: dict[str, Any]) -> Self:
        self._properties = dict(firehose_client_properties)
        return self

    def build(self) -> KinesisFirehoseSink:
        return KinesisFirehoseSink(self._sink())


add_pyflink_names(globals())
