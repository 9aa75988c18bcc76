"""Reading from and writing to RabbitMQ.

Comes with connectors. The names and signatures are PyFlink's, so that programs can be written against them; making
or calling any of them says that it is not built yet, and what does the job meanwhile.
"""

from __future__ import annotations

from typing import Any

from millstream.datastream.functions.source_and_sink import SinkFunction, SourceFunction
from millstream.errors import NotYetError

__all__ = [
    "RMQConnectionConfig",
    "RMQSink",
    "RMQSource",
]

_INSTEAD = "a PythonSource or TwoPhaseSink of your own, or Spark's connector by from_spark() and to_spark()"


def _not_yet(name: str) -> NotYetError:
    return NotYetError.of(name, "connectors", _INSTEAD)


class RMQConnectionConfig:
    """PyFlink's `RMQConnectionConfig`; not built yet."""

    class Builder:
        """PyFlink's `RMQConnectionConfig.Builder`; not built yet."""

        def __init__(self) -> None:
            raise _not_yet("RMQConnectionConfig.Builder")

        def set_port(self, port: Any = None) -> Any:
            raise _not_yet("RMQConnectionConfig.Builder.set_port")

        def set_host(self, host: Any = None) -> Any:
            raise _not_yet("RMQConnectionConfig.Builder.set_host")

        def set_virtual_host(self, vhost: Any = None) -> Any:
            raise _not_yet("RMQConnectionConfig.Builder.set_virtual_host")

        def set_user_name(self, user_name: Any = None) -> Any:
            raise _not_yet("RMQConnectionConfig.Builder.set_user_name")

        def set_password(self, password: Any = None) -> Any:
            raise _not_yet("RMQConnectionConfig.Builder.set_password")

        def set_uri(self, uri: Any = None) -> Any:
            raise _not_yet("RMQConnectionConfig.Builder.set_uri")

        def set_topology_recovery_enabled(self, topology_recovery_enabled: Any = None) -> Any:
            raise _not_yet("RMQConnectionConfig.Builder.set_topology_recovery_enabled")

        def set_requested_heartbeat(self, requested_heartbeat: Any = None) -> Any:
            raise _not_yet("RMQConnectionConfig.Builder.set_requested_heartbeat")

        def set_requested_frame_max(self, requested_frame_max: Any = None) -> Any:
            raise _not_yet("RMQConnectionConfig.Builder.set_requested_frame_max")

        def set_requested_channel_max(self, requested_channel_max: Any = None) -> Any:
            raise _not_yet("RMQConnectionConfig.Builder.set_requested_channel_max")

        def set_network_recovery_interval(self, network_recovery_interval: Any = None) -> Any:
            raise _not_yet("RMQConnectionConfig.Builder.set_network_recovery_interval")

        def set_connection_timeout(self, connection_timeout: Any = None) -> Any:
            raise _not_yet("RMQConnectionConfig.Builder.set_connection_timeout")

        def set_automatic_recovery(self, automatic_recovery: Any = None) -> Any:
            raise _not_yet("RMQConnectionConfig.Builder.set_automatic_recovery")

        def set_prefetch_count(self, prefetch_count: Any = None) -> Any:
            raise _not_yet("RMQConnectionConfig.Builder.set_prefetch_count")

        def build(self) -> Any:
            raise _not_yet("RMQConnectionConfig.Builder.build")

    def __init__(self, j_rmq_connection_config: Any = None) -> None:
        raise _not_yet("RMQConnectionConfig")

    def get_host(self) -> Any:
        raise _not_yet("RMQConnectionConfig.get_host")

    def get_port(self) -> Any:
        raise _not_yet("RMQConnectionConfig.get_port")

    def get_virtual_host(self) -> Any:
        raise _not_yet("RMQConnectionConfig.get_virtual_host")

    def get_user_name(self) -> Any:
        raise _not_yet("RMQConnectionConfig.get_user_name")

    def get_password(self) -> Any:
        raise _not_yet("RMQConnectionConfig.get_password")

    def get_uri(self) -> Any:
        raise _not_yet("RMQConnectionConfig.get_uri")

    def get_network_recovery_interval(self) -> Any:
        raise _not_yet("RMQConnectionConfig.get_network_recovery_interval")

    def is_automatic_recovery(self) -> Any:
        raise _not_yet("RMQConnectionConfig.is_automatic_recovery")

    def is_topology_recovery(self) -> Any:
        raise _not_yet("RMQConnectionConfig.is_topology_recovery")

    def get_connection_timeout(self) -> Any:
        raise _not_yet("RMQConnectionConfig.get_connection_timeout")

    def get_requested_channel_max(self) -> Any:
        raise _not_yet("RMQConnectionConfig.get_requested_channel_max")

    def get_requested_frame_max(self) -> Any:
        raise _not_yet("RMQConnectionConfig.get_requested_frame_max")

    def get_requested_heartbeat(self) -> Any:
        raise _not_yet("RMQConnectionConfig.get_requested_heartbeat")


class RMQSource(SourceFunction):
    """PyFlink's `RMQSource`; not built yet."""

    def __init__(
        self,
        connection_config: Any = None,
        queue_name: Any = None,
        use_correlation_id: Any = None,
        deserialization_schema: Any = None,
    ) -> None:
        raise _not_yet("RMQSource")


class RMQSink(SinkFunction):
    """PyFlink's `RMQSink`; not built yet."""

    def __init__(self, connection_config: Any = None, queue_name: Any = None, serialization_schema: Any = None) -> None:
        raise _not_yet("RMQSink")
