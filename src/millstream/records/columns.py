"""Converts values to Arrow columns and back: the hot path of every typed stream.

A stream of type ROW has a column per field, a TUPLE the columns f0, f1, ..., any other type the single column `value`.
Conversion runs a column at a time (`codecs`, `row_codec`); only a column with unusual values is converted value by
value (`conform`), to convert them exactly or to name the one that does not fit.

Invariant: the values read back are those that `conform` defines, in order; nothing is truncated, rounded (except FLOAT)
or guessed. Untyped streams (`Types.PICKLED_BYTE_ARRAY()`) have no columns and are rejected here.

The first bytes of a block of records are also defined here: `runtime.exchange.blocks` packs and unpacks blocks, and
readers outside the job read stored ones, but open no pickle.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import pyarrow as pa

from millstream.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    DecimalTypeInfo,
    MapTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from millstream.errors import ProgramError, TypeMismatchError
from millstream.records import codecs
from millstream.records.codecs import Codec, Doubt, OpenPickle, reject_pickle
from millstream.records.conformance import conform
from millstream.records.row_codec import KIND_COLUMN, RowCodec, ValueCodec
from millstream.records.shapes import is_byte_array, is_hashable, is_sequence, plain_type
from millstream.records.table_type import TableRowType, TableValueType, plain_equivalent
from millstream.records.table_values import TableRowCodec, codec_for

__all__ = [
    "KIND_COLUMN",
    "PICKLE",
    "TIMESTAMP_COLUMN",
    "TYPED",
    "arrow_type",
    "as_declared",
    "checked_batch",
    "encode_record_batch",
    "from_record_batch",
    "holds_pickles",
    "keeps_values",
    "stream_schema",
    "to_record_batch",
    "typed_schema",
    "zero_padded",
]

_DIRECT: dict[BasicType, tuple[pa.DataType, type]] = {
    BasicType.STRING: (pa.string(), str),
    BasicType.BOOLEAN: (pa.bool_(), bool),
    BasicType.BYTE: (pa.int8(), int),
    BasicType.SHORT: (pa.int16(), int),
    BasicType.INT: (pa.int32(), int),
    BasicType.LONG: (pa.int64(), int),
}


def arrow_type(type_info: TypeInformation) -> pa.DataType | None:
    """The Arrow type of the values, or None if the stream is untyped and exchanged as pickles.

    >>> arrow_type(Types.LIST(Types.INT()))
    ListType(list<item: int32>)
    """
    return None if _is_untyped(type_info) else _codec(type_info).arrow


def stream_schema(type_info: TypeInformation) -> pa.Schema | None:
    """The columns of a stream of this type, or None if it is untyped.

    >>> stream_schema(Types.TUPLE([Types.STRING(), Types.LONG()])).names
    ['f0', 'f1']
    """
    return None if _is_untyped(type_info) else _stream_codec(type_info).schema


def typed_schema(type_info: TypeInformation) -> pa.Schema:
    """The columns of a stream known to be typed, such as the stream of a columnar operator, as ensured by the plan."""
    schema = stream_schema(type_info)
    assert schema is not None, f"a stream of {type_info} has no columns"
    return schema


def to_record_batch(values: list[Any], type_info: TypeInformation) -> pa.RecordBatch:
    """The values as columns; raises TypeMismatchError for the first value that does not fit.

    >>> to_record_batch([("a", 1)], Types.TUPLE([Types.STRING(), Types.LONG()])).to_pylist()
    [{'f0': 'a', 'f1': 1}]
    """
    return encode_record_batch(values, type_info)[0]


def encode_record_batch(values: list[Any], type_info: TypeInformation) -> tuple[pa.RecordBatch, bool]:
    """The values as columns, and whether that is lossless (see `keeps_values`), in one pass.

    >>> encode_record_batch([1, 2], Types.DOUBLE())[1]
    False
    """
    codec = _stream_codec(type_info)
    try:
        return codec.encode_batch(values)
    except Doubt:
        pass
    exact = [conform(value, type_info) for value in values]
    try:
        return codec.encode_batch(exact)[0], False
    except Doubt:
        raise ProgramError(
            f"{len(values)} values of {type_info} do not fit one Arrow batch: a column or its lists would exceed "
            "2 GiB. Lower millstream.batch.max-records."
        ) from None


def from_record_batch(
    batch: pa.RecordBatch, type_info: TypeInformation, open_pickle: OpenPickle = reject_pickle
) -> list[Any]:
    """The columns as Python values: Row for ROW, tuple for TUPLE, and so on. Untyped values are pickles, which only
    `open_pickle` may open.

    >>> row_type = Types.ROW_NAMED(["word", "count"], [Types.STRING(), Types.LONG()])
    >>> from_record_batch(to_record_batch([("a", 1)], row_type), row_type)
    [Row(word='a', count=1)]
    """
    return _stream_codec(type_info, open_pickle).decode_batch(checked_batch(batch, type_info))


def keeps_values(values: list[Any], type_info: TypeInformation) -> bool:
    """Whether a round trip through columns returns equal values of the same Python types.

    If so, the caller may continue to use its objects. False for values that do not fit the type.

    >>> keeps_values([1, 2], Types.LONG()), keeps_values([1, 2], Types.DOUBLE())
    (True, False)
    """
    if _is_untyped(type_info):
        return True
    try:
        return _stream_codec(type_info).encode_batch(values)[1]
    except Doubt:
        return False


def as_declared(values: list[Any], type_info: TypeInformation) -> list[Any]:
    """The values as columns would return them; the same list if that is lossless.

    >>> as_declared([1, 2], Types.DOUBLE())
    [1.0, 2.0]
    """
    if _is_untyped(type_info):
        return values
    batch, is_lossless = encode_record_batch(values, type_info)
    if is_lossless:
        return values
    # Untyped parts are unchanged: pickling them only to unpickle them again would be wasted.
    if holds_pickles(type_info):
        return [conform(value, type_info) for value in values]
    return from_record_batch(batch, type_info)


def checked_batch(batch: pa.RecordBatch, type_info: TypeInformation) -> pa.RecordBatch:
    """The batch with exactly the stream's columns; columns of a related type are cast if that is lossless. For external
    batches: from a user's `map_batches`, a DataFrame, a file.

    >>> checked_batch(pa.record_batch({"value": pa.array([1], pa.int64())}), Types.INT()).schema.field(0).type
    DataType(int32)
    """
    expected_schema = _stream_codec(type_info).schema
    if batch.schema.equals(expected_schema):
        return batch
    if batch.schema.names == [*expected_schema.names, KIND_COLUMN]:
        expected_schema = expected_schema.append(pa.field(KIND_COLUMN, pa.int8()))
        if batch.schema.equals(expected_schema):
            return batch
    if batch.schema.names != expected_schema.names:
        raise TypeMismatchError(
            f"a batch of {type_info} has the columns {batch.schema.names}, expected {expected_schema.names}. "
            "Select and name the columns so, or declare another type.",
            value=batch.schema,
        )
    return _cast(batch, expected_schema, type_info)


def _cast(batch: pa.RecordBatch, expected_schema: pa.Schema, type_info: TypeInformation) -> pa.RecordBatch:
    arrays = []
    for field, column in zip(expected_schema, batch.columns, strict=True):
        try:
            # Arrow would format numbers as strings and parse strings as numbers, which would be guessing.
            if pa.types.is_string(field.type) != _is_text(column.type):
                raise pa.ArrowInvalid("text is never converted from or to other types")
            arrays.append(column if column.type == field.type else column.cast(field.type))
        except pa.ArrowException as refusal:
            raise TypeMismatchError(
                f"column {field.name} of a batch of {type_info} is {column.type}, expected {field.type} ({refusal}). "
                "Cast it, or declare another type.",
                value=column,
                path=field.name,
            ) from None
    return pa.RecordBatch.from_arrays(arrays, schema=expected_schema)


def _is_text(arrow: pa.DataType) -> bool:
    kinds = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view, pa.types.is_dictionary)
    return any(is_kind(arrow) for is_kind in kinds)


def _is_untyped(type_info: TypeInformation) -> bool:
    return _codec_or_none(type_info) is None


@lru_cache(maxsize=1024)
def holds_pickles(type_info: TypeInformation) -> bool:
    """Whether any part of the type is a pickle, at any depth.

    >>> holds_pickles(Types.ROW([Types.LONG(), Types.LIST(Types.PICKLED_BYTE_ARRAY())]))
    True
    """
    plain = plain_type(type_info)
    if isinstance(plain, TableValueType):
        equivalent = plain_equivalent(plain.data_type)
        return equivalent is not None and holds_pickles(equivalent)
    if isinstance(plain, RowTypeInfo | TupleTypeInfo):
        return any(map(holds_pickles, plain.get_field_types()))
    if is_sequence(plain) and not is_byte_array(plain):
        return holds_pickles(plain.element_type)
    if isinstance(plain, MapTypeInfo):
        return holds_pickles(plain.key_type) or holds_pickles(plain.value_type)
    return _codec_or_none(plain) is None


@lru_cache(maxsize=1024)
def _codec_or_none(type_info: TypeInformation, open_pickle: OpenPickle = reject_pickle) -> Codec | None:
    """The codec of a type; None for pickles and for types of unknown kinds, which are exchanged as pickles."""
    plain = plain_type(type_info)
    if isinstance(plain, TableValueType):
        equivalent = plain_equivalent(plain.data_type)
        return codec_for(plain.data_type, None if equivalent is None else _codec(equivalent, open_pickle))
    if isinstance(plain, BasicTypeInfo):
        return _basic_codec(plain.basic_type)
    if isinstance(plain, RowTypeInfo):
        kind = TableRowCodec if isinstance(plain, TableRowType) else RowCodec
        return _row_codec(plain.get_field_names(), plain.get_field_types(), open_pickle, to_tuples=False, kind=kind)
    if isinstance(plain, TupleTypeInfo):
        types = plain.get_field_types()
        return _row_codec([f"f{i}" for i in range(len(types))], types, open_pickle, to_tuples=True)
    if is_byte_array(plain):
        return Codec(pa.binary(), bytes)
    if is_sequence(plain):
        return codecs.ListCodec(_codec(plain.element_type, open_pickle))
    if isinstance(plain, MapTypeInfo):
        if not is_hashable(plain.key_type):
            raise ProgramError(
                f"{type_info} has keys that are not hashable. Use a ROW, a TUPLE or a single value; in SQL, CAST the "
                "map to STRING, or use its MAP_KEYS and MAP_VALUES."
            )
        return codecs.MapCodec(_codec(plain.key_type, open_pickle), _codec(plain.value_type, open_pickle))
    if isinstance(plain, DecimalTypeInfo):
        return codecs.DecimalCodec(plain.precision, plain.scale)
    temporal: dict[TypeInformation, Codec] = {
        Types.SQL_DATE(): codecs.DateCodec(),
        Types.SQL_TIME(): codecs.TimeCodec(),
        Types.SQL_TIMESTAMP(): codecs.TimestampCodec(),
    }
    return temporal.get(plain)


def _codec(type_info: TypeInformation, open_pickle: OpenPickle = reject_pickle) -> Codec:
    """The codec of a nested type; untyped nested values have a codec too: a pickle per value."""
    return _codec_or_none(type_info, open_pickle) or codecs.pickled_codec(open_pickle)


def _basic_codec(basic: BasicType) -> Codec:
    special = {
        BasicType.CHAR: codecs.CharCodec,
        BasicType.FLOAT: codecs.FloatCodec,
        BasicType.DOUBLE: codecs.DoubleCodec,
        BasicType.BIG_INT: codecs.big_int_codec,
        BasicType.BIG_DEC: codecs.big_dec_codec,
        BasicType.INSTANT: codecs.InstantCodec,
    }
    return special[basic]() if basic in special else Codec(*_DIRECT[basic])


def _row_codec(
    names: list[str],
    types: list[TypeInformation],
    open_pickle: OpenPickle,
    *,
    to_tuples: bool,
    kind: type[RowCodec] = RowCodec,
) -> RowCodec:
    if KIND_COLUMN in names:
        raise ProgramError(f"a ROW names a field {KIND_COLUMN!r}, which holds the row's change kind. Rename the field.")
    return kind(names, [_codec(field_type, open_pickle) for field_type in types], to_tuples=to_tuples)


@lru_cache(maxsize=1024)
def _stream_codec(type_info: TypeInformation, open_pickle: OpenPickle = reject_pickle) -> RowCodec | ValueCodec:
    codec = _codec_or_none(type_info, open_pickle)
    if codec is None:
        raise ProgramError(f"a stream of {type_info} is untyped and has no columns. Declare a type, as Types.LONG().")
    return codec if isinstance(codec, RowCodec) else ValueCodec(codec)


TYPED = b"A"
"""The first byte of a block of typed records; an Arrow IPC stream follows."""
PICKLE = b"P"
"""The first byte of a block of untyped records; one pickle of (values, timestamps) follows."""
TIMESTAMP_COLUMN = "__timestamp"
"""The hidden column of timestamps in a block of typed records."""


def zero_padded(data: bytes) -> bytes:
    """The data, padded with zeros to a multiple of eight bytes. A pickle marks its own end.

    >>> zero_padded(b"123456789")
    b'123456789\\x00\\x00\\x00\\x00\\x00\\x00\\x00'
    """
    return data + bytes(-len(data) % 8)
