"""Reads Kafka streams that a metadata service maps to topics. The only service maps each stream to one topic.

The service's cluster settings (addresses, start and end offsets) take precedence over those of the source.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from millstream.connectors.kafka.partitions import Subscription
from millstream.connectors.kafka.source import KafkaSource as EngineKafkaSource
from millstream.datastream.connectors.base import Source
from millstream.datastream.connectors.kafka.offsets import KafkaOffsetsInitializer, checked_rule
from millstream.datastream.connectors.kafka.record_schemas import KafkaRecordDeserializationSchema
from millstream.datastream.connectors.kafka.source import SourceBuilder, SourceSettings
from millstream.datastream.streams.argument_checks import at_users_line, checked_text, refuse
from millstream.datastream.streams.stream_edges import no_java_object
from millstream.pyflink_names import add_pyflink_names

if TYPE_CHECKING:
    from typing import Self

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

_DISCOVERY = "stream-metadata-discovery-interval-ms"
_DISCOVERY_INTERVAL_MS = 60_000


class KafkaMetadataService:
    """Maps a stream to topics of a cluster. The only implementation is `SingleClusterTopicMetadataService`."""

    def __init__(self, j_metadata_service: Any = None) -> None:
        no_java_object(self, j_metadata_service)


class SingleClusterTopicMetadataService(KafkaMetadataService):
    """Maps each stream to the topic of the same name in a single cluster.

    >>> service = SingleClusterTopicMetadataService("main", {"bootstrap.servers": "localhost:9092"})
    """

    def __init__(
        self,
        kafka_cluster_id: str,
        properties: Mapping[str, str],
        starting_offsets_initializer: KafkaOffsetsInitializer | None = None,
        stopping_offsets_initializer: KafkaOffsetsInitializer | None = None,
    ) -> None:
        super().__init__()
        self.kafka_cluster_id = checked_text("SingleClusterTopicMetadataService, kafka_cluster_id", kafka_cluster_id)
        if not isinstance(properties, Mapping) or "bootstrap.servers" not in properties:
            raise refuse("SingleClusterTopicMetadataService: properties must be a dict that contains bootstrap.servers")
        self._properties = dict(properties)
        start, stop = starting_offsets_initializer, stopping_offsets_initializer
        self._start = None if start is None else checked_rule("starting_offsets_initializer", start)
        self._stop = None if stop is None else checked_rule("stopping_offsets_initializer", stop)


class KafkaStreamSubscriber:
    """Selects the streams to read: `KafkaStreamSetSubscriber` or `StreamPatternSubscriber`."""

    def __init__(self, j_kafka_stream_subscriber: Any = None, *, subscription: Subscription | None = None) -> None:
        no_java_object(self, j_kafka_stream_subscriber)
        if subscription is None:
            raise refuse("KafkaStreamSubscriber: create a KafkaStreamSetSubscriber or a StreamPatternSubscriber")
        self._subscription = subscription


class KafkaStreamSetSubscriber(KafkaStreamSubscriber):
    """Reads the streams with these ids.

    >>> subscriber = KafkaStreamSetSubscriber({"orders", "returns"})
    """

    def __init__(self, stream_ids: Iterable[str]) -> None:
        if isinstance(stream_ids, str) or not isinstance(stream_ids, Iterable):
            raise refuse(f"KafkaStreamSetSubscriber: found {stream_ids!r}, expected a set of stream ids")
        names = sorted({checked_text("stream id", stream_id) for stream_id in stream_ids})
        if not names:
            raise refuse("KafkaStreamSetSubscriber: the set of stream ids is empty")
        super().__init__(subscription=Subscription(topics=tuple(names)))


class StreamPatternSubscriber(KafkaStreamSubscriber):
    """Reads all streams whose ids match a regular expression completely."""

    def __init__(self, stream_pattern: str) -> None:
        with at_users_line():
            subscription = Subscription(pattern=checked_text("StreamPatternSubscriber", stream_pattern))
        super().__init__(subscription=subscription)


class DynamicKafkaSourceBuilder(SourceBuilder):
    """Collects the settings of a dynamic Kafka source. The metadata service's start and end take precedence."""

    def __init__(self) -> None:
        super().__init__(SourceSettings("DynamicKafkaSource", "set_stream_ids({…}) or set_stream_pattern(…)"))
        self._settings.discovery_interval_ms = _DISCOVERY_INTERVAL_MS
        self._service: SingleClusterTopicMetadataService | None = None

    def build(self) -> DynamicKafkaSource:
        """The source."""
        if self._service is None:
            raise refuse("DynamicKafkaSource: no metadata service. Call set_kafka_metadata_service(…)")
        settings = self._settings
        if _DISCOVERY in settings.properties:
            settings.set_property("partition.discovery.interval.ms", settings.properties.pop(_DISCOVERY))
        settings.properties.pop("stream-metadata-discovery-failure-threshold", None)
        settings.properties.update(self._service._properties)
        settings.start = self._service._start or settings.start
        settings.stop = self._service._stop or settings.stop
        with at_users_line():
            return DynamicKafkaSource(engine=settings.engine())

    def set_stream_ids(self, stream_ids: Iterable[str]) -> Self:
        """Reads these streams."""
        return self.set_kafka_stream_subscriber(KafkaStreamSetSubscriber(stream_ids))

    def set_stream_pattern(self, stream_pattern: str) -> Self:
        """Reads all streams whose ids fully match a regular expression."""
        return self.set_kafka_stream_subscriber(StreamPatternSubscriber(stream_pattern))

    def set_kafka_stream_subscriber(self, kafka_stream_subscriber: KafkaStreamSubscriber) -> Self:
        """Reads the subscriber's streams."""
        if not isinstance(kafka_stream_subscriber, KafkaStreamSubscriber):
            raise refuse(
                f"set_kafka_stream_subscriber: found {kafka_stream_subscriber!r}, expected a KafkaStreamSubscriber"
            )
        self._settings.subscribe(kafka_stream_subscriber._subscription)
        return self

    def set_kafka_metadata_service(self, kafka_metadata_service: KafkaMetadataService) -> Self:
        """Sets the service that maps streams to topics."""
        if not isinstance(kafka_metadata_service, SingleClusterTopicMetadataService):
            raise refuse(
                f"set_kafka_metadata_service: found {kafka_metadata_service!r}, expected a "
                "SingleClusterTopicMetadataService. Others are Java classes, which cannot run here"
            )
        self._service = kafka_metadata_service
        return self


class DynamicKafkaSource(Source):
    """A source over streams that a metadata service maps to topics.

    >>> from millstream.common import SimpleStringSchema
    >>> service = SingleClusterTopicMetadataService("main", {"bootstrap.servers": "localhost:9092"})
    >>> builder = DynamicKafkaSource.builder().set_kafka_metadata_service(service).set_stream_ids({"orders"})
    >>> source = builder.set_value_only_deserializer(SimpleStringSchema()).build()
    """

    def __init__(self, j_dynamic_kafka_source: Any = None, *, engine: EngineKafkaSource | None = None) -> None:
        no_java_object(self, j_dynamic_kafka_source)
        if engine is None:
            raise refuse("DynamicKafkaSource: create one with DynamicKafkaSource.builder()….build()")
        super().__init__(engine)

    @staticmethod
    def builder() -> DynamicKafkaSourceBuilder:
        """Starts a builder."""
        return DynamicKafkaSourceBuilder()


add_pyflink_names(globals())
