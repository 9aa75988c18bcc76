"""Keys of the program's own classes (frozen dataclasses, enums), rebuilt from what was stored.

Only a task does this. The class is imported by its name, and importing runs code; whoever reads a store from beside the
job gets a `ClassKey` instead (`state.keys.canonical_decoding`). A class of the program's main file, or one defined
inside a function, has no importable name in a worker; it came there with the user's function, and is found among the
classes that are alive. A worker lives longer than a job: where a program comes again (a cell of a notebook that was
changed), its class of the same name is another one, so what was found is forgotten with every plan (`forget_classes`).
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

__all__ = ["decode_key", "forget_classes"]


def decode_key(data: bytes) -> Any:
    """The key that canonical bytes stand for, of its own class where it has one."""
    return decode(data, _rebuild)


def forget_classes() -> None:
    """A program has come, perhaps with new classes: they are looked for anew."""
    _class_named.cache_clear()


def _rebuild(name: str, values: tuple[Any, ...]) -> Any:
    module, _, qualname = name.partition(":")
    key_class = _class_named(module, qualname)
    if issubclass(key_class, enum.Flag):
        return key_class(*values)
    if issubclass(key_class, enum.Enum):
        if values[0] not in key_class.__members__:
            raise ProgramError(f"a key {qualname}.{values[0]} was stored, and is no member now. Put it back.")
        return key_class[values[0]]
    return _dataclass_of(key_class, values)


def _dataclass_of(key_class: type, values: tuple[Any, ...]) -> Any:
    """A value with these fields. Its `__init__` is not called: the key was checked when it was first made."""
    fields = dataclasses.fields(key_class) if dataclasses.is_dataclass(key_class) else ()
    compared = [field for field in fields if field.compare]
    if len(compared) != len(values):
        raise ProgramError(
            f"a key of class {key_class.__qualname__} was stored with {len(values)} fields, the class now has "
            f"{len(compared)}. Give the class its fields back, or start without the old state."
        )
    key: Any = object.__new__(key_class)
    for field, value in zip(compared, values, strict=True):
        object.__setattr__(key, field.name, value)
    for field in fields:
        if not field.compare:
            object.__setattr__(key, field.name, _default_of(field))
    return key


def _default_of(field: dataclasses.Field[Any]) -> Any:
    """What stands in a field that is no part of the key, and was therefore not stored."""
    if field.default is not dataclasses.MISSING:
        return field.default
    return field.default_factory() if field.default_factory is not dataclasses.MISSING else None


@functools.lru_cache(maxsize=256)
def _class_named(module: str, qualname: str) -> type:
    thing: Any = None
    try:
        thing = sys.modules.get(module) or importlib.import_module(module)
        for part in qualname.split("."):
            thing = getattr(thing, part)
    except (ImportError, AttributeError):
        thing = _living_class(module, qualname)
    if isinstance(thing, type):
        return thing
    raise ProgramError(
        f"a key of class {qualname} of module {module} was stored, and there is no such class now. Put it back where "
        "it was, or in a module that workers can import."
    )


def _living_class(module: str, qualname: str) -> type | None:
    """The class of this name that is alive in this process, the youngest if there are several."""
    visited: set[type] = set()
    pending: list[type] = [object]
    youngest = None
    while pending:
        children: list[type] = type.__subclasses__(pending.pop())
        for child in children:
            if child not in visited:
                visited.add(child)
                pending.append(child)
                if child.__module__ == module and child.__qualname__ == qualname:
                    youngest = child
    return youngest
