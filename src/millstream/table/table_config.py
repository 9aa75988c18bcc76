"""`TableConfig`: the settings of a table environment, by Flink's keys.

All are stored in one Configuration; settings other than table options (parallelism, checkpoints) are passed to jobs.
"""

from __future__ import annotations

import datetime
import sys
import zoneinfo
from typing import Any

from millstream.common.configuration import Configuration
from millstream.common.options import KNOWN
from millstream.common.options.table_options import STATE_LIFETIME, TABLE_OPTIONS
from millstream.datastream.environment.dependencies import check_interpreter
from millstream.errors import ConfigurationError, NotAvailableError, did_you_mean
from millstream.graph.notices import log_once
from millstream.graph.site import here, refuse
from millstream.pyflink_names import add_pyflink_names
from millstream.table.environments.known_settings import check_setting, check_settings
from millstream.table.sql_dialect import SqlDialect

__all__ = ["TableConfig"]

_ZONE = "table.local-time-zone"
_CODE_LENGTH = "table.generated-code.max-length"
_DEFAULT_ZONE = "default"


class TableConfig:
    """The settings of a table environment.

    >>> config = TableConfig.get_default()
    >>> config.set_local_timezone("Europe/Berlin")
    >>> config.get("table.local-time-zone", "UTC")
    'Europe/Berlin'
    """

    def __init__(
        self,
        j_table_config: Any = None,
        *,
        configuration: Configuration | None = None,
        below: Configuration | None = None,
    ) -> None:
        if j_table_config is not None:
            raise refuse("TableConfig: make one by TableConfig.get_default(), or take t_env.get_config()")
        self._configuration = Configuration() if configuration is None else configuration
        self._below = Configuration() if below is None else below  # the stream environment's settings, as defaults

    def get(self, key: str, default_value: str) -> str:
        """The value of a setting."""
        below = self._below.get_string(key, default_value)
        return self._configuration.get_string(key, below) or default_value

    def set(self, key: str, value: Any) -> TableConfig:
        """Changes a setting."""
        if not isinstance(key, str):
            raise refuse(f"set: found {key!r} as the key, expected text")
        check_setting(key, value)
        if key == _ZONE:
            _check_zone(value)
        _check_value(key, value)
        self._configuration.add_all(Configuration.from_dict({key: value}))
        return self

    def get_local_timezone(self) -> str:
        """The zone for displaying TIMESTAMP_LTZ."""
        zone = self.get(_ZONE, _DEFAULT_ZONE)
        return "UTC" if zone == _DEFAULT_ZONE else zone

    def set_local_timezone(self, timezone_id: str) -> None:
        """Sets the zone for displaying TIMESTAMP_LTZ: "Europe/Berlin", "UTC", "GMT-08:00"."""
        self.set(_ZONE, timezone_id)

    def get_max_generated_code_length(self) -> int:
        """The configured value, or Flink's default. It has no effect: no code is generated here."""
        return self._configuration.get_integer(_CODE_LENGTH, 4000)

    def set_max_generated_code_length(self, max_generated_code_length: int) -> None:
        """Accepted, with no effect: no code is generated here."""
        log_once(
            "set_max_generated_code_length",
            "set_max_generated_code_length has no effect: expressions are not compiled to Java code",
        )
        self._configuration.set_integer(_CODE_LENGTH, max_generated_code_length)

    def set_idle_state_retention(self, duration: datetime.timedelta) -> None:
        """Sets how long a query retains unused state (the option table.exec.state.ttl)."""
        if not isinstance(duration, datetime.timedelta):
            raise refuse(f"set_idle_state_retention: found {duration!r}, expected a datetime.timedelta")
        self._configuration.set_string(STATE_LIFETIME.key, f"{int(duration.total_seconds() * 1000)} ms")

    def get_idle_state_retention(self) -> datetime.timedelta:
        """How long a query retains unused state; 0 means without limit."""
        return datetime.timedelta(milliseconds=STATE_LIFETIME.parse(self.get(STATE_LIFETIME.key, "0 ms")))

    def get_configuration(self) -> Configuration:
        """All settings; changes to it take effect."""
        return self._configuration

    def add_configuration(self, configuration: Configuration) -> None:
        """Adds a configuration's settings."""
        check_settings(configuration)
        self._configuration.add_all(configuration)

    def to_map(self) -> dict[str, str]:
        """All settings as a dict."""
        return self._configuration.to_dict()

    def get_sql_dialect(self) -> SqlDialect:
        """The dialect of statements: Flink's."""
        return SqlDialect.DEFAULT

    def set_sql_dialect(self, sql_dialect: SqlDialect) -> None:
        """Sets the dialect of statements; only Flink's is available."""
        if sql_dialect is SqlDialect.HIVE:
            raise NotAvailableError(
                "set_sql_dialect(HIVE) is not available: it needs Hive. Write Flink's SQL, or Spark's by from_spark()"
            )

    def set_python_executable(self, python_exec: str) -> None:
        """Checks the interpreter for functions: it must be the program's own."""
        check_interpreter(python_exec)

    def get_python_executable(self) -> str:
        """The interpreter that runs functions: the program's own."""
        return sys.executable

    @staticmethod
    def get_default() -> TableConfig:
        """Default settings."""
        return TableConfig()


def _check_value(key: str, value: Any) -> None:
    """Rejects a value that no job could parse, at the line that set it."""
    option = TABLE_OPTIONS.get(key) or KNOWN.get(key)
    if option is None or not isinstance(value, str | int | float):
        return
    try:
        option.parse(str(value))
    except ConfigurationError as error:
        raise ConfigurationError(error.message, at=str(here())) from None


def _check_zone(zone: Any) -> None:
    """Rejects an unknown time zone."""
    if zone == _DEFAULT_ZONE:
        return
    if not isinstance(zone, str):
        raise refuse(f"{_ZONE}: found {zone!r}, expected the name of a zone, such as Europe/Berlin or UTC")
    if zone.startswith(("GMT+", "GMT-", "UTC+", "UTC-", "+", "-")):
        return
    try:
        zoneinfo.ZoneInfo(zone)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError) as error:
        hint = did_you_mean(zone, zoneinfo.available_timezones())
        raise refuse(f"{_ZONE}: found {zone!r}, which is not a time zone.{hint}") from error


add_pyflink_names(globals())
