"""The table environment of data frames: one per process, set by the program or created by default."""

from __future__ import annotations

from millstream.graph.site import refuse
from millstream.table.environment_settings import EnvironmentSettings
from millstream.table.table_environment import TableEnvironment

__all__ = ["get_or_create_table_environment", "get_table_environment", "set_table_environment"]

_environment: TableEnvironment | None = None


def set_table_environment(t_env: TableEnvironment) -> None:
    """Sets the environment for new data frames; existing ones keep theirs."""
    global _environment
    if not isinstance(t_env, TableEnvironment):
        raise refuse(f"set_table_environment: found {t_env!r} ({type(t_env).__name__}), expected a TableEnvironment")
    _environment = t_env


def get_table_environment() -> TableEnvironment | None:
    """The environment of data frames; None if it was neither set nor created."""
    return _environment


def get_or_create_table_environment() -> TableEnvironment:
    """The environment of data frames; by default, one in batch mode is created."""
    if _environment is None:
        set_table_environment(TableEnvironment.create(EnvironmentSettings.in_batch_mode()))
    assert _environment is not None
    return _environment
