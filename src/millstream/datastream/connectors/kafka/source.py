"""Kafka sources: PyFlink's builder, and the older FlinkKafkaConsumer. Both create a
`connectors.kafka.source.KafkaSource`.

Building a source opens no connection. The job queries the brokers for the topics when it starts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from millstream.common.options.option import parse_boolean
from millstream.common.serialization import DeserializationSchema
from millstream.common.typeinfo import TypeInformation
from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kafka.offsets import EARLIEST, LATEST, OffsetRule, Partition, Reset, committed
from millstream.connectors.kafka.partitions import Subscription
from millstream.connectors.kafka.records import RecordLayout
from millstream.connectors.kafka.source import KafkaSource as EngineKafkaSource
from millstream.datastream.connectors.base import Source
from millstream.datastream.connectors.kafka.offsets import KafkaOffsetsInitializer, KafkaTopicPartition, checked_rule
from millstream.datastream.connectors.kafka.record_schemas import layout_of
from millstream.datastream.functions.source_and_sink import SourceFunction
from millstream.datastream.streams.argument_checks import at_users_line, checked_text, checked_truth, refuse
from millstream.datastream.streams.stream_edges import no_java_object
from millstream.errors import ConfigurationError
from millstream.graph.notices import log_once

if TYPE_CHECKING:
    from typing import Self

__all__ = [
    "FlinkKafkaConsumer",
    "FlinkKafkaConsumerBase",
    "KafkaSource",
    "KafkaSourceBuilder",
    "SourceBuilder",
    "SourceSettings",
]

_DISCOVERY = "partition.discovery.interval.ms"
_OLD_DISCOVERY = "flink.partition-discovery.interval-millis"
_COMMITS = "commit.offsets.on.checkpoint"
_CLIENT_ID_PREFIX = "client.id.prefix"
_OWN = (_DISCOVERY, _OLD_DISCOVERY, _COMMITS, _CLIENT_ID_PREFIX, "auto.offset.reset", "enable.auto.commit")
"""Properties of the source itself; they are not passed to the client."""
_DISCOVERY_INTERVAL_MS = 300_000


class SourceSettings:
    """The settings of a Kafka source collected so far. For error messages, `owner` is the class that the program uses,
    and `choices` are the methods that select the input."""

    def __init__(self, owner: str, choices: str = "set_topics(…), set_topic_pattern(…) or set_partitions(…)") -> None:
        self._owner, self._choices = owner, choices
        self.properties: dict[str, Any] = {}
        self.subscription: Subscription | None = None
        self.layout: RecordLayout | None = None
        self.start: OffsetRule = EARLIEST
        self.stop: OffsetRule | None = None
        self.bounded = False
        self.discovery_interval_ms = _DISCOVERY_INTERVAL_MS

    def subscribe(self, subscription: Subscription) -> None:
        """Sets the input; only one subscription is allowed."""
        if self.subscription is not None:
            raise refuse(f"{self._owner}: it already reads {self.subscription}, and cannot read {subscription} as well")
        self.subscription = subscription

    def set_property(self, key: Any, value: Any) -> None:
        """Sets a property of Kafka's consumer, or of the source."""
        self.properties[checked_text(f"{self._owner}.set_property, key", key)] = value

    def engine(self) -> EngineKafkaSource:
        """Creates the engine's source."""
        if self.subscription is None:
            raise refuse(f"{self._owner}: nothing to read. Call {self._choices}")
        if self.layout is None:
            raise refuse(f"{self._owner}: no schema. Call set_value_only_deserializer(SimpleStringSchema()) or another")
        settings = ClientSettings.of(self.properties)
        if not settings.bootstrap_servers:
            raise refuse(f"{self._owner}: no brokers. Call set_bootstrap_servers('host:9092')")
        level = settings.get("isolation.level", "read_committed")
        if level not in ("read_committed", "read_uncommitted"):
            raise refuse(f"{self._owner}: isolation.level is {level!r}, expected read_committed or read_uncommitted")
        group = settings.get("group.id") or ""
        if not group and "committed" in {self.start.kind, self.stop.kind if self.stop is not None else ""}:
            raise refuse(f"{self._owner}: committed offsets belong to a consumer group. Call set_group_id('…')")
        prefix = settings.get(_CLIENT_ID_PREFIX)
        client = settings.without(*_OWN)
        if prefix is not None and settings.get("client.id") is None:
            client = ClientSettings.of({**dict(client.properties), "client.id": prefix})
        return EngineKafkaSource(
            client,
            self.subscription,
            self.layout,
            start=self.start,
            stop=self.stop,
            bounded=self.bounded,
            group=group,
            discovery_interval_ms=self._discovery_interval_ms(settings),
            commits_offsets=self._commits_offsets(settings),
        )

    def _commits_offsets(self, settings: ClientSettings) -> bool:
        text = settings.get(_COMMITS) or "true"
        try:
            return parse_boolean(text)
        except ConfigurationError:
            raise refuse(f"{self._owner}: {_COMMITS} is {text!r}, expected true or false") from None

    def _discovery_interval_ms(self, settings: ClientSettings) -> int:
        text = settings.get(_DISCOVERY) or settings.get(_OLD_DISCOVERY)
        try:
            return self.discovery_interval_ms if text is None else max(0, int(text))
        except ValueError:
            raise refuse(f"{self._owner}: {_DISCOVERY} is {text!r}, expected milliseconds; 0: discover once") from None


class SourceBuilder:
    """The settings common to the builders of all Kafka sources."""

    def __init__(self, settings: SourceSettings) -> None:
        self._settings = settings

    def set_group_id(self, group_id: str) -> Self:
        """Sets the consumer group whose offsets the job commits."""
        self._settings.properties["group.id"] = checked_text("set_group_id", group_id)
        return self

    def set_starting_offsets(self, starting_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Sets the start offsets, by default earliest. They are determined once: a restart resumes from the job's
        position."""
        self._settings.start = checked_rule("set_starting_offsets", starting_offsets_initializer)
        return self

    def set_bounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Sets the end of the source. `latest()` is the newest record at the job's first start."""
        self._settings.stop = checked_rule("set_bounded", stopping_offsets_initializer)
        self._settings.bounded = True
        return self

    def set_value_only_deserializer(self, deserialization_schema: DeserializationSchema) -> Self:
        """Sets the deserializer of values."""
        self._settings.layout = layout_of("set_value_only_deserializer", deserialization_schema)
        return self

    def set_deserializer(self, deserializer: DeserializationSchema) -> Self:
        """Sets the deserializer of records: a `KafkaRecordDeserializationSchema` (beyond PyFlink)."""
        self._settings.layout = layout_of("set_deserializer", deserializer)
        return self

    def set_client_id_prefix(self, prefix: str) -> Self:
        """Sets the prefix of client ids."""
        self._settings.properties[_CLIENT_ID_PREFIX] = checked_text("set_client_id_prefix", prefix)
        return self

    def set_property(self, key: str, value: str) -> Self:
        """Sets a property of Kafka's consumer, or of the source, such as `partition.discovery.interval.ms`."""
        self._settings.set_property(key, value)
        return self

    def set_properties(self, props: Mapping[str, str]) -> Self:
        """Sets several properties."""
        if not isinstance(props, Mapping):
            raise refuse(f"set_properties: found a {type(props).__name__}, expected a dict")
        for key, value in props.items():
            self._settings.set_property(key, value)
        return self


class KafkaSourceBuilder(SourceBuilder):
    """Collects a Kafka source's settings."""

    def __init__(self) -> None:
        super().__init__(SourceSettings("KafkaSource"))

    def build(self) -> KafkaSource:
        """The source."""
        with at_users_line():
            return KafkaSource(engine=self._settings.engine())

    def set_bootstrap_servers(self, bootstrap_servers: str) -> Self:
        """Sets the bootstrap brokers: 'host:9092,other:9092'."""
        self._settings.properties["bootstrap.servers"] = checked_text("set_bootstrap_servers", bootstrap_servers)
        return self

    def set_topics(self, *topics: str) -> Self:
        """Reads these topics."""
        if not topics:
            raise refuse("set_topics: found no topic, expected at least one")
        names = tuple(checked_text("set_topics", topic) for topic in topics)
        with at_users_line():
            self._settings.subscribe(Subscription(topics=tuple(dict.fromkeys(names))))
        return self

    def set_topic_pattern(self, topic_pattern: str) -> Self:
        """Reads all topics whose names fully match a regular expression, including topics created later."""
        with at_users_line():
            self._settings.subscribe(Subscription(pattern=checked_text("set_topic_pattern", topic_pattern)))
        return self

    def set_partitions(self, partitions: Iterable[KafkaTopicPartition]) -> Self:
        """Reads these partitions."""
        chosen = list(partitions) if isinstance(partitions, Iterable) else [partitions]
        wrong = [each for each in chosen if not isinstance(each, KafkaTopicPartition)]
        if wrong or not chosen:
            raise refuse(f"set_partitions: found {wrong or partitions!r}, expected a set of KafkaTopicPartition")
        names = {Partition(each.topic, each.partition) for each in chosen}
        with at_users_line():
            self._settings.subscribe(Subscription(partitions=tuple(sorted(names))))
        return self

    def set_unbounded(self, stopping_offsets_initializer: KafkaOffsetsInitializer) -> Self:
        """Sets the end of each partition. The source itself does not end, because new partitions may be created."""
        self._settings.stop = checked_rule("set_unbounded", stopping_offsets_initializer)
        self._settings.bounded = False
        return self


class KafkaSource(Source):
    """A source over Kafka topics.

    >>> from millstream.common import SimpleStringSchema
    >>> builder = KafkaSource.builder().set_bootstrap_servers("localhost:9092").set_topics("orders")
    >>> source = builder.set_value_only_deserializer(SimpleStringSchema()).build()
    """

    def __init__(self, j_kafka_source: Any = None, *, engine: EngineKafkaSource | None = None) -> None:
        no_java_object(self, j_kafka_source)
        if engine is None:
            raise refuse("KafkaSource: create one with KafkaSource.builder()….build()")
        super().__init__(engine)

    @staticmethod
    def builder() -> KafkaSourceBuilder:
        """Starts a builder."""
        return KafkaSourceBuilder()


class FlinkKafkaConsumerBase(SourceFunction):
    """A Kafka source for `add_source`, with the older methods for start offsets."""

    def __init__(self, j_flink_kafka_consumer: Any = None, *, settings: SourceSettings | None = None) -> None:
        no_java_object(self, j_flink_kafka_consumer)
        if settings is None:
            raise refuse("FlinkKafkaConsumerBase: make a FlinkKafkaConsumer(topics, schema, properties)")
        self._settings = settings
        with at_users_line():
            super().__init__(settings.engine())

    def _start_from(self, rule: OffsetRule) -> Self:
        self._settings.start = rule
        with at_users_line():
            self._connector = self._settings.engine()
        return self

    def set_commit_offsets_on_checkpoints(self, commit_on_checkpoints: bool) -> Self:
        """Sets whether the group's offsets are committed; True by default."""
        truth = checked_truth("set_commit_offsets_on_checkpoints", commit_on_checkpoints)
        self._settings.properties[_COMMITS] = truth
        return self._start_from(self._settings.start)

    def set_start_from_earliest(self) -> Self:
        """Starts at the earliest record."""
        return self._start_from(EARLIEST)

    def set_start_from_latest(self) -> Self:
        """Starts after the newest record."""
        return self._start_from(LATEST)

    def set_start_from_timestamp(self, startup_offsets_timestamp: int) -> Self:
        """Starts at the first record with this timestamp or a later one."""
        return self._start_from(KafkaOffsetsInitializer.timestamp(startup_offsets_timestamp)._rule)

    def set_start_from_group_offsets(self) -> Self:
        """Starts at the group's committed offset, otherwise by `auto.offset.reset`. This is the default."""
        return self._start_from(_group_start(self._settings.properties))

    def disable_filter_restored_partitions_with_subscribed_topics(self) -> Self:
        """Accepted without effect: partitions with a stored position are always read, even of topics no longer
        subscribed."""
        log_once("restored partitions", "partitions with a position are always read: there is no filter to disable")
        return self

    def get_produced_type(self) -> TypeInformation | None:
        """The type of the records."""
        assert self._settings.layout is not None
        return self._settings.layout.value_schema.produced_type()


class FlinkKafkaConsumer(FlinkKafkaConsumerBase):
    """Reads topics, by default from the group's committed offset. New programs use `KafkaSource`.

    >>> from millstream.common import SimpleStringSchema
    >>> consumer = FlinkKafkaConsumer("in", SimpleStringSchema(), {"bootstrap.servers": "a:9092", "group.id": "g"})
    """

    def __init__(
        self, topics: str | list[str], deserialization_schema: DeserializationSchema, properties: Mapping[str, str]
    ) -> None:
        settings = SourceSettings("FlinkKafkaConsumer")
        names = list(topics) if isinstance(topics, Iterable) and not isinstance(topics, str) else [topics]
        if not isinstance(properties, Mapping):
            raise refuse(f"FlinkKafkaConsumer: found a {type(properties).__name__} as properties, expected a dict")
        settings.properties.update(properties)
        if not names:
            raise refuse("FlinkKafkaConsumer: found no topic, expected at least one")
        settings.subscribe(
            Subscription(topics=tuple(checked_text("FlinkKafkaConsumer, topic", name) for name in names))
        )
        settings.layout = layout_of("FlinkKafkaConsumer", deserialization_schema)
        settings.start = _group_start(properties)
        settings.discovery_interval_ms = 0
        super().__init__(settings=settings)


def _group_start(properties: Mapping[str, Any]) -> OffsetRule:
    resets: dict[str, Reset] = {"earliest": "earliest", "latest": "latest", "none": "none"}
    text = str(properties.get("auto.offset.reset", "latest"))
    if text not in resets:
        raise refuse(f"auto.offset.reset: found {text!r}, expected earliest, latest or none")
    return committed(resets[text])
