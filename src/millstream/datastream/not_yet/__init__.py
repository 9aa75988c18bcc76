"""PyFlink names that Millstream does not implement yet: a table, `names.json`, and placeholders created from it.

A module of *placeholders* can be imported with all its names. Its classes have PyFlink's base classes and signatures,
so that programs can be written against them; constructing one, or calling a method, raises NotYetError with the planned
version and an alternative, or, if it will never be implemented, NotAvailableError with an alternative. Enums, and
interfaces for programs to implement, are complete.

A module whose names are all in the table is one line, `__all__, __getattr__ = names_of(__name__)`. The table is written
by `scripts/not-yet-table` from PyFlink's reference; do not edit it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from importlib import import_module, resources
from inspect import Parameter, Signature
from types import new_class
from typing import Any

from millstream.errors import MillstreamError, NotAvailableError, NotYetError

__all__ = [
    "Placeholder",
    "is_refused",
    "names_of",
    "placeholders",
]


@dataclass(frozen=True)
class Placeholder:
    """A PyFlink class that is not implemented yet; `path` has a dot if it is nested in another class.

    `kind` is "class", "interface" or "enum". A method without `self` among its parameters is static.
    """

    path: str
    kind: str
    bases: Sequence[str] = ()
    methods: Mapping[str, Sequence[str]] = field(default_factory=dict)
    members: Sequence[str] = ()


@cache
def _table() -> dict[str, Any]:
    table: dict[str, Any] = json.loads(resources.files(__name__).joinpath("names.json").read_text(encoding="utf-8"))
    return table


@cache
def placeholders(module: str) -> dict[str, Placeholder]:
    """The placeholders of a module by their paths; empty for an implemented module."""
    names = _table()["stand_ins"].get(module, {}).get("names", {})
    return {path: Placeholder(path, **description) for path, description in names.items()}


def is_refused(module: str) -> bool:
    """Whether a module of placeholders will never be implemented."""
    return module in _table()["stand_ins"] and _table()["stand_ins"][module]["comes_with"] is None


def names_of(module: str) -> tuple[list[str], Callable[[str], Any]]:
    """`__all__` and `__getattr__` of a module whose names are all in the table."""
    names = [path for path in placeholders(module) if "." not in path]

    def value_of(name: str) -> Any:
        if name not in names:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return _class(module, name)

    return sorted(names), value_of


def _error(name: str, description: Mapping[str, Any]) -> MillstreamError:
    if description["comes_with"] is None:
        return NotAvailableError(f"{name} is not available: {description['instead']}")
    return NotYetError.of(name, description["comes_with"], description["instead"])


@cache
def _class(module: str, path: str) -> type:
    """The class, always the same object: `isinstance` and pickling by name work as usual."""
    placeholder = placeholders(module)[path]
    name = path.rpartition(".")[2]
    if placeholder.kind == "enum":
        values = [(member, value) for value, member in enumerate(placeholder.members)]
        return Enum(name, values, module=module, qualname=path)  # type: ignore[return-value]
    bases = (ABC,) if placeholder.kind == "interface" else tuple(map(_imported, placeholder.bases))
    inner_paths = [inner for inner in placeholders(module) if inner.rpartition(".")[0] == path]
    content: dict[str, Any] = {
        "__module__": module,
        "__qualname__": path,
        "__doc__": f"PyFlink's `{path}`{'; not built yet' if placeholder.kind == 'class' else ''}.",
        **{inner.rpartition(".")[2]: _class(module, inner) for inner in inner_paths},
        **{method: _method(module, placeholder, method) for method in placeholder.methods},
    }
    return new_class(name, bases, exec_body=lambda namespace: namespace.update(content))


def _imported(path: str) -> type:
    module, _, name = path.rpartition(".")
    base: type = getattr(import_module(module), name)
    return base


def _method(module: str, placeholder: Placeholder, name: str) -> Any:
    subject = placeholder.path if name == "__init__" else f"{placeholder.path}.{name}"
    is_interface = placeholder.kind == "interface"

    def body(*arguments: Any, **named: Any) -> Any:
        if not is_interface:
            raise _error(subject, _table()["stand_ins"][module])

    parameters = placeholder.methods[name]
    body.__name__, body.__qualname__, body.__module__ = name, f"{placeholder.path}.{name}", module
    body.__signature__ = Signature([_parameter(each, is_interface) for each in parameters])  # type: ignore[attr-defined]
    if is_interface:
        return abstractmethod(body)
    return body if parameters[:1] == ["self"] else staticmethod(body)


def _parameter(name: str, is_required: bool) -> Parameter:
    if name.startswith("*"):
        return Parameter(name[1:], Parameter.VAR_POSITIONAL)
    default = Parameter.empty if is_required or name == "self" else None
    return Parameter(name, Parameter.POSITIONAL_OR_KEYWORD, default=default)
