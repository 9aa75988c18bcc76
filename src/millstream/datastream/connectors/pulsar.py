"""Reading from and writing to Pulsar.

Comes with connectors. The names and signatures are PyFlink's, so that programs can be written against them; making
or calling any of them says that it is not built yet, and what does the job meanwhile.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from millstream.datastream.connectors.base import Sink, Source
from millstream.errors import NotYetError

__all__ = [
    "MessageDelayer",
    "PulsarSink",
    "PulsarSinkBuilder",
    "PulsarSource",
    "PulsarSourceBuilder",
    "RangeGenerator",
    "StartCursor",
    "StopCursor",
    "TopicRoutingMode",
]

_INSTEAD = "a PythonSource or TwoPhaseSink of your own, or Spark's connector by from_spark() and to_spark()"


def _not_yet(name: str) -> NotYetError:
    return NotYetError.of(name, "connectors", _INSTEAD)


class StartCursor:
    """PyFlink's `StartCursor`; not built yet."""

    def __init__(self, _j_start_cursor: Any = None) -> None:
        raise _not_yet("StartCursor")

    @staticmethod
    def default_start_cursor() -> Any:
        raise _not_yet("StartCursor.default_start_cursor")

    @staticmethod
    def earliest() -> Any:
        raise _not_yet("StartCursor.earliest")

    @staticmethod
    def latest() -> Any:
        raise _not_yet("StartCursor.latest")

    @staticmethod
    def from_message_id(message_id: Any = None, inclusive: Any = None) -> Any:
        raise _not_yet("StartCursor.from_message_id")

    @staticmethod
    def from_publish_time(timestamp: Any = None) -> Any:
        raise _not_yet("StartCursor.from_publish_time")


class StopCursor:
    """PyFlink's `StopCursor`; not built yet."""

    def __init__(self, _j_stop_cursor: Any = None) -> None:
        raise _not_yet("StopCursor")

    @staticmethod
    def default_stop_cursor() -> Any:
        raise _not_yet("StopCursor.default_stop_cursor")

    @staticmethod
    def never() -> Any:
        raise _not_yet("StopCursor.never")

    @staticmethod
    def latest() -> Any:
        raise _not_yet("StopCursor.latest")

    @staticmethod
    def at_event_time(timestamp: Any = None) -> Any:
        raise _not_yet("StopCursor.at_event_time")

    @staticmethod
    def after_event_time(timestamp: Any = None) -> Any:
        raise _not_yet("StopCursor.after_event_time")

    @staticmethod
    def at_publish_time(timestamp: Any = None) -> Any:
        raise _not_yet("StopCursor.at_publish_time")

    @staticmethod
    def after_publish_time(timestamp: Any = None) -> Any:
        raise _not_yet("StopCursor.after_publish_time")

    @staticmethod
    def at_message_id(message_id: Any = None) -> Any:
        raise _not_yet("StopCursor.at_message_id")

    @staticmethod
    def after_message_id(message_id: Any = None) -> Any:
        raise _not_yet("StopCursor.after_message_id")


class RangeGenerator:
    """PyFlink's `RangeGenerator`; not built yet."""

    def __init__(self, j_range_generator: Any = None) -> None:
        raise _not_yet("RangeGenerator")

    @staticmethod
    def full() -> Any:
        raise _not_yet("RangeGenerator.full")

    @staticmethod
    def fixed_key(
        support_null_key: Any = None, keys: Any = None, key_bytes: Any = None, ordering_key_bytes: Any = None
    ) -> Any:
        raise _not_yet("RangeGenerator.fixed_key")


class PulsarSource(Source):
    """PyFlink's `PulsarSource`; not built yet."""

    def __init__(self, j_pulsar_source: Any = None) -> None:
        raise _not_yet("PulsarSource")

    @staticmethod
    def builder() -> Any:
        raise _not_yet("PulsarSource.builder")


class PulsarSourceBuilder:
    """PyFlink's `PulsarSourceBuilder`; not built yet."""

    def __init__(self) -> None:
        raise _not_yet("PulsarSourceBuilder")

    def set_admin_url(self, admin_url: Any = None) -> Any:
        raise _not_yet("PulsarSourceBuilder.set_admin_url")

    def set_service_url(self, service_url: Any = None) -> Any:
        raise _not_yet("PulsarSourceBuilder.set_service_url")

    def set_subscription_name(self, subscription_name: Any = None) -> Any:
        raise _not_yet("PulsarSourceBuilder.set_subscription_name")

    def set_topics(self, topics: Any = None) -> Any:
        raise _not_yet("PulsarSourceBuilder.set_topics")

    def set_topic_pattern(self, topic_pattern: Any = None) -> Any:
        raise _not_yet("PulsarSourceBuilder.set_topic_pattern")

    def set_consumer_name(self, consumer_name: Any = None) -> Any:
        raise _not_yet("PulsarSourceBuilder.set_consumer_name")

    def set_range_generator(self, range_generator: Any = None) -> Any:
        raise _not_yet("PulsarSourceBuilder.set_range_generator")

    def set_start_cursor(self, start_cursor: Any = None) -> Any:
        raise _not_yet("PulsarSourceBuilder.set_start_cursor")

    def set_unbounded_stop_cursor(self, stop_cursor: Any = None) -> Any:
        raise _not_yet("PulsarSourceBuilder.set_unbounded_stop_cursor")

    def set_bounded_stop_cursor(self, stop_cursor: Any = None) -> Any:
        raise _not_yet("PulsarSourceBuilder.set_bounded_stop_cursor")

    def set_deserialization_schema(self, deserialization_schema: Any = None) -> Any:
        raise _not_yet("PulsarSourceBuilder.set_deserialization_schema")

    def set_authentication(self, auth_plugin_class_name: Any = None, auth_params_string: Any = None) -> Any:
        raise _not_yet("PulsarSourceBuilder.set_authentication")

    def set_config(self, key: Any = None, value: Any = None) -> Any:
        raise _not_yet("PulsarSourceBuilder.set_config")

    def set_config_with_dict(self, config: Any = None) -> Any:
        raise _not_yet("PulsarSourceBuilder.set_config_with_dict")

    def set_properties(self, config: Any = None) -> Any:
        raise _not_yet("PulsarSourceBuilder.set_properties")

    def build(self) -> Any:
        raise _not_yet("PulsarSourceBuilder.build")


class TopicRoutingMode(Enum):
    """How a message finds its topic partition."""

    ROUND_ROBIN = 0
    MESSAGE_KEY_HASH = 1
    CUSTOM = 2


class MessageDelayer:
    """PyFlink's `MessageDelayer`; not built yet."""

    def __init__(self, _j_message_delayer: Any = None) -> None:
        raise _not_yet("MessageDelayer")

    @staticmethod
    def never() -> Any:
        raise _not_yet("MessageDelayer.never")

    @staticmethod
    def fixed(duration: Any = None) -> Any:
        raise _not_yet("MessageDelayer.fixed")


class PulsarSink(Sink):
    """PyFlink's `PulsarSink`; not built yet."""

    def __init__(self, j_pulsar_sink: Any = None) -> None:
        raise _not_yet("PulsarSink")

    @staticmethod
    def builder() -> Any:
        raise _not_yet("PulsarSink.builder")


class PulsarSinkBuilder:
    """PyFlink's `PulsarSinkBuilder`; not built yet."""

    def __init__(self) -> None:
        raise _not_yet("PulsarSinkBuilder")

    def set_admin_url(self, admin_url: Any = None) -> Any:
        raise _not_yet("PulsarSinkBuilder.set_admin_url")

    def set_service_url(self, service_url: Any = None) -> Any:
        raise _not_yet("PulsarSinkBuilder.set_service_url")

    def set_producer_name(self, producer_name: Any = None) -> Any:
        raise _not_yet("PulsarSinkBuilder.set_producer_name")

    def set_topics(self, topics: Any = None) -> Any:
        raise _not_yet("PulsarSinkBuilder.set_topics")

    def set_delivery_guarantee(self, delivery_guarantee: Any = None) -> Any:
        raise _not_yet("PulsarSinkBuilder.set_delivery_guarantee")

    def set_topic_routing_mode(self, topic_routing_mode: Any = None) -> Any:
        raise _not_yet("PulsarSinkBuilder.set_topic_routing_mode")

    def set_topic_router(self, topic_router_class_name: Any = None) -> Any:
        raise _not_yet("PulsarSinkBuilder.set_topic_router")

    def set_serialization_schema(self, serialization_schema: Any = None) -> Any:
        raise _not_yet("PulsarSinkBuilder.set_serialization_schema")

    def set_authentication(self, auth_plugin_class_name: Any = None, auth_params_string: Any = None) -> Any:
        raise _not_yet("PulsarSinkBuilder.set_authentication")

    def delay_sending_message(self, message_delayer: Any = None) -> Any:
        raise _not_yet("PulsarSinkBuilder.delay_sending_message")

    def set_config(self, key: Any = None, value: Any = None) -> Any:
        raise _not_yet("PulsarSinkBuilder.set_config")

    def set_properties(self, config: Any = None) -> Any:
        raise _not_yet("PulsarSinkBuilder.set_properties")

    def build(self) -> Any:
        raise _not_yet("PulsarSinkBuilder.build")
