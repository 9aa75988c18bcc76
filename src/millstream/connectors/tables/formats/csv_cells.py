"""CSV fields as columns of SQL types, and back. A row or a list is one field, with separators between its elements."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.tables.formats.cell_text import (
    Mask,
    cell_text,
    cell_value,
    has_text,
    read_cells,
    written_cells,
)
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import ArrayType, RowType
from millstream.expressions.types import is_text

__all__ = ["contains_up_to", "csv_field", "csv_fields", "is_csv_type", "joined_texts", "text_bytes"]

_BYTES_MAX = 2**31 - 1  # of strings in one array


def is_csv_type(data_type: DataType) -> bool:
    """Whether a CSV field can hold the type."""
    return has_text(data_type) or isinstance(data_type, (ArrayType, RowType))


def csv_fields(
    texts: pa.Array, data_type: DataType, separator: str, null_text: str | None
) -> tuple[pa.Array, Mask | None]:
    """The values of fields, and a mask of invalid ones. An empty field is NULL, unless it is text."""
    if is_text(data_type):
        return texts, None
    present = pc.if_else(pc.equal(texts, ""), pa.scalar(None, pa.string()), texts)
    if has_text(data_type):
        return read_cells(present, data_type)
    bad = np.zeros(len(texts), np.bool_)
    values: list[Any] = []
    for at, text in enumerate(present.to_pylist()):
        try:
            values.append(None if text is None else _parts(text, data_type, separator, null_text))
        except ValueError:
            values.append(None)
            bad[at] = True
    return pa.array(values, data_type.arrow), bad if bad.any() else None


def _parts(text: str, data_type: DataType, separator: str, null_text: str | None) -> Any:
    parts = text.split(separator)
    if isinstance(data_type, ArrayType):
        return [_part(part, data_type.element_type, null_text) for part in parts]
    assert isinstance(data_type, RowType)
    if len(parts) != len(data_type.fields):
        raise ValueError(f"{text!r} has {len(parts)} parts, expected {len(data_type.fields)}")
    return {
        field.name: _part(part, field.data_type, null_text) for part, field in zip(parts, data_type.fields, strict=True)
    }


def _part(text: str, data_type: DataType, null_text: str | None) -> Any:
    if text == null_text or (not text and not is_text(data_type)):
        return None
    if not has_text(data_type):
        raise ValueError(f"{data_type} within another")
    return cell_value(text, data_type)


def csv_field(column: pa.Array, data_type: DataType, separator: str, null_text: str, plain_decimals: bool) -> pa.Array:
    """The strings of a column's fields; NULL for NULL."""
    if has_text(data_type):
        return written_cells(column, data_type, plain_decimals=plain_decimals)
    if isinstance(data_type, ArrayType):
        types = [data_type.element_type]
    else:
        assert isinstance(data_type, RowType)
        types = list(data_type.types)
    written: list[str | None] = []
    for value in column.to_pylist():
        if value is None:
            written.append(None)
            continue
        parts = value if isinstance(data_type, ArrayType) else list(value.values())
        each = types * len(parts) if isinstance(data_type, ArrayType) else types
        pairs = zip(parts, each, strict=True)
        written.append(separator.join([null_text if part is None else cell_text(part, of) for part, of in pairs]))
    return pa.array(written, pa.string())


def contains_up_to(texts: pa.Array, last: int) -> pa.Array:
    """Whether a string holds a character up to `last`.

    >>> contains_up_to(pa.array(["a", "a b", None, "", "é,"]), ord(",")).to_pylist()
    [False, True, None, False, True]
    """
    if last >= 128:
        return pc.match_substring_regex(texts, rf"(?s)[\x{{0}}-\x{{{last:x}}}]")
    offsets, letters = text_bytes(texts)
    before = np.searchsorted(np.flatnonzero(letters <= last), offsets)
    contained = before[1:] > before[:-1]
    return pa.array(contained, mask=np.asarray(texts.is_null()) if texts.null_count else None)


def text_bytes(texts: pa.Array) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.uint8]]:
    """The start of each text in the concatenated bytes of all strings, plus their end; and those bytes.

    >>> offsets, letters = text_bytes(pa.array(["", "ab", "cd"])[1:])
    >>> offsets.tolist(), letters.tobytes()
    ([0, 2, 4], b'abcd')
    """
    if not len(texts):
        return np.zeros(1, np.int64), np.zeros(0, np.uint8)
    _, offset_buffer, data_buffer = texts.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    letters = np.frombuffer(data_buffer or b"", np.uint8)[offsets[0] : offsets[-1]]
    return offsets - offsets[0], letters


def joined_texts(pieces: Sequence[pa.Array | str]) -> pa.Array:
    """Concatenates the pieces of each row: strings of columns without NULLs, and constants.

    Equals `binary_join_element_wise`, which is the reference and the fallback for very long strings; faster, because
    the pieces of all rows are gathered at once.

    >>> joined_texts([pa.array(["a", "b"]), ",", pa.array(["", "c"]), "!"]).to_pylist()
    ['a,!', 'b,c!']
    """
    columns = [piece for piece in pieces if not isinstance(piece, str)]
    marks = [piece for piece in pieces if isinstance(piece, str)]
    rows, width = len(columns[0]), len(pieces)
    size = sum(column.nbytes for column in columns) + rows * sum(len(mark.encode()) for mark in marks)
    if not rows or max(size, rows * width) > _BYTES_MAX:
        return pc.binary_join_element_wise(*pieces, "")
    places = np.empty((rows, width), np.int32)
    next_column, next_mark = 0, len(columns) * rows
    for at, piece in enumerate(pieces):
        if isinstance(piece, str):
            places[:, at] = next_mark
            next_mark += 1
        else:
            places[:, at] = np.arange(next_column, next_column + rows)
            next_column += rows
    gathered = pa.concat_arrays([*columns, pa.array(marks, pa.string())]).take(pa.array(places.ravel()))
    _, offset_buffer, data_buffer = gathered.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[gathered.offset : gathered.offset + len(gathered) + 1 : width]
    return pa.StringArray.from_buffers(rows, pa.py_buffer(np.ascontiguousarray(offsets)), data_buffer)
