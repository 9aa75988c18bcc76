"""Names that PyFlink's modules have because they import them, such as `DeliveryGuarantee` in `connectors.kafka`.

A module of PyFlink's face ends with `add_pyflink_names(globals())`. A name that it does not define itself is then
looked up in `names.json`, which says from which module PyFlink takes it, and is the same object as there. What belongs
to PyFlink's bridge to the JVM is a stand-in: it can be imported, and says what to do instead when it is used.

Names are looked up when they are asked for, so nothing is imported that a program does not use. The table is written
by `scripts/pyflink-names`, from the installed PyFlink; do not edit it.
"""

from __future__ import annotations

import json
from functools import cache
from importlib import import_module, resources
from typing import Any, NoReturn

from millstream.errors import NotAvailableError

__all__ = ["Placeholder", "add_pyflink_names"]

_TOP = "millstream"


class Placeholder:
    """A name of PyFlink's bridge to the JVM. Calling it, deriving from it or asking it for anything raises
    NotAvailableError."""

    def __init__(self, path: str) -> None:
        self._path = path

    def _refuse(self) -> NoReturn:
        raise NotAvailableError(
            f"{self._path} is not available: it is part of PyFlink's bridge to Flink's JVM, and there is none here. "
            "Use the Python objects themselves; for what stood behind a Java class see "
            "docs/start/coming-from-pyflink.md"
        )

    def __call__(self, *arguments: Any, **named: Any) -> NoReturn:
        self._refuse()

    def __mro_entries__(self, bases: tuple[Any, ...]) -> NoReturn:
        self._refuse()

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        self._refuse()

    def __repr__(self) -> str:
        return f"<{self._path}, not available>"


@cache
def _table() -> dict[str, dict[str, str]]:
    text = resources.files(__name__).joinpath("names.json").read_text(encoding="utf-8")
    table: dict[str, dict[str, str]] = json.loads(text)
    return table


def add_pyflink_names(namespace: dict[str, Any]) -> None:
    """Let a module, whose `globals()` these are, have the names that PyFlink's module of that name has."""
    module = namespace["__name__"]
    defined = namespace.get("__getattr__")

    def value_of(name: str) -> Any:
        if defined is not None and name in namespace.get("__all__", ()):
            return defined(name)
        origin = _table().get(module.removeprefix(f"{_TOP}."), {}).get(name)
        if origin is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        value = namespace[name] = _value(module, origin)
        return value

    namespace["__getattr__"] = value_of


def _value(module: str, origin: str) -> Any:
    """What stands at `MODULE:NAME`, or the module if there is no name; a stand-in where `module` itself has it not."""
    owner, _, name = origin.partition(":")
    placeholder = Placeholder(f"pyflink.{owner}.{name}")
    if f"{_TOP}.{owner}" == module:
        return placeholder
    try:
        value = import_module(f"{_TOP}.{owner}")
    except ModuleNotFoundError:  # it is about Flink's own processes
        return placeholder
    return getattr(value, name) if name else value
