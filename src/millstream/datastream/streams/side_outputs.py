"""Checks whether an operator can have a side output: an impossible one would never receive records.

A function refers to its tags as globals, attributes, in closures, or in functions it calls. `declared_tags` follows all
these references, without running the function, and returns the tags. It returns None if the search is incomplete (tags
created at run time, names looked up by string, imports inside a method, too many objects): a program is rejected for an
impossible side output, never for a possible one.
"""

from __future__ import annotations

import builtins
import dis
import functools
import importlib.util
import inspect
import logging
import os
import sys
import sysconfig
import types
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.messages.dead_letters import DEAD_LETTER_TYPE
from millstream.datastream.output_tag import OutputTag
from millstream.datastream.streams.argument_checks import refuse
from millstream.graph.nodes import Node, Process, Read, Window
from millstream.graph.site import PACKAGE_FOLDER
from millstream.graph.tags import SideTag
from millstream.records.batch import is_typed

__all__ = ["declared_tags", "with_side_output"]

_OBJECTS_MAX = 3_000
_REFLECTIVE = frozenset({"builtins", "copy", "gc", "importlib", "inspect", "operator", "pickle", "sys", "types"})
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), types.BuiltinFunctionType, logging.Logger)
_CONTAINERS = (list, tuple, set, frozenset, deque)
_BY_NAME = {getattr(builtins, name) for name in ("getattr", "eval", "exec", "globals", "vars", "locals", "__import__")}
_ENGINE_PACKAGES = ("aggregation", "common", "datastream", "graph", "metrics", "runtime", "state")
_ENGINE_FOLDERS = tuple(os.path.join(PACKAGE_FOLDER, name, "") for name in _ENGINE_PACKAGES)
_STDLIB_FOLDERS = tuple({sysconfig.get_path("stdlib") + os.sep, sysconfig.get_path("platstdlib") + os.sep})


def declared_tags(function: Any) -> dict[str, list[OutputTag]] | None:
    """The tags to which `function` refers, by id; None if others are possible.

    >>> declared_tags(functools.partial(print, OutputTag("odd")))
    {'odd': [OutputTag('odd')]}
    >>> declared_tags(OutputTag)  # code with the class can create any tag
    """
    tags: dict[str, list[OutputTag]] = {}
    seen: dict[int, Any] = {}  # references the objects, so that no id is reused
    pending = [function]
    try:
        while pending:
            value = pending.pop()
            if isinstance(value, OutputTag):
                tags.setdefault(value.tag_id, []).append(value)
            elif id(value) not in seen and not _is_plain(value):
                seen[id(value)] = value
                if len(seen) > _OBJECTS_MAX:
                    return None
                pending.extend(_referents(value))
    except _UncertainError:
        return None
    return tags


class _UncertainError(Exception):
    """The tags of a function cannot be determined from outside."""


def _is_plain(value: Any) -> bool:
    """Whether a value references no other values. Raises for attribute lookups by name and for new tags."""
    if isinstance(value, type) and issubclass(value, SideTag):
        raise _UncertainError
    if isinstance(value, types.BuiltinFunctionType) and value in _BY_NAME:
        raise _UncertainError
    return isinstance(value, _PLAIN)


def _referents(value: Any) -> Iterator[Any]:
    """The objects that `value` references."""
    if isinstance(value, types.FunctionType):
        if not _is_engine_or_stdlib(value):
            yield from _of_function(value)
    elif isinstance(value, types.MethodType):
        yield from (value.__func__, value.__self__)
    elif isinstance(value, functools.partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, (staticmethod, classmethod)):
        yield value.__func__
    elif isinstance(value, property):
        yield from (value.fget, value.fset, value.fdel)
    elif isinstance(value, Mapping):
        yield from (item for pair in list(value.items()) for item in pair)
    elif isinstance(value, _CONTAINERS):
        yield from list(value)
    elif isinstance(value, type):
        if not _is_engine_or_stdlib(value):
            yield from (*value.__bases__, *vars(value).values())
    elif not isinstance(value, (types.ModuleType, types.GetSetDescriptorType, types.MemberDescriptorType)):
        yield from _of_object(value)


def _is_engine_or_stdlib(value: Any) -> bool:
    """Whether a function or class belongs to this package or to Python itself, which do not refer to user tags."""
    module = sys.modules.get(str(value.__module__))
    known: Any = module
    for name in value.__qualname__.split("."):
        known = getattr(known, name, None)
    # An object that only claims to be from that module, such as code run by exec(), does not count.
    return known is value and module is not None and _is_known(module)


def _is_known(module: types.ModuleType) -> bool:
    """Whether a module is the engine's or Python's, by its file: a program's own module may have the same name."""
    file = getattr(module, "__file__", None)
    if file is None:
        return module.__name__ in sys.builtin_module_names
    return file.startswith(_ENGINE_FOLDERS) or (file.startswith(_STDLIB_FOLDERS) and "site-packages" not in file)


def _of_object(value: Any) -> Iterator[Any]:
    kind = type(value)
    yield kind
    attributes = getattr(value, "__dict__", None)
    slots = [name for base in kind.__mro__ for name in _slots(base)]
    if attributes is None and not slots and kind.__module__.partition(".")[0] not in sys.stdlib_module_names:
        raise _UncertainError  # implemented in another language, outside Python
    yield from (attributes or {}).values()
    yield from (getattr(value, name) for name in slots if hasattr(value, name))


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _of_function(function: types.FunctionType) -> Iterator[Any]:
    yield from (function.__defaults__, function.__kwdefaults__, vars(function))
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # an empty closure cell
            raise _UncertainError from None
    pending = [function.__code__]
    while pending:
        code = pending.pop()
        pending += [constant for constant in code.co_consts if inspect.iscode(constant)]
        yield from _of_code(code, function.__globals__)


def _is_harmless(module: str) -> bool:
    """Whether this is the name of a standard library module, which has no tags or lookups by name."""
    name = module.partition(".")[0]
    if name not in sys.stdlib_module_names or name in _REFLECTIVE:
        return False
    spec = importlib.util.find_spec(name)  # a program's module may have the name of a standard library module
    return spec is not None and (spec.origin in ("built-in", "frozen") or str(spec.origin).startswith(_STDLIB_FOLDERS))


def _of_code(code: types.CodeType, names: Mapping[str, Any]) -> Iterator[Any]:
    """The globals that a code object uses, and the attributes that it uses of modules among them."""
    attributes: list[str] = []
    modules: list[types.ModuleType] = []
    for step in dis.get_instructions(code):
        if step.opname == "IMPORT_NAME" and not _is_harmless(step.argval):
            raise _UncertainError
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            attributes.append(step.argval)
        elif step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
            if step.argval not in names and not hasattr(builtins, step.argval):
                raise _UncertainError
            value = names[step.argval] if step.argval in names else getattr(builtins, step.argval)
            yield value
            modules += [value] if isinstance(value, types.ModuleType) else []
    for module in modules:  # grows: a module may refer to others
        if not _is_known(module):
            for value in (getattr(module, name) for name in attributes if hasattr(module, name)):
                yield value
                if isinstance(value, types.ModuleType) and value not in modules:
                    modules.append(value)


def with_side_output(node: Node, tag: OutputTag, type_info: TypeInformation | None) -> Process | Read:
    """The operation of `node` with this side output, which has records of `type_info`."""
    if isinstance(node.operation, Read):
        return _with_dead_letters(node.name, node.operation, tag, type_info)
    if isinstance(node.operation, Window) and node.operation.ready is not None and node.operation.late_tag is None:
        raise refuse(
            f"get_side_output: '{node.name}' has no side outputs. For late records call side_output_late_data(tag) "
            "before aggregate()"
        )
    if not isinstance(node.operation, Process):
        raise refuse(f"get_side_output: '{node.name}' has no side outputs. Call it on the stream process() returned")
    _check_yielded(node.name, node.operation, tag, type_info)
    tags = dict(node.operation.tags)
    if tags.setdefault(tag.tag_id, type_info) != type_info:
        raise refuse(
            f"get_side_output: '{tag.tag_id}' of '{node.name}' was read as {tags[tag.tag_id]} and is "
            f"now read as {type_info}. Use the same OutputTag for both"
        )
    return replace(node.operation, tags=tuple(tags.items()))


def _with_dead_letters(name: str, operation: Read, tag: OutputTag, type_info: TypeInformation | None) -> Read:
    """Adds a source's only possible side output: the messages that it cannot decode."""
    own = operation.source.dead_letter_tag
    if own is None or own.tag_id != tag.tag_id:
        existing = "has no side output" if own is None else f"has the side output '{own.tag_id}' only"
        raise refuse(
            f"get_side_output: '{name}' {existing}. A source emits messages that it cannot decode: set their side "
            "output with with_dead_letters(tag) of its deserialization schema"
        )
    if type_info not in (None, DEAD_LETTER_TYPE):
        raise refuse(
            f"get_side_output: '{tag.tag_id}' of '{name}' is read as {type_info}, and messages that cannot be decoded "
            f"are {DEAD_LETTER_TYPE}. Declare that type for the OutputTag, or none"
        )
    return replace(operation, tags=((tag.tag_id, DEAD_LETTER_TYPE),))


def _check_yielded(name: str, operation: Process, tag: OutputTag, type_info: TypeInformation | None) -> None:
    """Rejects a tag for which the operator never emits a record, or only records of another type."""
    late = _late_tags(operation)
    known = declared_tags(operation.function)
    tags = [*(known or {}).get(tag.tag_id, []), *(other for other in late if other.tag_id == tag.tag_id)]
    if known is not None and not tags:
        names = sorted({*known, *(other.tag_id for other in late)})
        raise refuse(
            f"get_side_output: '{name}' never emits to side output '{tag.tag_id}'; it has {names or 'none'}. Use the "
            f"OutputTag the function yields with (yield tag, value){_late_fix(operation)}"
        )
    typed = [other.type_info for other in tags if is_typed(other.type_info)]
    if typed and is_typed(type_info) and type_info not in typed:
        raise refuse(
            f"get_side_output: side output '{tag.tag_id}' of '{name}' is {typed[0]} where it is emitted and "
            f"{type_info} here. Use the same OutputTag for both"
        )


def _late_tags(operation: Process) -> list[OutputTag]:
    """The side outputs of late records: one for windows, one per side for joins."""
    tags = (getattr(operation, "late_tag", None), *getattr(operation, "late_tags", ()))
    return [tag for tag in tags if tag is not None]


def _late_fix(operation: Process) -> str:
    if hasattr(operation, "late_tags"):
        return ", or call side_output_left_late_data(tag) or side_output_right_late_data(tag) before"
    return ", or call side_output_late_data(tag) before" if isinstance(operation, Window) else ""
