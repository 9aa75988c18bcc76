"""Writing to Elasticsearch.

Comes with connectors. The names and signatures are PyFlink's, so that programs can be written against them; making
or calling any of them says that it is not built yet, and what does the job meanwhile.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from millstream.datastream.connectors.base import Sink
from millstream.errors import NotYetError

__all__ = [
    "Elasticsearch6SinkBuilder",
    "Elasticsearch7SinkBuilder",
    "ElasticsearchEmitter",
    "ElasticsearchSink",
    "ElasticsearchSinkBuilderBase",
    "FlushBackoffType",
]

_INSTEAD = "a PythonSource or TwoPhaseSink of your own, or Spark's connector by from_spark() and to_spark()"


def _not_yet(name: str) -> NotYetError:
    return NotYetError.of(name, "connectors", _INSTEAD)


class FlushBackoffType(Enum):
    """How the time between attempts of a bulk request grows."""

    CONSTANT = 0
    EXPONENTIAL = 1
    NONE = 2


class ElasticsearchEmitter:
    """PyFlink's `ElasticsearchEmitter`; not built yet."""

    def __init__(self, j_emitter: Any = None) -> None:
        raise _not_yet("ElasticsearchEmitter")

    @staticmethod
    def static_index(index: Any = None, key_field: Any = None, doc_type: Any = None) -> Any:
        raise _not_yet("ElasticsearchEmitter.static_index")

    @staticmethod
    def dynamic_index(index_field: Any = None, key_field: Any = None, doc_type: Any = None) -> Any:
        raise _not_yet("ElasticsearchEmitter.dynamic_index")


class ElasticsearchSinkBuilderBase:
    """PyFlink's `ElasticsearchSinkBuilderBase`; not built yet."""

    def __init__(self) -> None:
        raise _not_yet("ElasticsearchSinkBuilderBase")

    def get_http_host_class(self) -> Any:
        raise _not_yet("ElasticsearchSinkBuilderBase.get_http_host_class")

    def set_emitter(self, emitter: Any = None) -> Any:
        raise _not_yet("ElasticsearchSinkBuilderBase.set_emitter")

    def set_hosts(self, hosts: Any = None) -> Any:
        raise _not_yet("ElasticsearchSinkBuilderBase.set_hosts")

    def set_delivery_guarantee(self, delivery_guarantee: Any = None) -> Any:
        raise _not_yet("ElasticsearchSinkBuilderBase.set_delivery_guarantee")

    def set_bulk_flush_max_actions(self, num_max_actions: Any = None) -> Any:
        raise _not_yet("ElasticsearchSinkBuilderBase.set_bulk_flush_max_actions")

    def set_bulk_flush_max_size_mb(self, max_size_mb: Any = None) -> Any:
        raise _not_yet("ElasticsearchSinkBuilderBase.set_bulk_flush_max_size_mb")

    def set_bulk_flush_interval(self, interval_millis: Any = None) -> Any:
        raise _not_yet("ElasticsearchSinkBuilderBase.set_bulk_flush_interval")

    def set_bulk_flush_backoff_strategy(
        self, flush_backoff_type: Any = None, max_retries: Any = None, delay_millis: Any = None
    ) -> Any:
        raise _not_yet("ElasticsearchSinkBuilderBase.set_bulk_flush_backoff_strategy")

    def set_connection_username(self, username: Any = None) -> Any:
        raise _not_yet("ElasticsearchSinkBuilderBase.set_connection_username")

    def set_connection_password(self, password: Any = None) -> Any:
        raise _not_yet("ElasticsearchSinkBuilderBase.set_connection_password")

    def set_connection_path_prefix(self, prefix: Any = None) -> Any:
        raise _not_yet("ElasticsearchSinkBuilderBase.set_connection_path_prefix")

    def set_connection_request_timeout(self, timeout: Any = None) -> Any:
        raise _not_yet("ElasticsearchSinkBuilderBase.set_connection_request_timeout")

    def set_connection_timeout(self, timeout: Any = None) -> Any:
        raise _not_yet("ElasticsearchSinkBuilderBase.set_connection_timeout")

    def set_socket_timeout(self, timeout: Any = None) -> Any:
        raise _not_yet("ElasticsearchSinkBuilderBase.set_socket_timeout")

    def build(self) -> Any:
        raise _not_yet("ElasticsearchSinkBuilderBase.build")


class Elasticsearch6SinkBuilder(ElasticsearchSinkBuilderBase):
    """PyFlink's `Elasticsearch6SinkBuilder`; not built yet."""

    def __init__(self) -> None:
        raise _not_yet("Elasticsearch6SinkBuilder")

    def get_http_host_class(self) -> Any:
        raise _not_yet("Elasticsearch6SinkBuilder.get_http_host_class")


class Elasticsearch7SinkBuilder(ElasticsearchSinkBuilderBase):
    """PyFlink's `Elasticsearch7SinkBuilder`; not built yet."""

    def __init__(self) -> None:
        raise _not_yet("Elasticsearch7SinkBuilder")

    def get_http_host_class(self) -> Any:
        raise _not_yet("Elasticsearch7SinkBuilder.get_http_host_class")


class ElasticsearchSink(Sink):
    """PyFlink's `ElasticsearchSink`; not built yet."""

    def __init__(self, j_elasticsearch_sink: Any = None) -> None:
        raise _not_yet("ElasticsearchSink")
