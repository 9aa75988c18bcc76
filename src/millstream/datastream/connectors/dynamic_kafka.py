"""Reading Kafka topics whose cluster changes while a job runs.

Comes with connectors. The names and signatures are PyFlink's, so that programs can be written against them; making
or calling any of them says that it is not built yet, and what does the job meanwhile.
"""

from __future__ import annotations

from typing import Any

from millstream.common.serialization import DeserializationSchema
from millstream.datastream.connectors.base import Source
from millstream.errors import NotYetError

__all__ = [
    "DynamicKafkaSource",
    "DynamicKafkaSourceBuilder",
    "KafkaMetadataService",
    "KafkaRecordDeserializationSchema",
    "KafkaStreamSetSubscriber",
    "KafkaStreamSubscriber",
    "SingleClusterTopicMetadataService",
    "StreamPatternSubscriber",
]

_INSTEAD = "a PythonSource or TwoPhaseSink of your own, or Spark's connector by from_spark() and to_spark()"


def _not_yet(name: str) -> NotYetError:
    return NotYetError.of(name, "connectors", _INSTEAD)


class KafkaMetadataService:
    """PyFlink's `KafkaMetadataService`; not built yet."""

    def __init__(self, j_metadata_service: Any = None) -> None:
        raise _not_yet("KafkaMetadataService")


class SingleClusterTopicMetadataService(KafkaMetadataService):
    """PyFlink's `SingleClusterTopicMetadataService`; not built yet."""

    def __init__(
        self,
        kafka_cluster_id: Any = None,
        properties: Any = None,
        starting_offsets_initializer: Any = None,
        stopping_offsets_initializer: Any = None,
    ) -> None:
        raise _not_yet("SingleClusterTopicMetadataService")


class KafkaStreamSubscriber:
    """PyFlink's `KafkaStreamSubscriber`; not built yet."""

    def __init__(self, j_kafka_stream_subscriber: Any = None) -> None:
        raise _not_yet("KafkaStreamSubscriber")


class KafkaStreamSetSubscriber(KafkaStreamSubscriber):
    """PyFlink's `KafkaStreamSetSubscriber`; not built yet."""

    def __init__(self, stream_ids: Any = None) -> None:
        raise _not_yet("KafkaStreamSetSubscriber")


class StreamPatternSubscriber(KafkaStreamSubscriber):
    """PyFlink's `StreamPatternSubscriber`; not built yet."""

    def __init__(self, stream_pattern: Any = None) -> None:
        raise _not_yet("StreamPatternSubscriber")


class KafkaRecordDeserializationSchema(DeserializationSchema):
    """PyFlink's `KafkaRecordDeserializationSchema`; not built yet."""

    def __init__(self, j_deserialization_schema: Any = None) -> None:
        raise _not_yet("KafkaRecordDeserializationSchema")

    @staticmethod
    def value_only(deserialization_schema: Any = None) -> Any:
        raise _not_yet("KafkaRecordDeserializationSchema.value_only")


class DynamicKafkaSource(Source):
    """PyFlink's `DynamicKafkaSource`; not built yet."""

    def __init__(self, j_dynamic_kafka_source: Any = None) -> None:
        raise _not_yet("DynamicKafkaSource")

    @staticmethod
    def builder() -> Any:
        raise _not_yet("DynamicKafkaSource.builder")


class DynamicKafkaSourceBuilder:
    """PyFlink's `DynamicKafkaSourceBuilder`; not built yet."""

    def __init__(self) -> None:
        raise _not_yet("DynamicKafkaSourceBuilder")

    def build(self) -> Any:
        raise _not_yet("DynamicKafkaSourceBuilder.build")

    def set_stream_ids(self, stream_ids: Any = None) -> Any:
        raise _not_yet("DynamicKafkaSourceBuilder.set_stream_ids")

    def set_stream_pattern(self, stream_pattern: Any = None) -> Any:
        raise _not_yet("DynamicKafkaSourceBuilder.set_stream_pattern")

    def set_kafka_stream_subscriber(self, kafka_stream_subscriber: Any = None) -> Any:
        raise _not_yet("DynamicKafkaSourceBuilder.set_kafka_stream_subscriber")

    def set_kafka_metadata_service(self, kafka_metadata_service: Any = None) -> Any:
        raise _not_yet("DynamicKafkaSourceBuilder.set_kafka_metadata_service")

    def set_deserializer(self, deserializer: Any = None) -> Any:
        raise _not_yet("DynamicKafkaSourceBuilder.set_deserializer")

    def set_value_only_deserializer(self, deserialization_schema: Any = None) -> Any:
        raise _not_yet("DynamicKafkaSourceBuilder.set_value_only_deserializer")

    def set_starting_offsets(self, starting_offsets_initializer: Any = None) -> Any:
        raise _not_yet("DynamicKafkaSourceBuilder.set_starting_offsets")

    def set_bounded(self, stopping_offsets_initializer: Any = None) -> Any:
        raise _not_yet("DynamicKafkaSourceBuilder.set_bounded")

    def set_properties(self, props: Any = None) -> Any:
        raise _not_yet("DynamicKafkaSourceBuilder.set_properties")

    def set_property(self, key: Any = None, value: Any = None) -> Any:
        raise _not_yet("DynamicKafkaSourceBuilder.set_property")

    def set_group_id(self, group_id: Any = None) -> Any:
        raise _not_yet("DynamicKafkaSourceBuilder.set_group_id")

    def set_client_id_prefix(self, prefix: Any = None) -> Any:
        raise _not_yet("DynamicKafkaSourceBuilder.set_client_id_prefix")
