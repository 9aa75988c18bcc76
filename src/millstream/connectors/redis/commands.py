"""Converts records to Redis commands, each a list of strings and bytes, in the task.

A deleted row (`RowKind.DELETE`), or one with the value None, deletes its key. The first row of an update
(`RowKind.UPDATE_BEFORE`) has no command: the second is sufficient.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from millstream.common.serialization import SerializationSchema
from millstream.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation
from millstream.common.types import Row, RowKind
from millstream.connectors.messages.codecs import encoder_of
from millstream.errors import ProgramError, TypeMismatchError
from millstream.records.batch import Batch
from millstream.records.text import texts

__all__ = ["AddToStream", "CommandMaker", "RunCommands", "SetHashes", "SetValues", "command_columns"]

Argument = str | bytes | int | float
Command = Sequence[Argument]
Field = str | int | Callable[[Any], Any]
"""A field of a row by its name or position, or a function of the record."""

_ARGUMENTS_MAX = 7_000
"""Maximum number of arguments of a command: a Redis script cannot pass more than about 8,000."""
_ELSEWHERE = (b"SELECT", b"SWAPDB")
"""Commands that would move the mark to another database, so that commands would run twice."""

COMMANDS = pa.schema([pa.field("command", pa.list_(pa.binary()))])


class CommandMaker(ABC):
    """Converts records to commands. It holds settings, and is sent to tasks."""

    @abstractmethod
    def commands(self, batch: Batch) -> Iterator[Command]:
        """The commands of a batch, in the order of its records."""

    @abstractmethod
    def describe(self) -> str:
        """A short description for the plan."""


def command_columns(maker: CommandMaker, batch: Batch) -> pa.RecordBatch:
    """The commands of a batch as staged: one row each. Rejects commands that no script can run before their epoch is
    committed: a script that fails midway would leave executed commands that no mark records."""
    commands = [[_bytes(argument) for argument in command] for command in maker.commands(batch)]
    for command in commands:
        if len(command) > _ARGUMENTS_MAX:
            raise ProgramError(
                f"a Redis command {command[0].decode('utf-8', 'replace')!r} has {len(command):,} arguments, expected "
                f"{_ARGUMENTS_MAX:,} at most. Divide it into several commands"
            )
        if command[0].upper() in _ELSEWHERE:
            raise ProgramError(
                f"a Redis command is {command[0].decode()!r}: all commands of a sink run in one database. Put its "
                "number at the end of the URL,"
                " redis://host:6379/1, and use one sink per database"
            )
    return pa.RecordBatch.from_arrays([pa.array(commands, COMMANDS.field(0).type)], schema=COMMANDS)


@dataclass(frozen=True)
class SetValues(CommandMaker):
    """`SET prefix+key value`. Without a `value` field the value is the whole record, encoded by `schema`."""

    key: Field
    value: Field | None = None
    schema: SerializationSchema | None = None
    prefix: str = ""
    expire_s: int | None = None

    def commands(self, batch: Batch) -> Iterator[Command]:
        keys = _keys(batch, self.key, self.prefix)
        if self.schema is not None:
            values: Sequence[Argument | None] = encoder_of(self.schema, batch.type_info).encode(batch).to_pylist()
        else:
            assert self.value is not None, "either is set"
            values = _texts(batch, self.value)
        expiry = () if self.expire_s is None else ("EX", self.expire_s)
        for key, value, is_deleted in zip(keys, values, _kinds(batch), strict=True):
            if is_deleted is not None:
                yield ("DEL", key) if is_deleted or value is None else ("SET", key, value, *expiry)

    def describe(self) -> str:
        return f"values {self.prefix}*"


@dataclass(frozen=True)
class SetHashes(CommandMaker):
    """`HSET prefix+key field value …`: a hash per key, with the row's other fields. A None removes its field."""

    key: Field
    prefix: str = ""
    expire_s: int | None = None

    def commands(self, batch: Batch) -> Iterator[Command]:
        names = _field_names(batch.type_info)
        if names is None:
            raise ProgramError("a hash needs fields, but the stream has none. Declare it as Types.ROW_NAMED(...)")
        keys = _keys(batch, self.key, self.prefix)
        columns = {name: _texts(batch, name) for name in names if name != self.key}
        for at, (key, is_deleted) in enumerate(zip(keys, _kinds(batch), strict=True)):
            if is_deleted is None:
                continue
            if is_deleted:
                yield ("DEL", key)
                continue
            present = _named_parts(columns, at)
            absent = [name for name, values in columns.items() if values[at] is None]
            if present:
                yield ("HSET", key, *present)
            if absent:
                yield ("HDEL", key, *absent)
            if self.expire_s is not None:
                yield ("EXPIRE", key, self.expire_s)

    def describe(self) -> str:
        return f"hashes {self.prefix}*"


@dataclass(frozen=True)
class AddToStream(CommandMaker):
    """`XADD stream * field value …`: the fields of a row, or `value` with the whole record encoded by `schema`."""

    stream: str
    schema: SerializationSchema | None = None
    length_max: int | None = None

    def commands(self, batch: Batch) -> Iterator[Command]:
        head: tuple[Argument, ...] = ("XADD", self.stream)
        if self.length_max is not None:
            head += ("MAXLEN", "~", self.length_max)
        head += ("*",)
        if self.schema is not None:
            for value in encoder_of(self.schema, batch.type_info).encode(batch).to_pylist():
                yield (*head, "value", b"" if value is None else value)
            return
        names = _field_names(batch.type_info)
        if names is None:
            for text in texts(batch.values(), batch.type_info):
                yield (*head, "value", text)
            return
        columns = {name: _texts(batch, name) for name in names}
        for at in range(batch.length):
            # An entry of a stream needs at least one field.
            yield (*head, *(_named_parts(columns, at) or ("value", "")))

    def describe(self) -> str:
        return f"stream {self.stream}"


@dataclass(frozen=True)
class RunCommands(CommandMaker):
    """User-defined commands: a function returns one, or several, or None for each record."""

    function: Callable[[Any], Any] = field(repr=False)

    def commands(self, batch: Batch) -> Iterator[Command]:
        for value in batch.values():
            answer = self.function(value)
            if answer is None:
                continue
            several = [answer] if isinstance(answer, tuple) else answer
            if not isinstance(several, list) or not all(isinstance(command, tuple) and command for command in several):
                raise TypeMismatchError(
                    f"the function for Redis commands returned {answer!r} for {value!r}, expected a tuple such as "
                    "('INCRBY', 'total', 3), a list of such tuples, or None",
                    value=answer,
                )
            yield from several

    def describe(self) -> str:
        return "commands"


def _named_parts(columns: Mapping[str, Sequence[str | bytes | None]], at: int) -> list[Argument]:
    """Name and value of every present field of row `at`, one after the other."""
    return [part for name, values in columns.items() if (value := values[at]) is not None for part in (name, value)]


def _bytes(argument: Any) -> bytes:
    if isinstance(argument, bytes):
        return argument
    if isinstance(argument, str):
        return argument.encode("utf-8", "surrogatepass")
    if isinstance(argument, (int, float)) and not isinstance(argument, bool):
        return str(argument).encode()
    raise TypeMismatchError(
        f"a Redis command holds {argument!r} ({type(argument).__name__}), expected text, bytes or numbers",
        value=argument,
    )


def _kinds(batch: Batch) -> Iterator[bool | None]:
    """Whether each record is a delete; None: it is the first row of an update."""
    for value in batch.values():
        kind = value.get_row_kind() if isinstance(value, Row) else RowKind.INSERT
        yield None if kind is RowKind.UPDATE_BEFORE else kind is RowKind.DELETE


def _keys(batch: Batch, key: Field, prefix: str) -> list[Argument]:
    keys: list[Argument] = []
    for at, text in enumerate(_texts(batch, key)):
        if text is None:
            raise TypeMismatchError(
                f"the key {key!r} of {batch.values()[at]!r} is None, but Redis keys cannot be None. Filter such "
                "records, or set a key",
                value=batch.values()[at],
            )
        keys.append(prefix.encode() + text if isinstance(text, bytes) else prefix + text)
    return keys


def _texts(batch: Batch, chosen: Field) -> list[str | bytes | None]:
    """A field of every record as a Redis argument: bytes unchanged, anything else as its type's text."""
    values, field_type = _column(batch, chosen)
    shown = iter(texts([value for value in values if value is not None and not isinstance(value, bytes)], field_type))
    return [value if value is None or isinstance(value, bytes) else next(shown) for value in values]


def _column(batch: Batch, chosen: Field) -> tuple[list[Any], TypeInformation | None]:
    if callable(chosen):
        return [chosen(value) for value in batch.values()], None
    type_info = batch.type_info
    names = _field_names(type_info)
    if isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
        at = names.index(chosen) if names is not None and chosen in names else chosen
        if not isinstance(at, int) or not 0 <= at < len(type_info.get_field_types()):
            raise ProgramError(f"{type_info} has no field {chosen!r}. Its fields are {names}")
        return [value[at] for value in batch.values()], type_info.get_field_types()[at]
    try:
        return [value[chosen] for value in batch.values()], None
    except (TypeError, KeyError, IndexError) as error:
        raise ProgramError(
            f"a record has no field {chosen!r} ({error}). Declare the type of the stream, or pass a function"
        ) from error


def _field_names(type_info: TypeInformation | None) -> list[str] | None:
    if isinstance(type_info, RowTypeInfo):
        return list(type_info.get_field_names())
    if isinstance(type_info, TupleTypeInfo):
        return [f"f{at}" for at in range(len(type_info.get_field_types()))]
    return None
