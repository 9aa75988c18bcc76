"""Converts protobuf messages to rows and back, by a compiled class or a descriptor set.

A message type maps to a row, an enum to its name, a repeated field to a list, `Timestamp` to an instant, an unsigned
64-bit number to BIG_INT. An optional field that is absent is None. A field without presence (a plain one of proto3)
always has a value, so None is rejected for it: it would be read back as 0.

Tasks receive the descriptor set, as bytes, and create classes from it where needed. Recursive types are rejected, since
a row type cannot be recursive.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import pyarrow as pa

from millstream.common.time import Instant
from millstream.common.typeinfo import RowTypeInfo, TypeInformation, Types
from millstream.connectors.messages.codecs import MessageEncoder
from millstream.connectors.messages.row_decoder import RowDecoder
from millstream.connectors.messages.row_kinds import inserted_rows
from millstream.errors import ProgramError, TypeMismatchError
from millstream.records.batch import Batch
from millstream.records.columns import as_declared, from_record_batch

__all__ = ["ProtobufDecoder", "ProtobufEncoder", "ProtobufSource", "protobuf_source"]

_TIMESTAMP = "google.protobuf.Timestamp"
_NANOS = 1_000_000_000
Read = Callable[[Any], Any]
Write = Callable[[Any, Any], None]


def _protobuf() -> Any:
    """The required modules of the package."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory
    except ImportError:
        raise ProgramError("Protobuf needs the package protobuf: pip install 'millstream[protobuf]'.") from None
    return descriptor_pb2, descriptor_pool, message, message_factory


@dataclass(frozen=True)
class ProtobufSource:
    """A message type: its full name, and the descriptor set that contains it, as bytes."""

    descriptor_set: bytes
    name: str

    @property
    def message_class(self) -> Any:
        """The class of the messages."""
        return _message_class(self)

    @property
    def row_type(self) -> RowTypeInfo:
        """The type of the rows."""
        return _row_type(self)

    def value(self, data: bytes) -> tuple[Any, ...]:
        """The content of a message, before its type check. Raises ValueError."""
        message = _message_class(self)()
        try:
            message.ParseFromString(data)
        except _protobuf()[2].DecodeError as error:
            raise ValueError(f"it is not a Protobuf message {self.name} ({error})") from error
        if not message.IsInitialized():
            raise ValueError(f"required fields of {self.name} are missing: {message.FindInitializationErrors()}")
        fields: tuple[Any, ...] = _reader(self)(message)
        return fields

    def read(self, data: bytes) -> Any:
        """The row of a message."""
        return as_declared([self.value(data)], self.row_type)[0]

    def encoded(self, row: Any) -> bytes:
        """The message of a row whose type was checked."""
        message = _message_class(self)()
        try:
            _writer(self)(message, row)
            data: bytes = message.SerializeToString(deterministic=True)
        except (ValueError, TypeError, _protobuf()[2].EncodeError) as error:
            raise TypeMismatchError(
                f"{row!r} does not fit the Protobuf message {self.name}: {error}", value=row
            ) from error
        return data

    def write(self, row: Any) -> bytes:
        """The message of a row."""
        return self.encoded(as_declared([row], self.row_type)[0])


def protobuf_source(message_class: Any = None, descriptor_set: Any = None, message_name: Any = None) -> ProtobufSource:
    """The message type of a compiled class, or of a name in a descriptor set."""
    descriptor_pb2 = _protobuf()[0]
    if message_class is not None:
        descriptor = getattr(message_class, "DESCRIPTOR", None)
        if descriptor is None or not hasattr(descriptor, "fields_by_name"):
            raise ProgramError(f"found {message_class!r}, expected a message class compiled by protoc.")
        files = descriptor_pb2.FileDescriptorSet()
        _add_file(descriptor.file, files, set())
        source = ProtobufSource(files.SerializeToString(deterministic=True), descriptor.full_name)
    elif isinstance(descriptor_set, bytes) and isinstance(message_name, str):
        source = ProtobufSource(descriptor_set, message_name)
    else:
        raise ProgramError("pass a compiled message class, or descriptor_set= (bytes) with message_name=.")
    assert source.row_type is not None  # rejects types that cannot be a row
    return source


def _add_file(file: Any, files: Any, names: set[str]) -> None:
    """Adds the file after the files it depends on."""
    if file.name in names:
        return
    names.add(file.name)
    for needed in file.dependencies:
        _add_file(needed, files, names)
    file.CopyToProto(files.file.add())


@lru_cache(maxsize=64)
def _message_class(source: ProtobufSource) -> Any:
    descriptor_pb2, descriptor_pool, message, message_factory = _protobuf()
    pool = descriptor_pool.DescriptorPool()
    try:
        for file in descriptor_pb2.FileDescriptorSet.FromString(source.descriptor_set).file:
            pool.Add(file)
        return message_factory.GetMessageClass(pool.FindMessageTypeByName(source.name))
    except (message.DecodeError, TypeError, KeyError) as error:
        raise ProgramError(
            f"the descriptor set has no usable message {source.name!r}: {error}. Write it with protoc "
            "--include_imports --descriptor_set_out, and pass the message's full name."
        ) from error


@lru_cache(maxsize=64)
def _row_type(source: ProtobufSource) -> RowTypeInfo:
    return _message_type(_message_class(source).DESCRIPTOR, ())


def _message_type(descriptor: Any, outer: tuple[str, ...]) -> RowTypeInfo:
    if descriptor.full_name in outer:
        raise ProgramError(f"Protobuf message {descriptor.full_name} contains itself, which rows cannot.")
    if not descriptor.fields:
        raise ProgramError(f"Protobuf message {descriptor.full_name} has no fields, but a row needs some.")
    inner = (*outer, descriptor.full_name)
    types = [_field_type(field, inner) for field in descriptor.fields]
    return Types.ROW_NAMED([field.name for field in descriptor.fields], types)


def _field_type(field: Any, outer: tuple[str, ...]) -> TypeInformation:
    if _is_map(field):
        key, value = field.message_type.fields_by_name["key"], field.message_type.fields_by_name["value"]
        return Types.MAP(_single_type(key, outer), _single_type(value, outer))
    return Types.LIST(_single_type(field, outer)) if _is_repeated(field) else _single_type(field, outer)


def _single_type(field: Any, outer: tuple[str, ...]) -> TypeInformation:
    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return Types.INSTANT()
        return _message_type(field.message_type, outer)
    singles: dict[int, TypeInformation] = {
        field.CPPTYPE_INT32: Types.INT(),
        field.CPPTYPE_INT64: Types.LONG(),
        field.CPPTYPE_UINT32: Types.LONG(),
        field.CPPTYPE_UINT64: Types.BIG_INT(),
        field.CPPTYPE_DOUBLE: Types.DOUBLE(),
        field.CPPTYPE_FLOAT: Types.FLOAT(),
        field.CPPTYPE_BOOL: Types.BOOLEAN(),
        field.CPPTYPE_ENUM: Types.STRING(),
    }
    if field.cpp_type == field.CPPTYPE_STRING:
        return Types.PRIMITIVE_ARRAY(Types.BYTE()) if field.type == field.TYPE_BYTES else Types.STRING()
    return singles[field.cpp_type]


def _is_repeated(field: Any) -> bool:
    # Releases before 6 have a field's label, later ones do not.
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == field.LABEL_REPEATED)


def _is_map(field: Any) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


# --- reading --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _reader(source: ProtobufSource) -> Read:
    return _message_reader(_message_class(source).DESCRIPTOR)


def _message_reader(descriptor: Any) -> Read:
    readers = [_field_reader(field) for field in descriptor.fields]
    return lambda message: tuple([read(message) for read in readers])


def _field_reader(field: Any) -> Read:
    name = field.name
    if _is_map(field):
        convert = _value_reader(field.message_type.fields_by_name["value"])
        return lambda message: {key: convert(value) for key, value in getattr(message, name).items()}
    convert = _value_reader(field)
    if _is_repeated(field):
        return lambda message: [convert(value) for value in getattr(message, name)]
    if field.has_presence:
        return lambda message: convert(getattr(message, name)) if message.HasField(name) else None
    return lambda message: convert(getattr(message, name))


def _value_reader(field: Any) -> Read:
    if field.message_type is not None:
        return _instant if field.message_type.full_name == _TIMESTAMP else _message_reader(field.message_type)
    if field.enum_type is not None:
        names = {value.number: value.name for value in reversed(field.enum_type.values)}
        return lambda number: _enum_name(names, number, field.name)
    return lambda value: value


def _enum_name(names: dict[int, str], number: int, field_name: str) -> str:
    if number not in names:
        raise ValueError(f"field {field_name} holds the enum value {number}, which has no name")
    return names[number]


def _instant(value: Any) -> Instant:
    if not 0 <= value.nanos < _NANOS:
        raise ValueError(f"a Timestamp has {value.nanos} nanos, expected 0 to {_NANOS - 1}")
    return Instant(value.seconds, value.nanos)


# --- writing --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=64)
def _writer(source: ProtobufSource) -> Write:
    return _message_writer(_message_class(source).DESCRIPTOR)


def _message_writer(descriptor: Any) -> Write:
    writers = [_field_writer(field) for field in descriptor.fields]

    def write(message: Any, row: Any) -> None:
        message.SetInParent()
        for write_field, value in zip(writers, row, strict=True):
            write_field(message, value)

    return write


def _field_writer(field: Any) -> Write:
    if _is_map(field):
        return _map_writer(field)
    if _is_repeated(field):
        return _list_writer(field)
    name, has_presence, set_value = field.name, field.has_presence, _setter(field)

    def write(message: Any, value: Any) -> None:
        if value is not None:
            set_value(message, value)
        elif not has_presence:
            raise ValueError(f"field {name} is None, but it always has a value. Declare it `optional`")

    return write


def _setter(field: Any) -> Write:
    name = field.name
    if field.message_type is None:
        convert = _single_writer(field)
        return lambda message, value: setattr(message, name, convert(value))
    write = _nested_writer(field)
    return lambda message, value: write(getattr(message, name), value)


def _nested_writer(field: Any) -> Write:
    if field.message_type.full_name != _TIMESTAMP:
        return _message_writer(field.message_type)

    def write(message: Any, value: Instant) -> None:
        message.SetInParent()
        message.seconds, message.nanos = value.seconds, value.nanos

    return write


def _single_writer(field: Any) -> Read:
    if field.enum_type is None:
        return lambda value: value
    numbers: dict[str, int] = {value.name: value.number for value in field.enum_type.values}

    def convert(name: str) -> int:
        if name not in numbers:
            raise ValueError(f"field {field.name} is {name!r}, expected one of {sorted(numbers)}")
        return numbers[name]

    return convert


def _list_writer(field: Any) -> Write:
    name = field.name

    def write(message: Any, values: Any) -> None:
        if values is None or None in values:
            raise ValueError(f"field {name} is or holds None, but a repeated field cannot. Use an empty list")
        target = getattr(message, name)
        if field.message_type is None:
            target.extend(map(_single_writer(field), values))
            return
        write_item = _nested_writer(field)
        for value in values:
            write_item(target.add(), value)

    return write


def _map_writer(field: Any) -> Write:
    name, value_field = field.name, field.message_type.fields_by_name["value"]

    def write(message: Any, values: Any) -> None:
        if values is None or any(value is None for value in values.values()):
            raise ValueError(f"field {name} is or holds None, but a map cannot. Use an empty dict")
        target = getattr(message, name)
        for key, value in values.items():
            if value_field.message_type is None:
                target[key] = _single_writer(value_field)(value)
            else:
                _nested_writer(value_field)(target[key], value)

    return write


class ProtobufDecoder(RowDecoder):
    """Decodes rows from messages."""

    def __init__(self, source: ProtobufSource, ignore_parse_errors: bool = False) -> None:
        self._source = source
        self.ignores_bad = ignore_parse_errors
        self.type_info: TypeInformation = source.row_type

    def rows(self, message: bytes) -> Sequence[Any]:
        return (self._source.value(message),)


class ProtobufEncoder(MessageEncoder):
    """Encodes rows as messages."""

    def __init__(self, source: ProtobufSource) -> None:
        self._source = source

    def encode(self, batch: Batch) -> pa.Array:
        row_type = self._source.row_type
        rows = from_record_batch(inserted_rows(batch, row_type, "Protobuf"), row_type)
        return pa.array([self._source.encoded(row) for row in rows], pa.binary())
