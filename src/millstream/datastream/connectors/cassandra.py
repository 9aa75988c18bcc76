"""Writing to Cassandra.

Comes with connectors. The names and signatures are PyFlink's, so that programs can be written against them; making
or calling any of them says that it is not built yet, and what does the job meanwhile.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

from millstream.errors import NotYetError

__all__ = [
    "CassandraCommitter",
    "CassandraFailureHandler",
    "CassandraSink",
    "ClusterBuilder",
    "ConsistencyLevel",
    "MapperOptions",
]

_INSTEAD = "a PythonSource or TwoPhaseSink of your own, or Spark's connector by from_spark() and to_spark()"


def _not_yet(name: str) -> NotYetError:
    return NotYetError.of(name, "connectors", _INSTEAD)


class ConsistencyLevel(Enum):
    """How many replicas must have a write."""

    ANY = 0
    ONE = 1
    TWO = 2
    THREE = 3
    QUORUM = 4
    ALL = 5
    LOCAL_QUORUM = 6
    EACH_QUORUM = 7
    SERIAL = 8
    LOCAL_SERIAL = 9
    LOCAL_ONE = 10


class MapperOptions:
    """PyFlink's `MapperOptions`; not built yet."""

    def __init__(self) -> None:
        raise _not_yet("MapperOptions")

    def ttl(self, ttl: Any = None) -> Any:
        raise _not_yet("MapperOptions.ttl")

    def timestamp(self, timestamp: Any = None) -> Any:
        raise _not_yet("MapperOptions.timestamp")

    def consistency_level(self, cl: Any = None) -> Any:
        raise _not_yet("MapperOptions.consistency_level")

    def tracing(self, enabled: Any = None) -> Any:
        raise _not_yet("MapperOptions.tracing")

    def save_null_fields(self, enabled: Any = None) -> Any:
        raise _not_yet("MapperOptions.save_null_fields")

    def if_not_exists(self, enabled: Any = None) -> Any:
        raise _not_yet("MapperOptions.if_not_exists")


class ClusterBuilder:
    """PyFlink's `ClusterBuilder`; not built yet."""

    def __init__(self, j_cluster_builder: Any = None) -> None:
        raise _not_yet("ClusterBuilder")


class CassandraCommitter:
    """PyFlink's `CassandraCommitter`; not built yet."""

    def __init__(self, j_checkpoint_committer: Any = None) -> None:
        raise _not_yet("CassandraCommitter")

    @staticmethod
    def default_checkpoint_committer(builder: Any = None, key_space: Any = None) -> Any:
        raise _not_yet("CassandraCommitter.default_checkpoint_committer")


class CassandraFailureHandler:
    """PyFlink's `CassandraFailureHandler`; not built yet."""

    def __init__(self, j_cassandra_failure_handler: Any = None) -> None:
        raise _not_yet("CassandraFailureHandler")

    @staticmethod
    def no_op() -> Any:
        raise _not_yet("CassandraFailureHandler.no_op")


class CassandraSink:
    """PyFlink's `CassandraSink`; not built yet."""

    class CassandraSinkBuilder:
        """PyFlink's `CassandraSink.CassandraSinkBuilder`; not built yet."""

        def __init__(self, j_cassandra_sink_builder: Any = None) -> None:
            raise _not_yet("CassandraSink.CassandraSinkBuilder")

        def set_query(self, query: Any = None) -> Any:
            raise _not_yet("CassandraSink.CassandraSinkBuilder.set_query")

        def set_host(self, host: Any = None, port: Any = None) -> Any:
            raise _not_yet("CassandraSink.CassandraSinkBuilder.set_host")

        def set_cluster_builder(self, builder: Any = None) -> Any:
            raise _not_yet("CassandraSink.CassandraSinkBuilder.set_cluster_builder")

        def enable_write_ahead_log(self, committer: Any = None) -> Any:
            raise _not_yet("CassandraSink.CassandraSinkBuilder.enable_write_ahead_log")

        def set_mapper_options(self, options: Any = None) -> Any:
            raise _not_yet("CassandraSink.CassandraSinkBuilder.set_mapper_options")

        def set_failure_handler(self, failure_handler: Any = None) -> Any:
            raise _not_yet("CassandraSink.CassandraSinkBuilder.set_failure_handler")

        def set_max_concurrent_requests(self, max_concurrent_requests: Any = None, duration: Any = None) -> Any:
            raise _not_yet("CassandraSink.CassandraSinkBuilder.set_max_concurrent_requests")

        def enable_ignore_null_fields(self) -> Any:
            raise _not_yet("CassandraSink.CassandraSinkBuilder.enable_ignore_null_fields")

        def build(self) -> Any:
            raise _not_yet("CassandraSink.CassandraSinkBuilder.build")

    def __init__(self, j_cassandra_sink: Any = None) -> None:
        raise _not_yet("CassandraSink")

    def name(self, name: Any = None) -> Any:
        raise _not_yet("CassandraSink.name")

    def uid(self, uid: Any = None) -> Any:
        raise _not_yet("CassandraSink.uid")

    def set_uid_hash(self, uid_hash: Any = None) -> Any:
        raise _not_yet("CassandraSink.set_uid_hash")

    def set_parallelism(self, parallelism: Any = None) -> Any:
        raise _not_yet("CassandraSink.set_parallelism")

    def disable_chaining(self) -> Any:
        raise _not_yet("CassandraSink.disable_chaining")

    def slot_sharing_group(self, slot_sharing_group: Any = None) -> Any:
        raise _not_yet("CassandraSink.slot_sharing_group")

    @staticmethod
    def add_sink(input: Any = None) -> Any:
        raise _not_yet("CassandraSink.add_sink")
