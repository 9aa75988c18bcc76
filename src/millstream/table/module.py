"""Modules: packages of built-in functions. The only one is "core", with all functions."""

from __future__ import annotations

from typing import Any

from millstream.errors import NotAvailableError
from millstream.pyflink_names import add_pyflink_names

__all__ = ["HiveModule", "Module", "ModuleEntry"]

_NO_MODULES = "register functions of your own with create_temporary_system_function"


class Module:
    """A package of functions in Flink's JVM."""

    def __init__(self, j_module: Any) -> None:
        raise NotAvailableError(f"Module is not available: it is a Java object; {_NO_MODULES}")


class HiveModule(Module):
    """Hive's functions."""

    def __init__(self, hive_version: str | None = None) -> None:
        raise NotAvailableError(f"HiveModule is not available: it needs Hive's jars; {_NO_MODULES}")


class ModuleEntry:
    """A module's name, and whether its functions are used.

    >>> ModuleEntry("core", True).name()
    'core'
    """

    def __init__(self, name: str, used: bool, j_module_entry: Any = None) -> None:
        self._name = name
        self._used = used

    def name(self) -> str:
        """The name."""
        return self._name

    def used(self) -> bool:
        """Whether its functions are used."""
        return self._used

    def __repr__(self) -> str:
        return f"ModuleEntry({self._name!r}, {self._used})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ModuleEntry) and (self._name, self._used) == (other._name, other._used)

    def __hash__(self) -> int:
        return hash((self._name, self._used))


add_pyflink_names(globals())
