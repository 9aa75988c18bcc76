"""Keys of the program's own classes, made again of what was stored: frozen dataclasses and enums.

Only a task does this. The class is imported by its name, and importing runs code; whoever reads a store from beside the
job gets a `ClassKey` instead (`state.keys.canonical_decoding`). A class of the program's main file, or one defined
inside a function, has no importable name in a worker; it came there with the user's function, and is found among the
classes that are alive.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import importlib
import sys
from typing import Any

from millstream.errors import ProgramError
from millstream.state.keys.canonical_decoding import decode

__all__ = ["decode_key"]


def decode_key(data: bytes) -> Any:
    """The key that canonical bytes stand for, of its own class where it has one."""
    return decode(data, _made_again)


def _made_again(name: str, values: tuple[Any, ...]) -> Any:
    module, _, qualname = name.partition(":")
    found = _class_named(module, qualname)
    if issubclass(found, enum.Flag):
        return found(*values)
    if issubclass(found, enum.Enum):
        if values[0] not in found.__members__:
            raise ProgramError(f"a key {qualname}.{values[0]} was stored, and is no member now. Put it back.")
        return found[values[0]]
    return _dataclass_of(found, values)


def _dataclass_of(found: type, values: tuple[Any, ...]) -> Any:
    """A value with these fields. Its `__init__` is not called: the key was checked when it was first made."""
    fields = dataclasses.fields(found) if dataclasses.is_dataclass(found) else ()
    compared = [field for field in fields if field.compare]
    if len(compared) != len(values):
        raise ProgramError(
            f"a key of class {found.__qualname__} was stored with {len(values)} fields, the class now has "
            f"{len(compared)}. Give the class its fields back, or start without the old state."
        )
    made: Any = object.__new__(found)
    for field, value in zip(compared, values, strict=True):
        object.__setattr__(made, field.name, value)
    for field in fields:
        if not field.compare:
            object.__setattr__(made, field.name, _default_of(field))
    return made


def _default_of(field: dataclasses.Field[Any]) -> Any:
    """What stands in a field that is no part of the key, and was therefore not stored."""
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else None


@functools.lru_cache(maxsize=256)
def _class_named(module: str, qualname: str) -> type:
    found: Any = None
    try:
        found = sys.modules.get(module) or importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        found = _living_class(module, qualname)
    if isinstance(found, type):
        return found
    raise ProgramError(
        f"a key of class {qualname} of module {module} was stored, and there is no such class now. Put it back where "
        "it was, or in a module that workers can import."
    )


def _living_class(module: str, qualname: str) -> type | None:
    """The class of this name that is alive in this process, the youngest if there are several."""
    seen: set[type] = set()
    waiting: list[type] = [object]
    found = None
    while waiting:
        children: list[type] = type.__subclasses__(waiting.pop())
        for child in children:
            if child not in seen:
                seen.add(child)
                waiting.append(child)
                if child.__module__ == module and child.__qualname__ == qualname:
                    found = child
    return found
