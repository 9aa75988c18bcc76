"""Writes to databases with a SQL statement of the program, under PyFlink's names.

In Flink this sink is at-least-once: rows reach the database in batches before their checkpoint completes, and are
repeated after a failure. Here they are staged, and the statements of an epoch run in one transaction that also records
the commit (table `millstream_commits`, created if it does not exist). This is exactly-once, even for a plain INSERT. No
JVM or JDBC driver is used: `jdbc:postgresql:` uses psycopg, `jdbc:mysql:` and `jdbc:mariadb:` use PyMySQL.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.databases.addresses import DatabaseAddress, parse_address
from millstream.connectors.databases.patience import Patience
from millstream.connectors.databases.sink import DatabaseSink, StatementRows
from millstream.datastream.functions.source_and_sink import SinkFunction
from millstream.datastream.streams.argument_checks import at_users_line
from millstream.errors import ProgramError
from millstream.pyflink_names import add_pyflink_names

__all__ = ["JdbcConnectionOptions", "JdbcExecutionOptions", "JdbcSink"]


class JdbcSink(SinkFunction):
    """A sink for `DataStream.add_sink`; created by `JdbcSink.sink`."""

    def __init__(self, j_jdbc_sink: DatabaseSink) -> None:
        super().__init__(j_jdbc_sink)

    @staticmethod
    def sink(
        sql: str,
        type_info: TypeInformation,
        jdbc_connection_options: JdbcConnectionOptions,
        jdbc_execution_options: JdbcExecutionOptions | None = None,
    ) -> JdbcSink:
        """Executes `sql` for every record; its `?` are the fields of `type_info` (a ROW or TUPLE), in order.

        A plain `INSERT INTO t (a, b) VALUES (?, ?)` is sent to PostgreSQL in columns, by COPY.
        """
        with at_users_line():
            for value, expected in (
                (jdbc_connection_options, JdbcConnectionOptions),
                (jdbc_execution_options or JdbcExecutionOptions.defaults(), JdbcExecutionOptions),
            ):
                if not isinstance(value, expected):
                    raise ProgramError(f"JdbcSink.sink: found {type(value).__name__}, expected {expected.__name__}")
            execution = jdbc_execution_options or JdbcExecutionOptions.defaults()
            rows = StatementRows(sql, type_info, execution.get_batch_size())
            # Like Flink, it waits a second before the first retry, and longer each time.
            patience = Patience(retries_max=execution.get_max_retries(), first_pause_s=1.0)
            return JdbcSink(DatabaseSink(jdbc_connection_options._address, rows, patience=patience))


@dataclass(frozen=True)
class _Login:
    """The settings collected by a builder of connection options."""

    address: DatabaseAddress
    url: str = field(repr=False)
    driver_name: str | None


class JdbcConnectionOptions:
    """The database address and login. The password is never displayed."""

    def __init__(self, j_jdbc_connection_options: _Login) -> None:
        if not isinstance(j_jdbc_connection_options, _Login):
            raise ProgramError(
                f"JdbcConnectionOptions: found {type(j_jdbc_connection_options).__name__}. Create it with "
                "JdbcConnectionOptions"
                ".JdbcConnectionOptionsBuilder().with_url(...).build()"
            )
        self._address, self._url = j_jdbc_connection_options.address, j_jdbc_connection_options.url
        self._driver_name = j_jdbc_connection_options.driver_name

    def get_db_url(self) -> str:
        return self._url

    def get_driver_name(self) -> str | None:
        return self._driver_name

    def get_user_name(self) -> str | None:
        return self._address.user

    def get_password(self) -> str | None:
        return self._address.password

    def __repr__(self) -> str:
        return f"JdbcConnectionOptions({self._address.shown})"

    class JdbcConnectionOptionsBuilder:
        """Builds the options.

        >>> builder = JdbcConnectionOptions.JdbcConnectionOptionsBuilder()
        >>> builder.with_url("jdbc:postgresql://db/sales").with_user_name("ann").with_password("secret").build()
        JdbcConnectionOptions(postgresql://ann@db:5432/sales)
        """

        def __init__(self) -> None:
            self._url: str | None = None
            self._driver_name: str | None = None
            self._user_name: str | None = None
            self._password: str | None = None

        def with_url(self, url: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            self._url = url
            return self

        def with_driver_name(self, driver_name: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            """Stores the Java class that PyFlink programs name here, without effect: the URL determines the
            database."""
            self._driver_name = driver_name
            return self

        def with_user_name(self, user_name: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            self._user_name = user_name
            return self

        def with_password(self, password: str) -> JdbcConnectionOptions.JdbcConnectionOptionsBuilder:
            self._password = password
            return self

        def build(self) -> JdbcConnectionOptions:
            with at_users_line():
                if self._url is None:
                    raise ProgramError(
                        "JdbcConnectionOptions: there is no address. Call with_url('jdbc:postgresql://host:5432/db')"
                    )
                address = parse_address(self._url).with_login(self._user_name, self._password)
                return JdbcConnectionOptions(_Login(address, self._url, self._driver_name))


class JdbcExecutionOptions:
    """How statements are sent. An epoch is one transaction regardless of the batch size."""

    def __init__(self, j_jdbc_execution_options: tuple[int, int, int]) -> None:
        self._interval_ms, self._size, self._max_retries = j_jdbc_execution_options

    def get_batch_interval_ms(self) -> int:
        return self._interval_ms

    def get_batch_size(self) -> int:
        return self._size

    def get_max_retries(self) -> int:
        return self._max_retries

    @staticmethod
    def defaults() -> JdbcExecutionOptions:
        return JdbcExecutionOptions.builder().build()

    @staticmethod
    def builder() -> JdbcExecutionOptions.Builder:
        return JdbcExecutionOptions.Builder()

    class Builder:
        """Builds the options, with Flink's defaults.

        >>> JdbcExecutionOptions.builder().with_batch_size(1000).build().get_batch_size()
        1000
        """

        def __init__(self) -> None:
            self._interval_ms, self._size, self._max_retries = 0, 5000, 3

        def with_batch_size(self, size: int) -> JdbcExecutionOptions.Builder:
            """Sets how many rows are sent to the server at once."""
            with at_users_line():
                self._size = _whole_number("with_batch_size", size, 1)
            return self

        def with_batch_interval_ms(self, interval_ms: int) -> JdbcExecutionOptions.Builder:
            """Stored without effect: rows reach the database when their epoch is committed."""
            with at_users_line():
                self._interval_ms = _whole_number("with_batch_interval_ms", interval_ms, 0)
            return self

        def with_max_retries(self, max_retries: int) -> JdbcExecutionOptions.Builder:
            """Sets how often a transaction is retried while the database is unavailable, before the job restarts."""
            with at_users_line():
                self._max_retries = _whole_number("with_max_retries", max_retries, 0)
            return self

        def build(self) -> JdbcExecutionOptions:
            return JdbcExecutionOptions((self._interval_ms, self._size, self._max_retries))


def _whole_number(method: str, value: int, least: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise ProgramError(
            f"JdbcExecutionOptions.{method}: found {value!r}, expected a whole number of at least {least}"
        )
    return value


add_pyflink_names(globals())
