"""Decodes many JSON documents at once into columns.

Most documents of a topic have the same shape, and their values are extracted by it (`json_shapes`). Arrow reads the
others. It is six times as fast as parsing document by document, but slightly more lenient. So it only receives messages
that are certainly one object each, and types that both parse identically:

- Messages are joined by line ends. Inside an object a '}' is never followed by a line end and a '{', and a string never
  contains a line end. So if each message starts with '{' and ends with '}', each holds at least one whole document, and
  when Arrow returns as many documents as there are messages, each belongs to its own message.
- For a repeated field, a string for a number, a lone surrogate: Arrow fails, and the slow parser decides.
- Dates, times and bytes are read as text and then converted (`_FINISHED`), where their form is certain.
  Otherwise the message is marked, and read individually.
- Arrow does not read MAP, TUPLE, BIG_INT, BIG_DEC and untyped parts: rows with them are parsed one by one,
  and converted to columns together.

Invariant: the rows equal those of `JsonDocuments.read` for each message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from millstream.common.typeinfo import (
    BasicType,
    BasicTypeInfo,
    DecimalTypeInfo,
    RowTypeInfo,
    TypeInformation,
    Types,
)
from millstream.connectors.messages.json_shapes import learnt_shape, read_shape, supports_shapes
from millstream.connectors.messages.json_values import NESTING_MAX, JsonDocuments, holds_decimals
from millstream.connectors.messages.row_decoder import ReadColumns, RowDecoder
from millstream.connectors.messages.text_columns import (
    Finish,
    Mask,
    bytes_column,
    char_column,
    instant_column,
    narrow_decimals,
    narrow_floats,
    temporal_column,
    wide_decimal,
)
from millstream.records.bounded_numbers import LONG_EXPONENT
from millstream.records.columns import arrow_type, stream_schema
from millstream.records.shapes import is_byte_array, is_sequence, plain_type

__all__ = ["JsonDecoder"]

_ALIKE = frozenset(
    {BasicType.STRING, BasicType.BOOLEAN, BasicType.BYTE, BasicType.SHORT, BasicType.INT, BasicType.LONG}
)
_SPACE = " \t\r\n"
_SHAPED_MIN, _SHAPED_MANY, _SKIPS_MAX = 64, 4096, 64
_WINDOW, _WINDOW_MIN, _SHOWN_CHARS_MAX = 256, 16, 100
_ROWS_PER_REFUSAL = 32  # a failure costs as much as some documents read one by one
_REFUSED_ROW = re.compile("in row ([0-9]{1,9})$")
_MANY_DIGITS = "[0-9]{1000}"  # Python rejects whole numbers with more than 4,300


class JsonDecoder(RowDecoder):
    """Decodes rows from JSON documents.

    >>> from millstream.connectors.messages.codecs import Messages
    >>> row = Types.ROW_NAMED(["n"], [Types.LONG()])
    >>> decoded = JsonDecoder(row).decode(Messages(pa.array([b'{"n": 1}', b"{", b'{"x": 2}']), str))
    >>> decoded.batch.values(), [bad.index for bad in decoded.bad]
    ([Row(n=1), Row(n=None)], [1])
    """

    def __init__(
        self, type_info: RowTypeInfo, fail_on_missing_field: bool = False, ignore_parse_errors: bool = False
    ) -> None:
        self.type_info: TypeInformation = type_info
        self.ignores_bad = ignore_parse_errors
        self.has_columns = _layout(type_info) is not None
        self._documents = JsonDocuments(type_info, fail_on_missing_field)
        self._misses = self._skips = 0

    def rows(self, message: bytes) -> Sequence[Any]:
        value = self._documents.value(message)
        return () if value is None else (value,)

    def columns(self, values: pa.Array) -> ReadColumns | None:
        layout = _layout(self.type_info)
        if layout is None:
            return None
        try:
            texts = values.cast(pa.string())
        except pa.ArrowInvalid:  # not UTF-8
            return None
        cut = self._cut(texts, layout)
        if cut is not None:
            return cut
        texts, is_plain = _objects(texts)
        if layout.has_decimals:
            is_plain &= ~pc.match_substring_regex(texts, LONG_EXPONENT).to_numpy(zero_copy_only=False)
        eligible = texts if is_plain.all() else texts.filter(pa.array(is_plain))
        if not len(eligible):
            return None
        batch = _parsed(eligible, layout.wire)
        if isinstance(batch, pa.RecordBatch):
            return self._finished(batch.columns, is_plain, layout)
        if len(eligible) <= _WINDOW_MIN:
            return None
        batch, is_parsed = _parsed_in_windows(eligible, layout.wire)
        is_plain[np.flatnonzero(is_plain)[~is_parsed]] = False
        return self._finished(batch.columns, is_plain, layout) if batch.num_rows else None

    def _cut(self, texts: pa.Array, layout: _Layout) -> ReadColumns | None:
        """The documents of one shape, if at least half match. After a failed attempt the next ones are skipped for a
        growing time."""
        if not layout.supports_shapes or len(texts) < _SHAPED_MIN:
            return None
        if self._skips:
            self._skips -= 1
            return None
        shape = learnt_shape(texts, layout.wire)
        cut = None if shape is None else read_shape(texts, shape, layout.wire)
        if cut is None or 2 * np.count_nonzero(cut[1]) < len(texts):
            if len(texts) >= _SHAPED_MANY:  # a few may be the rest of a larger batch
                self._misses += 1
                self._skips = min(2**self._misses, _SKIPS_MAX)
            return None
        self._misses = 0
        columns, is_fit = cut
        result = self._finished([columns[name] for name in layout.wire.names], is_fit, layout)
        return None if result is None else replace(result, is_open=True)

    def _finished(self, wire_columns: Sequence[pa.Array], is_plain: Mask, layout: _Layout) -> ReadColumns | None:
        """Converts Arrow's columns to the declared types."""
        doubt = np.zeros(len(wire_columns[0]), np.bool_)
        try:
            columns = [finish(column, doubt) for finish, column in zip(layout.finishes, wire_columns, strict=True)]
        except pa.ArrowInvalid:  # such as a 30th of February
            return None
        if self._documents.fails_on_missing_field:
            for column in columns:
                _mark_nulls(column, doubt)
        result = pa.RecordBatch.from_arrays(columns, schema=layout.schema)
        if doubt.any():
            is_plain[np.flatnonzero(is_plain)[doubt]] = False
            result = result.filter(pa.array(~doubt))
        return ReadColumns(result, is_plain)


def _objects(texts: pa.Array) -> tuple[pa.Array, Mask]:
    """The strings without surrounding space, and the mask of those that look like one object readable by Arrow."""
    is_plain = _are_braced(texts)
    if not is_plain.all():
        texts = pc.utf8_trim(texts, characters=_SPACE)
        is_plain = _are_braced(texts)
    lengths = np.asarray(pc.binary_length(texts))
    if lengths.max() > NESTING_MAX:
        long = np.flatnonzero(lengths > NESTING_MAX)
        some = texts.take(pa.array(long))
        brackets = np.asarray(pc.add(pc.count_substring(some, "["), pc.count_substring(some, "{")))
        is_plain[long[brackets > NESTING_MAX]] = False
        has_many_digits = pc.match_substring_regex(some, _MANY_DIGITS).to_numpy(zero_copy_only=False)
        is_plain[long[has_many_digits]] = False
    return texts, is_plain


def _are_braced(texts: pa.Array) -> Mask:
    braced = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
    return braced.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _parsed_in_windows(texts: pa.Array, wire: pa.Schema) -> tuple[pa.RecordBatch, Mask]:
    """The documents read by Arrow, without those that it rejects, and the mask of the ones read.

    Arrow stops at the first rejected document, and usually reports its number. So it reads windows: the documents
    before the rejected one are read again, and the next window starts after it. After many rejections the rest is not
    read.
    """
    batches: list[pa.RecordBatch] = []
    is_parsed = np.zeros(len(texts), np.bool_)
    start, width, refusals = 0, _WINDOW, 0
    while start < len(texts) and refusals * _ROWS_PER_REFUSAL <= start + _WINDOW:
        window = texts.slice(start, width)
        batch_or_row = _parsed(window, wire)
        if isinstance(batch_or_row, pa.RecordBatch):
            batches.append(batch_or_row)
            is_parsed[start : start + len(window)] = True
            start, width = start + len(window), min(2 * width, _WINDOW)
            continue
        refusals += 1
        if batch_or_row is not None and batch_or_row < len(window):
            before = _parsed(window.slice(0, batch_or_row), wire) if batch_or_row else None
            if isinstance(before, pa.RecordBatch):
                batches.append(before)
                is_parsed[start : start + batch_or_row] = True
            start += batch_or_row + 1
        elif len(window) > _WINDOW_MIN:
            width = max(len(window) // 4, _WINDOW_MIN)
        else:
            start, width = start + len(window), _WINDOW
    return (pa.concat_batches(batches) if batches else pa.RecordBatch.from_pylist([], schema=wire)), is_parsed


def _parsed(texts: pa.Array, wire: pa.Schema) -> pa.RecordBatch | int | None:
    """The documents read by Arrow. If it rejects one: its number, or None if unknown; also None unless there is one
    document per string."""
    lists = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    try:
        body = pc.binary_join(lists, "\n")[0].as_buffer()
        table = pj.read_json(
            pa.BufferReader(body),
            read_options=pj.ReadOptions(use_threads=False, block_size=body.size + 1),
            parse_options=pj.ParseOptions(explicit_schema=wire, unexpected_field_behavior="ignore"),
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowCapacityError, OverflowError) as error:
        return _rejected_row(str(error), texts)
    if table.num_rows != len(texts) or not table.schema.equals(wire):
        return None
    [batch] = table.combine_chunks().to_batches()
    return batch


def _rejected_row(reason: str, texts: pa.Array) -> int | None:
    """The document that Arrow's error refers to; a guess, which affects only the speed."""
    row = _REFUSED_ROW.search(reason)
    if row is not None:
        return int(row[1])
    _, _, value = reason.partition("couldn't parse:")
    if not value or len(value) > _SHOWN_CHARS_MAX:
        return None
    holds_value = pc.match_substring_regex(texts, rf"[:,\[]\s*{re.escape(value)}\s*[,\]}}]")
    return int(pc.index(holds_value, pa.scalar(True)).as_py()) if pc.any(holds_value).as_py() else None


class _Layout:
    """The types that Arrow reads, and their conversion to the columns of a type."""

    def __init__(self, row: RowTypeInfo, columns: list[tuple[pa.DataType, Finish]]) -> None:
        self.wire = pa.schema(
            [pa.field(name, wire) for name, (wire, _) in zip(row.get_field_names(), columns, strict=True)]
        )
        self.supports_shapes = supports_shapes(self.wire)
        self.has_decimals = holds_decimals(row)
        self.finishes = [finish for _, finish in columns]
        self.schema = stream_schema(row)


@lru_cache(maxsize=256)
def _layout(type_info: TypeInformation) -> _Layout | None:
    plain = plain_type(type_info)
    assert isinstance(plain, RowTypeInfo)
    columns = [_column(field) for field in plain.get_field_types()]
    known = [column for column in columns if column is not None]
    return _Layout(plain, known) if known and len(known) == len(columns) else None


def _column(type_info: TypeInformation) -> tuple[pa.DataType, Finish] | None:
    """The type that Arrow reads instead of a type, and its conversion; None: Arrow cannot read it equivalently."""
    plain = plain_type(type_info)
    arrow = arrow_type(plain)
    if isinstance(plain, RowTypeInfo):
        return _struct(plain)
    if is_byte_array(plain):
        return pa.string(), bytes_column
    if is_sequence(plain):
        return _list(plain.element_type)
    if isinstance(plain, DecimalTypeInfo):
        return wide_decimal(plain), narrow_decimals(plain)
    if isinstance(plain, BasicTypeInfo) and plain.basic_type in _ALIKE:
        return arrow, _unchanged
    if isinstance(plain, BasicTypeInfo):
        return _FINISHED.get(plain.basic_type)
    temporal = temporal_column(plain)
    return None if temporal is None else (pa.string(), temporal)


def _unchanged(array: pa.Array, doubt: Mask) -> pa.Array:
    return array


def _double(array: pa.Array, doubt: Mask) -> pa.Array:
    # Python reads -0 as the integer 0, Arrow as -0.0.
    numbers = array.to_numpy(zero_copy_only=False)
    is_negative_zero = (numbers == 0) & np.signbit(numbers)
    if is_negative_zero.any():
        doubt |= is_negative_zero
    return array


def _struct(row: RowTypeInfo) -> tuple[pa.DataType, Finish] | None:
    parts = [_column(field) for field in row.get_field_types()]
    known = [part for part in parts if part is not None]
    if not known or len(known) < len(parts):
        return None
    wire = pa.struct([pa.field(name, part) for name, (part, _) in zip(row.get_field_names(), known, strict=True)])
    arrow = arrow_type(row)

    def finish(array: pa.Array, doubt: Mask) -> pa.Array:
        nulls = array.is_null() if array.null_count else None
        children = [part(array.field(at), doubt) for at, (_, part) in enumerate(known)]
        return pa.StructArray.from_arrays(children, type=arrow, mask=nulls)

    return wire, finish


def _list(element_type: TypeInformation) -> tuple[pa.DataType, Finish] | None:
    element = _column(element_type)
    if element is None:
        return None
    wire, finish_element = element
    arrow = arrow_type(Types.LIST(element_type))

    def finish(array: pa.Array, doubt: Mask) -> pa.Array:
        items = array.flatten()  # covers only items of non-null lists
        element_doubt = np.zeros(len(items), np.bool_)
        items = finish_element(items, element_doubt)
        lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0))
        if element_doubt.any():
            doubt[np.repeat(np.arange(len(array)), lengths)[element_doubt]] = True
        offsets = np.zeros(len(array) + 1, np.int32)
        np.cumsum(lengths, out=offsets[1:])
        nulls = array.is_null() if array.null_count else None
        return pa.ListArray.from_arrays(pa.array(offsets), items, type=arrow, mask=nulls)

    return pa.list_(wire), finish


def _mark_nulls(array: pa.Array, doubt: Mask) -> None:
    """Marks nulls as doubtful, since the field may be missing, which only the document itself shows."""
    if array.null_count:
        doubt |= np.asarray(array.is_null())
    if pa.types.is_struct(array.type):
        for at in range(array.type.num_fields):
            _mark_nulls(array.field(at), doubt)
    elif pa.types.is_list(array.type) and pa.types.is_struct(array.type.value_type):
        items = array.flatten()
        element_doubt = np.zeros(len(items), np.bool_)
        _mark_nulls(items, element_doubt)
        lengths = np.asarray(pc.fill_null(pc.list_value_length(array), 0))
        doubt[np.repeat(np.arange(len(array)), lengths)[element_doubt]] = True


def _float(array: pa.Array, doubt: Mask) -> pa.Array:
    return narrow_floats(_double(array, doubt), doubt)


_FINISHED: dict[BasicType, tuple[pa.DataType, Finish]] = {
    BasicType.DOUBLE: (pa.float64(), _double),
    BasicType.FLOAT: (pa.float64(), _float),
    BasicType.CHAR: (pa.string(), char_column),
    BasicType.INSTANT: (pa.string(), instant_column),
}
