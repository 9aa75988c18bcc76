"""Writing to databases.

Comes with connectors. The names and signatures are PyFlink's, so that programs can be written against them; making
or calling any of them says that it is not built yet, and what does the job meanwhile.
"""

from __future__ import annotations

from typing import Any

from millstream.datastream.functions.source_and_sink import SinkFunction
from millstream.errors import NotYetError

__all__ = [
    "JdbcConnectionOptions",
    "JdbcExecutionOptions",
    "JdbcSink",
]

_INSTEAD = "a PythonSource or TwoPhaseSink of your own, or Spark's connector by from_spark() and to_spark()"


def _not_yet(name: str) -> NotYetError:
    return NotYetError.of(name, "connectors", _INSTEAD)


class JdbcSink(SinkFunction):
    """PyFlink's `JdbcSink`; not built yet."""

    def __init__(self, j_jdbc_sink: Any = None) -> None:
        raise _not_yet("JdbcSink")

    @staticmethod
    def sink(
        sql: Any = None, type_info: Any = None, jdbc_connection_options: Any = None, jdbc_execution_options: Any = None
    ) -> Any:
        raise _not_yet("JdbcSink.sink")


class JdbcConnectionOptions:
    """PyFlink's `JdbcConnectionOptions`; not built yet."""

    class JdbcConnectionOptionsBuilder:
        """PyFlink's `JdbcConnectionOptions.JdbcConnectionOptionsBuilder`; not built yet."""

        def __init__(self) -> None:
            raise _not_yet("JdbcConnectionOptions.JdbcConnectionOptionsBuilder")

        def with_url(self, url: Any = None) -> Any:
            raise _not_yet("JdbcConnectionOptions.JdbcConnectionOptionsBuilder.with_url")

        def with_driver_name(self, driver_name: Any = None) -> Any:
            raise _not_yet("JdbcConnectionOptions.JdbcConnectionOptionsBuilder.with_driver_name")

        def with_user_name(self, user_name: Any = None) -> Any:
            raise _not_yet("JdbcConnectionOptions.JdbcConnectionOptionsBuilder.with_user_name")

        def with_password(self, password: Any = None) -> Any:
            raise _not_yet("JdbcConnectionOptions.JdbcConnectionOptionsBuilder.with_password")

        def build(self) -> Any:
            raise _not_yet("JdbcConnectionOptions.JdbcConnectionOptionsBuilder.build")

    def __init__(self, j_jdbc_connection_options: Any = None) -> None:
        raise _not_yet("JdbcConnectionOptions")

    def get_db_url(self) -> Any:
        raise _not_yet("JdbcConnectionOptions.get_db_url")

    def get_driver_name(self) -> Any:
        raise _not_yet("JdbcConnectionOptions.get_driver_name")

    def get_user_name(self) -> Any:
        raise _not_yet("JdbcConnectionOptions.get_user_name")

    def get_password(self) -> Any:
        raise _not_yet("JdbcConnectionOptions.get_password")


class JdbcExecutionOptions:
    """PyFlink's `JdbcExecutionOptions`; not built yet."""

    class Builder:
        """PyFlink's `JdbcExecutionOptions.Builder`; not built yet."""

        def __init__(self) -> None:
            raise _not_yet("JdbcExecutionOptions.Builder")

        def with_batch_size(self, size: Any = None) -> Any:
            raise _not_yet("JdbcExecutionOptions.Builder.with_batch_size")

        def with_batch_interval_ms(self, interval_ms: Any = None) -> Any:
            raise _not_yet("JdbcExecutionOptions.Builder.with_batch_interval_ms")

        def with_max_retries(self, max_retries: Any = None) -> Any:
            raise _not_yet("JdbcExecutionOptions.Builder.with_max_retries")

        def build(self) -> Any:
            raise _not_yet("JdbcExecutionOptions.Builder.build")

    def __init__(self, j_jdbc_execution_options: Any = None) -> None:
        raise _not_yet("JdbcExecutionOptions")

    def get_batch_interval_ms(self) -> Any:
        raise _not_yet("JdbcExecutionOptions.get_batch_interval_ms")

    def get_batch_size(self) -> Any:
        raise _not_yet("JdbcExecutionOptions.get_batch_size")

    def get_max_retries(self) -> Any:
        raise _not_yet("JdbcExecutionOptions.get_max_retries")

    @staticmethod
    def defaults() -> Any:
        raise _not_yet("JdbcExecutionOptions.defaults")

    @staticmethod
    def builder() -> Any:
        raise _not_yet("JdbcExecutionOptions.builder")
