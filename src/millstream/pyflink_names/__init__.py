"""Names that PyFlink's modules have because they import them, such as `DeliveryGuarantee` in `connectors.kafka`.

Every module with PyFlink's public names ends with `add_pyflink_names(globals())`. `names.json` lists the names that it
does not define itself, each with the module that PyFlink imports it from; the lookup returns the object of that module.
Names of PyFlink's bridge to the JVM are placeholders: a program can import them, and any use raises an error that says
what to do instead.

A name is resolved on access, so a program imports only the modules that it uses. `scripts/pyflink-names` writes the
table from the installed PyFlink; do not edit it.
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
    """A name of PyFlink's bridge to the JVM. Calling it, subclassing it or reading an attribute raises
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
    """Adds the names of the corresponding PyFlink module to a module, given its `globals()`."""
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
    """The object at `MODULE:NAME`, or the module if there is no name; a placeholder if it is `module` itself."""
    owner, _, name = origin.partition(":")
    placeholder = Placeholder(f"pyflink.{owner}.{name}")
    if f"{_TOP}.{owner}" == module:
        return placeholder
    try:
        value = import_module(f"{_TOP}.{owner}")
    except ModuleNotFoundError:  # it is about Flink's own processes
        return placeholder
    return getattr(value, name) if name else value
