"""Reads from and writes to RabbitMQ: `pip install millstream[rabbitmq]`. Needs no jar.

The source is exactly-once if each message has a unique correlation id (`use_correlation_id=True`), else at-least-once.
The sink is at-least-once; a repeated message has the same correlation id.

>>> config = RMQConnectionConfig.Builder().set_host("localhost").set_port(5672).set_user_name("guest") \\
...     .set_password("guest").set_virtual_host("/").build()
>>> config.get_host(), config.get_port()
('localhost', 5672)
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.connectors.rabbitmq.connection import RabbitAddress
from millstream.connectors.rabbitmq.sink import RabbitSink
from millstream.connectors.rabbitmq.source import RabbitSource
from millstream.datastream.functions.source_and_sink import SinkFunction, SourceFunction
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

__all__ = ["RMQConnectionConfig", "RMQSink", "RMQSource"]

_RECOVERY_MS = 5_000

_SHORT_MAX = 65_535
"""The maximum of AMQP's two-byte numbers."""


class RMQConnectionConfig:
    """The address and login of a RabbitMQ server. The password is never displayed."""

    def __init__(self, j_rmq_connection_config: Any = None) -> None:
        if not isinstance(j_rmq_connection_config, RabbitAddress):
            raise refuse("RMQConnectionConfig: create one with RMQConnectionConfig.Builder()")
        self._address = j_rmq_connection_config

    def __repr__(self) -> str:
        return f"RMQConnectionConfig({self._address.place})"

    def get_host(self) -> str:
        return self._address.host

    def get_port(self) -> int:
        return self._address.port

    def get_virtual_host(self) -> str:
        return self._address.virtual_host

    def get_user_name(self) -> str:
        return self._address.user_name

    def get_password(self) -> str:
        return self._address.password

    def get_uri(self) -> str | None:
        return self._address.uri

    def get_network_recovery_interval(self) -> int:
        """The recovery interval in ms. A lost connection is retried twice a second, for half a minute."""
        return _RECOVERY_MS

    def is_automatic_recovery(self) -> bool:
        return True

    def is_topology_recovery(self) -> bool:
        return True

    def get_connection_timeout(self) -> int:
        return self._address.connection_timeout_ms

    def get_requested_channel_max(self) -> int:
        return self._address.channel_max or 0

    def get_requested_frame_max(self) -> int:
        return self._address.frame_max or 0

    def get_requested_heartbeat(self) -> int:
        return self._address.heartbeat_s or 0

    class Builder:
        """Collects the settings."""

        def __init__(self) -> None:
            self._address = RabbitAddress()

        def _with(self, **changes: Any) -> Self:
            self._address = replace(self._address, **changes)
            return self

        def set_port(self, port: int) -> Self:
            checked_count("RMQConnectionConfig, port", port, most=_SHORT_MAX)
            return self._with(port=port)

        def set_host(self, host: str) -> Self:
            return self._with(host=checked_text("RMQConnectionConfig, host", host))

        def set_virtual_host(self, vhost: str) -> Self:
            return self._with(virtual_host=checked_text("RMQConnectionConfig, virtual host", vhost))

        def set_user_name(self, user_name: str) -> Self:
            return self._with(user_name=checked_text("RMQConnectionConfig, user name", user_name))

        def set_password(self, password: str) -> Self:
            if not isinstance(password, str):
                raise refuse("RMQConnectionConfig: the password is not a string")
            return self._with(password=password)

        def set_uri(self, uri: str) -> Self:
            """Sets the complete address: `amqp://user:password@host:port/virtual-host`."""
            if not isinstance(uri, str) or not uri.startswith(("amqp://", "amqps://")):
                raise refuse("RMQConnectionConfig: the uri must begin with amqp:// or amqps://")
            return self._with(uri=uri)

        def set_topology_recovery_enabled(self, topology_recovery_enabled: bool) -> Self:
            return self._always("topology recovery")

        def set_automatic_recovery(self, automatic_recovery: bool) -> Self:
            return self._always("automatic recovery")

        def set_network_recovery_interval(self, network_recovery_interval: int) -> Self:
            return self._always("the network recovery interval")

        def _always(self, setting: str) -> Self:
            log_once(f"rabbitmq {setting}", f"{setting} has no effect: a lost connection is retried for 30 s")
            return self

        def set_requested_heartbeat(self, requested_heartbeat: int) -> Self:
            """Sets the heartbeat interval in seconds."""
            checked_count("RMQConnectionConfig, heartbeat", requested_heartbeat, 0, _SHORT_MAX)
            return self._with(heartbeat_s=requested_heartbeat)

        def set_requested_frame_max(self, requested_frame_max: int) -> Self:
            checked_count("RMQConnectionConfig, frame max", requested_frame_max, least=0)
            return self._with(frame_max=requested_frame_max or None)

        def set_requested_channel_max(self, requested_channel_max: int) -> Self:
            checked_count("RMQConnectionConfig, channel max", requested_channel_max, 0, _SHORT_MAX)
            return self._with(channel_max=requested_channel_max or None)

        def set_connection_timeout(self, connection_timeout: int) -> Self:
            """Sets the connection timeout in ms."""
            checked_count("RMQConnectionConfig, connection timeout", connection_timeout, least=1)
            return self._with(connection_timeout_ms=connection_timeout)

        def set_prefetch_count(self, prefetch_count: int) -> Self:
            """Sets the maximum number of unacknowledged messages, by default 10,000."""
            checked_count("RMQConnectionConfig, prefetch count", prefetch_count, most=_SHORT_MAX)
            return self._with(prefetch_count=prefetch_count)

        def build(self) -> RMQConnectionConfig:
            with at_users_line():
                self._address.check()
            return RMQConnectionConfig(self._address)


def _address(what: str, connection_config: Any) -> RabbitAddress:
    if not isinstance(connection_config, RMQConnectionConfig):
        raise refuse(f"{what}: found {connection_config!r}, expected an RMQConnectionConfig")
    return connection_config._address


class RMQSource(SourceFunction):
    """Reads the messages of a queue, for `add_source`."""

    def __init__(
        self,
        connection_config: RMQConnectionConfig,
        queue_name: str,
        use_correlation_id: bool,
        deserialization_schema: DeserializationSchema,
    ) -> None:
        address, queue = _address("RMQSource", connection_config), checked_text("RMQSource, queue name", queue_name)
        if not isinstance(deserialization_schema, DeserializationSchema):
            raise refuse(f"RMQSource: found {deserialization_schema!r}, expected a DeserializationSchema")
        has_ids = checked_truth("RMQSource, use_correlation_id", use_correlation_id)
        with at_users_line():
            super().__init__(RabbitSource(address, queue, has_ids, deserialization_schema))


class RMQSink(SinkFunction):
    """Writes messages to a queue, for `add_sink`."""

    def __init__(
        self, connection_config: RMQConnectionConfig, queue_name: str, serialization_schema: SerializationSchema
    ) -> None:
        address, queue = _address("RMQSink", connection_config), checked_text("RMQSink, queue name", queue_name)
        if not isinstance(serialization_schema, SerializationSchema):
            raise refuse(f"RMQSink: found {serialization_schema!r}, expected a SerializationSchema")
        with at_users_line():
            super().__init__(RabbitSink(address, queue, serialization_schema))


add_pyflink_names(globals())
