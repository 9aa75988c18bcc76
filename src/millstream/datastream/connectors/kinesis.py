"""Reading from Kinesis streams, writing to Kinesis streams and Firehose.

Comes with connectors. The names and signatures are PyFlink's, so that programs can be written against them; making
or calling any of them says that it is not built yet, and what does the job meanwhile.
"""

from __future__ import annotations

from typing import Any

from millstream.datastream.connectors.base import Sink
from millstream.datastream.functions.source_and_sink import SourceFunction
from millstream.errors import NotYetError

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

_INSTEAD = "a PythonSource or TwoPhaseSink of your own, or Spark's connector by from_spark() and to_spark()"


def _not_yet(name: str) -> NotYetError:
    return NotYetError.of(name, "connectors", _INSTEAD)


class KinesisShardAssigner:
    """PyFlink's `KinesisShardAssigner`; not built yet."""

    def __init__(self, j_kinesis_shard_assigner: Any = None) -> None:
        raise _not_yet("KinesisShardAssigner")

    @staticmethod
    def default_shard_assigner() -> Any:
        raise _not_yet("KinesisShardAssigner.default_shard_assigner")

    @staticmethod
    def uniform_shard_assigner() -> Any:
        raise _not_yet("KinesisShardAssigner.uniform_shard_assigner")


class KinesisDeserializationSchema:
    """PyFlink's `KinesisDeserializationSchema`; not built yet."""

    def __init__(self, j_kinesis_deserialization_schema: Any = None) -> None:
        raise _not_yet("KinesisDeserializationSchema")


class WatermarkTracker:
    """PyFlink's `WatermarkTracker`; not built yet."""

    def __init__(self, j_watermark_tracker: Any = None) -> None:
        raise _not_yet("WatermarkTracker")

    @staticmethod
    def job_manager_watermark_tracker(aggregate_name: Any = None, log_accumulator_interval_millis: Any = None) -> Any:
        raise _not_yet("WatermarkTracker.job_manager_watermark_tracker")


class FlinkKinesisConsumer(SourceFunction):
    """PyFlink's `FlinkKinesisConsumer`; not built yet."""

    def __init__(self, streams: Any = None, deserializer: Any = None, config_props: Any = None) -> None:
        raise _not_yet("FlinkKinesisConsumer")

    def set_shard_assigner(self, shard_assigner: Any = None) -> Any:
        raise _not_yet("FlinkKinesisConsumer.set_shard_assigner")

    def set_periodic_watermark_assigner(self, periodic_watermark_assigner: Any = None) -> Any:
        raise _not_yet("FlinkKinesisConsumer.set_periodic_watermark_assigner")

    def set_watermark_tracker(self, watermark_tracker: Any = None) -> Any:
        raise _not_yet("FlinkKinesisConsumer.set_watermark_tracker")


class PartitionKeyGenerator:
    """PyFlink's `PartitionKeyGenerator`; not built yet."""

    def __init__(self, j_partition_key_generator: Any = None) -> None:
        raise _not_yet("PartitionKeyGenerator")

    @staticmethod
    def fixed() -> Any:
        raise _not_yet("PartitionKeyGenerator.fixed")

    @staticmethod
    def random() -> Any:
        raise _not_yet("PartitionKeyGenerator.random")


class KinesisStreamsSink(Sink):
    """PyFlink's `KinesisStreamsSink`; not built yet."""

    def __init__(self, j_kinesis_streams_sink: Any = None) -> None:
        raise _not_yet("KinesisStreamsSink")

    @staticmethod
    def builder() -> Any:
        raise _not_yet("KinesisStreamsSink.builder")


class KinesisStreamsSinkBuilder:
    """PyFlink's `KinesisStreamsSinkBuilder`; not built yet."""

    def __init__(self) -> None:
        raise _not_yet("KinesisStreamsSinkBuilder")

    def set_stream_name(self, stream_name: Any = None) -> Any:
        raise _not_yet("KinesisStreamsSinkBuilder.set_stream_name")

    def set_serialization_schema(self, serialization_schema: Any = None) -> Any:
        raise _not_yet("KinesisStreamsSinkBuilder.set_serialization_schema")

    def set_partition_key_generator(self, partition_key_generator: Any = None) -> Any:
        raise _not_yet("KinesisStreamsSinkBuilder.set_partition_key_generator")

    def set_fail_on_error(self, fail_on_error: Any = None) -> Any:
        raise _not_yet("KinesisStreamsSinkBuilder.set_fail_on_error")

    def set_kinesis_client_properties(self, kinesis_client_properties: Any = None) -> Any:
        raise _not_yet("KinesisStreamsSinkBuilder.set_kinesis_client_properties")

    def set_max_batch_size(self, max_batch_size: Any = None) -> Any:
        raise _not_yet("KinesisStreamsSinkBuilder.set_max_batch_size")

    def set_max_in_flight_requests(self, max_in_flight_requests: Any = None) -> Any:
        raise _not_yet("KinesisStreamsSinkBuilder.set_max_in_flight_requests")

    def set_max_buffered_requests(self, max_buffered_requests: Any = None) -> Any:
        raise _not_yet("KinesisStreamsSinkBuilder.set_max_buffered_requests")

    def set_max_batch_size_in_bytes(self, max_batch_size_in_bytes: Any = None) -> Any:
        raise _not_yet("KinesisStreamsSinkBuilder.set_max_batch_size_in_bytes")

    def set_max_time_in_buffer_ms(self, max_time_in_buffer_ms: Any = None) -> Any:
        raise _not_yet("KinesisStreamsSinkBuilder.set_max_time_in_buffer_ms")

    def set_max_record_size_in_bytes(self, max_record_size_in_bytes: Any = None) -> Any:
        raise _not_yet("KinesisStreamsSinkBuilder.set_max_record_size_in_bytes")

    def build(self) -> Any:
        raise _not_yet("KinesisStreamsSinkBuilder.build")


class KinesisFirehoseSink(Sink):
    """PyFlink's `KinesisFirehoseSink`; not built yet."""

    def __init__(self, j_kinesis_firehose_sink: Any = None) -> None:
        raise _not_yet("KinesisFirehoseSink")

    @staticmethod
    def builder() -> Any:
        raise _not_yet("KinesisFirehoseSink.builder")


class KinesisFirehoseSinkBuilder:
    """PyFlink's `KinesisFirehoseSinkBuilder`; not built yet."""

    def __init__(self) -> None:
        raise _not_yet("KinesisFirehoseSinkBuilder")

    def set_delivery_stream_name(self, delivery_stream_name: Any = None) -> Any:
        raise _not_yet("KinesisFirehoseSinkBuilder.set_delivery_stream_name")

    def set_serialization_schema(self, serialization_schema: Any = None) -> Any:
        raise _not_yet("KinesisFirehoseSinkBuilder.set_serialization_schema")

    def set_fail_on_error(self, fail_on_error: Any = None) -> Any:
        raise _not_yet("KinesisFirehoseSinkBuilder.set_fail_on_error")

    def set_firehose_client_properties(self, firehose_client_properties: Any = None) -> Any:
        raise _not_yet("KinesisFirehoseSinkBuilder.set_firehose_client_properties")

    def set_max_batch_size(self, max_batch_size: Any = None) -> Any:
        raise _not_yet("KinesisFirehoseSinkBuilder.set_max_batch_size")

    def set_max_in_flight_requests(self, max_in_flight_requests: Any = None) -> Any:
        raise _not_yet("KinesisFirehoseSinkBuilder.set_max_in_flight_requests")

    def set_max_buffered_requests(self, max_buffered_requests: Any = None) -> Any:
        raise _not_yet("KinesisFirehoseSinkBuilder.set_max_buffered_requests")

    def set_max_batch_size_in_bytes(self, max_batch_size_in_bytes: Any = None) -> Any:
        raise _not_yet("KinesisFirehoseSinkBuilder.set_max_batch_size_in_bytes")

    def set_max_time_in_buffer_ms(self, max_time_in_buffer_ms: Any = None) -> Any:
        raise _not_yet("KinesisFirehoseSinkBuilder.set_max_time_in_buffer_ms")

    def set_max_record_size_in_bytes(self, max_record_size_in_bytes: Any = None) -> Any:
        raise _not_yet("KinesisFirehoseSinkBuilder.set_max_record_size_in_bytes")

    def build(self) -> Any:
        raise _not_yet("KinesisFirehoseSinkBuilder.build")
