"""Restores stored keys of user classes (frozen dataclasses, enums).

Only tasks do this. The class is imported by name, and an import runs code; readers outside the job get a `ClassKey`
instead (`state.keys.canonical_decoding`). A class of the program's main file, or one defined inside a function, has no
importable name in a worker: it arrived with the user's function, so it is looked up among the live classes. A worker
outlives a job: if a program is submitted again (a changed notebook cell), its class of the same name is a new object,
so every plan clears the lookup cache (`clear_class_cache`).
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

__all__ = ["clear_class_cache", "decode_key"]


def decode_key(data: bytes) -> Any:
    """Decodes the canonical bytes of a key, as an instance of its own class if it has one."""
    return decode(data, _rebuild)


def clear_class_cache() -> None:
    """Clears the cache of classes by name: a new program may redefine them."""
    _class_named.cache_clear()


def _rebuild(name: str, values: tuple[Any, ...]) -> Any:
    module, _, qualname = name.partition(":")
    key_class = _class_named(module, qualname)
    if issubclass(key_class, enum.Flag):
        return key_class(*values)
    if issubclass(key_class, enum.Enum):
        if values[0] not in key_class.__members__:
            raise ProgramError(f"stored key {qualname}.{values[0]} is no longer a member of its enum. Restore it.")
        return key_class[values[0]]
    return _dataclass_of(key_class, values)


def _dataclass_of(key_class: type, values: tuple[Any, ...]) -> Any:
    """An instance with these fields. `__init__` is not called: the key was checked when it was first created."""
    fields = dataclasses.fields(key_class) if dataclasses.is_dataclass(key_class) else ()
    compared = [field for field in fields if field.compare]
    if len(compared) != len(values):
        raise ProgramError(
            f"a stored key of class {key_class.__qualname__} has {len(values)} fields, the class now has "
            f"{len(compared)}. Restore the fields of the class, or start without the old state."
        )
    key: Any = object.__new__(key_class)
    for field, value in zip(compared, values, strict=True):
        object.__setattr__(key, field.name, value)
    for field in fields:
        if not field.compare:
            object.__setattr__(key, field.name, _default_of(field))
    return key


def _default_of(field: dataclasses.Field[Any]) -> Any:
    """The value of a field that is not part of the key and was not stored."""
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
        thing = _live_class(module, qualname)
    if isinstance(thing, type):
        return thing
    raise ProgramError(
        f"a stored key is of class {qualname} of module {module}, which no longer exists. Move the class back, or to a "
        "module that workers can import."
    )


def _live_class(module: str, qualname: str) -> type | None:
    """The live class of this name in this process, the newest if there are several."""
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
