"""Python built-ins as upgrade functions, by a name that a history may store: `upgrade=float`.

Every reader has these functions, and a name in this table runs no code from a store. So readers, which lack the
program, convert old values as the program's tasks do. A user's function has no name here, even if it is called `float`:
its module differs.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable
from decimal import Decimal
from types import MappingProxyType
from typing import Any

__all__ = ["ready_upgrade", "shown_upgrade", "stored_name"]

_BUILTINS = "builtins."
_TYPES = ("bool", "float", "int", "list", "str", "tuple", "abs", "len", "round")
_OF_TEXTS = ("capitalize", "casefold", "lower", "lstrip", "rstrip", "split", "splitlines", "strip", "title", "upper")
_READY: MappingProxyType[str, Callable[[Any], Any]] = MappingProxyType(
    {f"{_BUILTINS}{name}": getattr(builtins, name) for name in _TYPES}
    | {f"{_BUILTINS}str.{name}": getattr(str, name) for name in _OF_TEXTS}
    | {"decimal.Decimal": Decimal}
)


def stored_name(function: Callable[..., Any]) -> str:
    """The name of a function in a history.

    >>> def float_of(value): ...
    >>> stored_name(float), stored_name(str.strip), stored_name(float_of)
    ('builtins.float', 'builtins.str.strip', 'float_of')
    """
    ready = next((name for name, known in _READY.items() if known is function), None)
    return ready or str(getattr(function, "__qualname__", type(function).__qualname__))


def ready_upgrade(name: str | None) -> Callable[[Any], Any] | None:
    """The function of this name, if it is a Python built-in of the table.

    >>> ready_upgrade("builtins.float"), ready_upgrade("float"), ready_upgrade("os.system")
    (<class 'float'>, None, None)
    """
    return None if name is None else _READY.get(name)


def shown_upgrade(name: str | None) -> str:
    """The name as it appears in a program.

    >>> shown_upgrade("builtins.float"), shown_upgrade("as_text")
    ('float', 'as_text')
    """
    return str(name).removeprefix(_BUILTINS)
