"""`EnvironmentSettings`: the settings of a new table environment: streaming or batch, names, configuration."""

from __future__ import annotations

from typing import Any

from millstream.common.configuration import Configuration
from millstream.datastream.execution_mode import RuntimeExecutionMode
from millstream.graph.site import refuse
from millstream.pyflink_names import add_pyflink_names

__all__ = ["EnvironmentSettings"]

_MODE = "execution.runtime-mode"


class EnvironmentSettings:
    """Streaming or batch, the names of the first catalog and database, and configuration.

    >>> EnvironmentSettings.in_batch_mode().is_streaming_mode()
    False
    """

    def __init__(
        self,
        j_environment_settings: Any = None,
        *,
        configuration: Configuration | None = None,
        catalog_name: str = "default_catalog",
        database_name: str = "default_database",
    ) -> None:
        if j_environment_settings is not None:
            raise refuse("EnvironmentSettings: make one by in_streaming_mode(), in_batch_mode() or new_instance()")
        self._configuration = Configuration(configuration)
        self._catalog_name = catalog_name
        self._database_name = database_name

    def get_built_in_catalog_name(self) -> str:
        """The name of the initial catalog."""
        return self._catalog_name

    def get_built_in_database_name(self) -> str:
        """The name of the initial database."""
        return self._database_name

    def is_streaming_mode(self) -> bool:
        """Whether queries run continuously over unbounded input; otherwise they end with their input."""
        return (self._configuration.get_string(_MODE, "STREAMING") or "").upper() != "BATCH"

    def get_configuration(self) -> Configuration:
        """The settings."""
        return self._configuration

    @staticmethod
    def new_instance() -> EnvironmentSettings.Builder:
        """Starts new settings."""
        return EnvironmentSettings.Builder()

    @staticmethod
    def in_streaming_mode() -> EnvironmentSettings:
        """Settings for streaming."""
        return EnvironmentSettings.new_instance().in_streaming_mode().build()

    @staticmethod
    def in_batch_mode() -> EnvironmentSettings:
        """Settings for batch."""
        return EnvironmentSettings.new_instance().in_batch_mode().build()

    class Builder:
        """Collects settings."""

        def __init__(self) -> None:
            self._configuration = Configuration()
            self._catalog_name = "default_catalog"
            self._database_name = "default_database"

        def with_configuration(self, config: Configuration) -> EnvironmentSettings.Builder:
            """Adds a configuration's settings."""
            if not isinstance(config, Configuration):
                raise refuse(f"with_configuration: found {config!r}, expected a Configuration")
            self._configuration.add_all(config)
            return self

        def in_batch_mode(self) -> EnvironmentSettings.Builder:
            """Runs queries over bounded input, to completion."""
            return self.in_runtime_execution_mode(RuntimeExecutionMode.BATCH)

        def in_streaming_mode(self) -> EnvironmentSettings.Builder:
            """Runs queries continuously."""
            return self.in_runtime_execution_mode(RuntimeExecutionMode.STREAMING)

        def in_runtime_execution_mode(self, mode: RuntimeExecutionMode) -> EnvironmentSettings.Builder:
            """Runs queries in a mode."""
            if not isinstance(mode, RuntimeExecutionMode):
                raise refuse(f"in_runtime_execution_mode: found {mode!r}, expected one of RuntimeExecutionMode")
            self._configuration.set_string(_MODE, mode.name)
            return self

        def with_built_in_catalog_name(self, built_in_catalog_name: str) -> EnvironmentSettings.Builder:
            """Names the initial catalog."""
            self._catalog_name = built_in_catalog_name
            return self

        def with_built_in_database_name(self, built_in_database_name: str) -> EnvironmentSettings.Builder:
            """Names the initial database."""
            self._database_name = built_in_database_name
            return self

        def build(self) -> EnvironmentSettings:
            """The settings."""
            return EnvironmentSettings(
                configuration=self._configuration,
                catalog_name=self._catalog_name,
                database_name=self._database_name,
            )


add_pyflink_names(globals())
