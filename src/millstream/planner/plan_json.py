"""A compiled plan as JSON: the optimised plan of INSERTs, with uids and tables. Data, never code.

    {"millstream plan": 2, "checksum": "sha256…", "plan": {"version": …, "nodes": […], "sinks": […]}}

Nodes precede their consumers in the list and refer to their inputs by position, so shared nodes occur once. A value
without a JSON type is an object with one tag: {"$decimal": "1.5"}. A frozen class of the planner is written with its
name and the fields that differ from their defaults. User functions are written by name, and looked up in the session
that runs the plan. Secrets also come from that session: a plan marks a table's option as secret, and stores only the
non-secret rest of its value. The session must have the table with otherwise equal options, so a plan can send a secret
only to the target of the session's own table.

Invariant: the plan read equals the plan written, including all uids. A modified or truncated file, or one in a newer
format, is rejected before any part of it is used.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import hashlib
import importlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from enum import Enum
from typing import Any

from millstream.errors import ProgramError
from millstream.expressions.data_type import DataType
from millstream.expressions.user_functions import UserFunction, ValueOfNoRows, of_no_rows
from millstream.planner.entries import ObjectPath, Options, TableEntry, shown
from millstream.planner.passes.rewriting import relations_of
from millstream.planner.relations import Relation, Sink
from millstream.redaction import redacted_options, redacted_value, secrets_of
from millstream.state.schemas.saved_sql_types import sql_type_from, written_sql_type

__all__ = ["FORM", "FunctionNamed", "NameOfFunction", "plan_from_json", "plan_to_json"]

FORM = 2
"""The current form. An incompatible form gets the next number. Form 1 had secrets in plain text."""
_FORMS_READ = (1, 2)
_MARK = "millstream plan"
_CLASS = re.compile(r"(planner|expressions|graph)(\.[a-z_]+)+\.[A-Za-z]+")
_PARTS_OF_PATH = 3
_LEFT_OUT = ("site", "definition", "distribution")
_TIMES: dict[str, Any] = {"$datetime": dt.datetime, "$date": dt.date, "$time": dt.time}

FunctionNamed = Callable[[str], Any]
"""Looks up a user function by name; None if there is none."""
NameOfFunction = Callable[[UserFunction], str | None]
"""The name of a function in the session; None if it has none."""
OptionsOfTable = Callable[[ObjectPath], Mapping[str, str] | None]
"""Looks up the options of a table in the session; None if there is no such table."""


def plan_to_json(plan: Sequence[Sink], version: str, name_of: NameOfFunction = lambda function: None) -> str:
    """Optimised sinks as JSON text. `version`: the Millstream version of the writer."""
    places: dict[int, int] = {}
    nodes: list[Any] = []
    for relation in relations_of(plan):
        nodes.append(_Writer(places, name_of).node(relation))
        places[id(relation)] = len(nodes) - 1
    body = {"version": version, "nodes": nodes, "sinks": [places[id(sink)] for sink in plan]}
    return json.dumps({_MARK: FORM, "checksum": _checksum(body), "plan": body}, indent=2) + "\n"


def plan_from_json(
    text: str,
    where: str,
    function_named: FunctionNamed = lambda name: None,
    options_of_table: OptionsOfTable = lambda path: None,
) -> tuple[Sink, ...]:
    """The plan that `plan_to_json` wrote; raises ProgramError, naming `where`, for anything else."""
    body = _checked_body(text, where)
    reader = _Reader(where, function_named, options_of_table)
    try:
        for node in body["nodes"]:
            reader.nodes.append(reader.value(node))
        sinks = tuple(reader.nodes[place] for place in body["sinks"])
    except ProgramError:  # the message names the object that the session lacks
        raise
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError) as error:
        raise _damaged(
            where, f"it contains an element that this version of Millstream does not know ({error})"
        ) from error
    if not sinks or not all(isinstance(sink, Sink) for sink in sinks):
        raise _damaged(where, "it has no sink")
    return sinks


def _checked_body(text: str, where: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _damaged(where, f"it is not JSON: {error}") from None
    if not isinstance(document, dict) or _MARK not in document:
        hint = ", but a plan of Flink's" if _is_flinks(document) else ""
        raise _damaged(where, f"it is not a compiled plan{hint}")
    form = document[_MARK]
    if isinstance(form, int) and form > FORM:
        raise ProgramError(
            f"{where} has form {form} of compiled plans, but this version reads forms up to {FORM}: it was written "
            "by a newer version. Use that version, or compile the statement again"
        )
    body = document.get("plan")
    if form not in _FORMS_READ or not isinstance(body, dict) or document.get("checksum") != _checksum(body):
        raise _damaged(where, "its checksum does not match its contents: it was modified or truncated")
    return body


def _is_flinks(document: Any) -> bool:
    return isinstance(document, dict) and "flinkVersion" in document


def _checksum(body: Any) -> str:
    return "sha256:" + hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def _damaged(where: str, why: str) -> ProgramError:
    return ProgramError(
        f"{where} cannot be read as a compiled plan: {why}. Compile the statement again by COMPILE PLAN"
    )


# --- writing ----------------------------------------------------------------------------------------------------------


class _Writer:
    """Writes values as JSON, and relations as their positions."""

    def __init__(self, places: dict[int, int], name_of: NameOfFunction) -> None:
        self._places, self._name_of = places, name_of

    def node(self, relation: Relation) -> Any:
        return self._fields(relation)

    def value(self, value: Any) -> Any:
        if isinstance(value, _Secret):
            return {"$secret": value.shown}
        if value is None or (isinstance(value, bool | int | str) and not isinstance(value, Enum)):
            return value
        if isinstance(value, Relation):
            return {"$node": self._places[id(value)]}
        if isinstance(value, DataType):
            return {"$type": written_sql_type(value)}
        if isinstance(value, UserFunction):
            if isinstance(value.function, ValueOfNoRows):
                return {"$of_no_rows": self._function(value.function.aggregate)}
            return {"$function": self._function(value)}
        if isinstance(value, Enum):
            return {"$enum": [_class_name(type(value)), value.name]}
        if isinstance(value, tuple | list | frozenset):
            word = {tuple: "$tuple", list: "$list", frozenset: "$set"}[type(value)]
            items = [self.value(item) for item in value]
            return {word: sorted(items, key=json.dumps) if word == "$set" else items}
        if isinstance(value, dict):
            return {"$dict": [[self.value(key), self.value(item)] for key, item in value.items()]}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            return self._fields(value)
        return _scalar(value)

    def _function(self, function: UserFunction) -> str:
        name = self._name_of(function)
        if name is None:
            raise ProgramError(
                f"the plan calls the function '{function.name}', which has no name in the session, and code is not "
                "stored. Register it by CREATE FUNCTION or create_temporary_function(), and call it by that name"
            )
        return name

    def _fields(self, value: Any) -> Any:
        if isinstance(value, TableEntry):
            value = _plain_entry(value)
        written: dict[str, Any] = {"$class": _class_name(type(value))}
        for each in dataclasses.fields(value):
            item = getattr(value, each.name)
            if each.name == "options":
                item = self._options(value, item)
            if each.name not in _LEFT_OUT and not (each.default is not dataclasses.MISSING and item == each.default):
                written[each.name] = self.value(item)
        return written

    def _options(self, value: Any, options: Options) -> Any:
        """Options of a table or hint, with secrets replaced by references."""
        if not any(_is_secret(name, text) for name, text in options):
            return options
        if not isinstance(value, TableEntry):
            raise ProgramError(
                "the plan has a secret in an OPTIONS hint, and secrets are not stored. Set it in WITH (…) of the table"
            )
        if len(value.path) < _PARTS_OF_PATH:
            raise ProgramError(
                "the plan has a secret in the options of a table without a name, and secrets are not stored. Name "
                "the table by CREATE TABLE or create_temporary_table()"
            )
        return tuple(
            (name, _Secret(redacted_value(name, text)) if _is_secret(name, text) else text) for name, text in options
        )


def _is_secret(name: str, value: Any) -> bool:
    return isinstance(value, str) and bool(secrets_of(name, value))


@dataclasses.dataclass(frozen=True)
class _Secret:
    """A table option's secret value in redacted form; the secret itself is not stored."""

    shown: str


def _plain_entry(entry: TableEntry) -> TableEntry:
    """The parts of an entry that connectors need; the plan itself contains computed columns and watermarks."""
    if entry.origin is not None:
        raise ProgramError(
            "a plan that reads or writes streams or values of the program cannot be stored: no file contains them. "
            "Use tables defined by CREATE TABLE"
        )
    columns = tuple(column for column in entry.columns if not column.is_computed)
    return dataclasses.replace(entry, columns=columns, watermark=None)


def _class_name(kind: type) -> str:
    name = f"{kind.__module__.removeprefix('millstream.')}.{kind.__qualname__}"
    if not _CLASS.fullmatch(name):
        raise ProgramError(
            f"the plan contains a {kind.__qualname__}, which cannot be stored: it belongs to the program. "
            "Use tables defined by CREATE TABLE, and functions defined by CREATE FUNCTION"
        )
    return name


def _scalar(value: Any) -> Any:
    if isinstance(value, float):
        return {"$float": value.hex()}
    if isinstance(value, Decimal):
        return {"$decimal": str(value)}
    if isinstance(value, bytes):
        return {"$bytes": value.hex()}
    if isinstance(value, dt.timedelta):
        return {"$duration": [value.days, value.seconds, value.microseconds]}
    for word, kind in _TIMES.items():
        if isinstance(value, kind):
            return {word: value.isoformat()}
    _class_name(type(value))
    raise ProgramError(f"the plan contains {value!r} ({type(value).__name__}), which cannot be stored")


# --- reading ----------------------------------------------------------------------------------------------------------


class _Reader:
    """Reads values; `nodes` are the relations read so far."""

    def __init__(self, where: str, function_named: FunctionNamed, options_of_table: OptionsOfTable) -> None:
        self._where, self._function_named, self._options_of_table = where, function_named, options_of_table
        self.nodes: list[Any] = []

    def value(self, written: Any) -> Any:
        if not isinstance(written, dict):
            return written
        if "$class" in written:
            return self._object(written)
        [(word, item)] = written.items()
        if word == "$node":
            return self.nodes[item]
        if word == "$type":
            return sql_type_from(item)
        if word == "$function":
            return self._function(item)
        if word == "$of_no_rows":
            return of_no_rows(self._function(item))
        if word == "$enum":
            return _class_of(item[0])[item[1]]
        if word in ("$tuple", "$list", "$set"):
            return {"$tuple": tuple, "$list": list, "$set": frozenset}[word](self.value(each) for each in item)
        if word == "$dict":
            return {self.value(key): self.value(each) for key, each in item}
        return _SCALARS[word](item)

    def _object(self, written: dict[str, Any]) -> Any:
        kind = _class_of(written["$class"])
        fields = {name: item for name, item in written.items() if name != "$class"}
        # Secrets are resolved only in options: in an expression a secret would become data.
        options = fields.pop("options") if kind is TableEntry and "options" in fields else None
        read = {name: self.value(item) for name, item in fields.items()}
        return kind(**read) if options is None else kind(**read, options=self._options(read.get("path", ()), options))

    def _function(self, name: str) -> Any:
        function = self._function_named(name)
        if function is None:
            raise ProgramError(
                f"{self._where} calls the function '{name}', which this session does not have. Register it "
                "by CREATE FUNCTION or create_temporary_function() before the plan is loaded"
            )
        return function

    def _options(self, path: ObjectPath, written: Any) -> Options:
        """The options of a table; secrets are taken from the session's table."""
        stored = dict(pair["$tuple"] for pair in written["$tuple"])
        secret = {name: value["$secret"] for name, value in stored.items() if isinstance(value, dict)}
        if not secret:
            return tuple(stored.items())
        session_options = self._options_of_table(path)
        absent = [name for name in secret if session_options is None or name not in session_options]
        if session_options is None or absent:
            raise ProgramError(
                f"{self._where} refers to the option '{absent[0]}' of the table {shown(path)}, and secrets are not "
                "stored in plans. This session has no such table, or the table has no such option: create it by "
                "CREATE TABLE, with the option, before the plan is executed"
            )
        expected, current = {**stored, **secret}, redacted_options(session_options)
        changed = sorted(name for name in expected | current if expected.get(name) != current.get(name))
        if changed:
            raise ProgramError(
                f"{self._where} needs secrets of the table {shown(path)}, which has other options in this session than "
                f"when the plan was compiled: {', '.join(changed)}. Secrets are used only together with the original "
                "options. Restore the options, or compile the statement again by COMPILE PLAN"
            )
        return tuple((name, session_options[name] if name in secret else value) for name, value in stored.items())


def _class_of(name: str) -> Any:
    """A frozen class or enum of the planner, by name; other names are rejected."""
    if not _CLASS.fullmatch(name):
        raise ValueError(f"{name!r} is not a class of plans")
    module, _, word = name.rpartition(".")
    try:
        kind = getattr(importlib.import_module(f"millstream.{module}"), word)
    except (ImportError, AttributeError):
        raise ValueError(f"{name!r} is not a class of this Millstream's plans") from None
    is_enum = isinstance(kind, type) and issubclass(kind, Enum)
    if not is_enum and not (isinstance(kind, type) and dataclasses.is_dataclass(kind)):
        raise ValueError(f"{name!r} is not a class of plans")
    return kind


_SCALARS: dict[str, Callable[[Any], Any]] = {
    "$float": float.fromhex,
    "$decimal": Decimal,
    "$bytes": bytes.fromhex,
    "$duration": lambda parts: dt.timedelta(parts[0], parts[1], parts[2]),
    **{word: kind.fromisoformat for word, kind in _TIMES.items()},
}
