"""Decodes documents of the same shape: the same fields in the same order with the same spacing, as written by one
program.

A document is then constant text with values in between. So the shape is derived from one document, and the values of
all others are sliced out of their bytes, a column at a time, which is faster than parsing. Documents of another shape
are marked, and read by other means, so a few bad documents do not slow down the others.

A *shape* is a list of fields. The text before a value, from the quote that opens its name to the value's first byte,
is its `lead`; the text between a value and the next name, or the end, is its `trail`. Both are compared byte by
byte. They contain names, separators and quotes, so a document matches only if its text is identical except for the
values. These are validated: strings without escapes and control characters, whole numbers, fractions, booleans.

Invariant: a matching document has the values that JSON defines. A doubtful document does not match.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["Shape", "learnt_shape", "read_shape", "shape_of", "supports_shapes"]

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

_QUOTE, _BACKSLASH, _CONTROL_MAX, _ZERO = 34, 92, 31, 48
_PART = re.compile(
    rb'"(?P<name>[^"\\]*)"[ ]*:[ ]*(?:(?P<quoted>"[^"\\]*")|(?P<bare>[-+.0-9a-zA-Z]+))[ ]*(?P<end>[,}][ ]*)', re.ASCII
)
_WHOLE_FORM = r"^(?:0|-?[1-9][0-9]{0,17})$"
_FRACTION_FORM = r"^-?(?:0|[1-9][0-9]{0,40})(?:\.[0-9]{1,40})?(?:[eE][+-]?[0-9]{1,2})?$"
_FIELDS_MAX = 64

Kind = Literal["text", "bare"]


@dataclass(frozen=True)
class _Field:
    name: str
    kind: Kind
    lead: bytes
    trail: bytes


@dataclass(frozen=True)
class Shape:
    """The fields of a document, in order; `head` is the text before the first."""

    head: bytes
    fields: tuple[_Field, ...]

    @property
    def quotes(self) -> int:
        """The number of quotes in a document."""
        return sum(4 if field.kind == "text" else 2 for field in self.fields)


def supports_shapes(wire: pa.Schema) -> bool:
    """Whether values can be extracted for all columns."""
    return all(_can_be_cut(field.type) for field in wire)


def _can_be_cut(arrow: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(arrow)
        or pa.types.is_boolean(arrow)
        or pa.types.is_signed_integer(arrow)
        or pa.types.is_float64(arrow)
    )


def shape_of(document: bytes, wire: pa.Schema) -> Shape | None:
    """The shape of a document; None if these columns cannot be extracted by shape.

    >>> shape = shape_of(b'{"n": 1, "s": "a"}', pa.schema([("n", pa.int64())]))
    >>> [(field.lead, field.trail) for field in shape.fields]
    [(b'"n": ', b', '), (b'"s": "', b'"}')]
    """
    head = re.match(rb"\{[ ]*", document)
    if head is None:
        return None
    fields: list[_Field] = []
    at = head.end()
    while True:
        part = _PART.match(document, at)
        if part is None or len(fields) == _FIELDS_MAX:
            return None
        is_text = part["quoted"] is not None
        value = part.span("quoted" if is_text else "bare")
        lead = document[at : value[0] + is_text]
        trail = document[value[1] - is_text : part.end()]
        fields.append(_Field(part["name"].decode("utf-8", "replace"), "text" if is_text else "bare", lead, trail))
        at = part.end()
        if part["end"].startswith(b"}"):
            break
    names = [field.name for field in fields]
    if at != len(document) or len(set(names)) != len(names) or not set(wire.names) <= set(names):
        return None
    kinds = {field.name: field.kind for field in fields}
    are_alike = all((kinds[field.name] == "text") == pa.types.is_string(field.type) for field in wire)
    try:
        json.loads(document)
    except (ValueError, RecursionError):
        return None
    return Shape(head.group(), tuple(fields)) if are_alike else None


def read_shape(texts: pa.Array, shape: Shape, wire: pa.Schema) -> tuple[dict[str, pa.Array], Mask] | None:
    """The columns of `wire` for the documents that match the shape, and the mask of these. None: too few. `texts` are
    UTF-8, without nulls."""
    documents = _Documents.of(texts)
    if documents is None:
        return None
    quotes = documents.quotes(shape.quotes)
    if quotes is None:
        return None
    values = _Values(documents, quotes, shape)
    columns: dict[str, pa.Array] = {}
    types: Mapping[str, pa.DataType] = {field.name: field.type for field in wire}
    for number, field in enumerate(shape.fields):
        if field.kind == "text" and field.name not in types:
            continue  # any text is valid
        column = values.column(number)
        if field.kind == "text":
            columns[field.name] = column
        else:
            read = _read_bare(column, types.get(field.name), values.is_fit)
            if field.name in types:
                columns[field.name] = read
    is_fit = documents.with_fit(values.is_fit)
    if not values.is_fit.all():
        chosen = pa.array(values.is_fit)
        columns = {name: column.filter(chosen) for name, column in columns.items()}
    return columns, is_fit


class _Documents:
    """Documents in one contiguous buffer. `rows` are those with as many quotes as the shape;
    None: all."""

    def __init__(self, body: Bytes, buffer: pa.Buffer, starts: Positions, ends: Positions) -> None:
        self.body, self.buffer, self.starts, self.ends = body, buffer, starts, ends
        # One mask for all tests of single bytes: allocating new memory costs more than writing to it.
        self._answers = np.empty(len(body) - int(starts[0]), np.bool_)
        self._words = np.ndarray((len(body) - 7,), "<u8", body, strides=(1,))
        self._count = len(starts)
        self._rows: Positions | None = None
        self.is_plain = self._plain()

    @classmethod
    def of(cls, texts: pa.Array) -> _Documents | None:
        _, offsets_buffer, data = texts.buffers()
        offsets = np.frombuffer(offsets_buffer, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
        body = np.frombuffer(data, np.uint8)[: offsets[-1]] if data is not None else np.zeros(0, np.uint8)
        if len(body) < 8:
            return None
        documents = cls(body, data, offsets[:-1], offsets[1:])
        return documents if documents.is_plain.any() else None

    def _plain(self) -> Mask:
        """The documents without escapes and control characters."""
        first = int(self.starts[0])
        own, is_plain = self.body[first:], np.ones(self._count, np.bool_)
        is_odd = np.equal(own, _BACKSLASH, out=self._answers)
        if is_odd.any() or (len(own) and own.min() <= _CONTROL_MAX):
            is_odd |= own <= _CONTROL_MAX
            is_plain[np.searchsorted(self.starts, np.flatnonzero(is_odd) + first, side="right") - 1] = False
        return is_plain

    def quotes(self, expected: int) -> Positions | None:
        """The positions of the quotes of each document, one row for each with the expected number."""
        first = int(self.starts[0])
        places = np.flatnonzero(np.equal(self.body[first:], _QUOTE, out=self._answers))
        places += first
        if len(places) == self._count * expected:
            quotes = places.reshape(self._count, expected)
            if (quotes[:, 0] >= self.starts).all() and (quotes[:, -1] < self.ends).all():
                return quotes
        edges = np.searchsorted(places, np.append(self.starts, self.ends[-1]))
        rows = np.flatnonzero(np.diff(edges) == expected)
        if len(rows) * 2 < self._count:
            return None
        self._rows, self.starts, self.ends = rows, self.starts[rows], self.ends[rows]
        self.is_plain = self.is_plain[rows]
        chosen: Positions = places[edges[rows][:, None] + np.arange(expected)]
        return chosen

    def with_fit(self, is_fit: Mask) -> Mask:
        """The mask over all documents from the mask of the candidates."""
        if self._rows is None:
            return is_fit
        mask = np.zeros(self._count, np.bool_)
        mask[self._rows[is_fit]] = True
        return mask

    def is_at(self, places: Positions, text: bytes) -> Mask:
        """Whether `text` is at each position, all of which are in bounds. Compares eight bytes at once; where fewer
        remain, preceding bytes are included and shifted out."""
        last, result = len(self._words) - 1, np.ones(len(places), np.bool_)
        is_inside = places.max() + len(text) <= last
        for at in range(0, len(text), 8):
            piece = text[at : at + 8]
            wanted, mask = (np.frombuffer(part.ljust(8, b"\0"), "<u8")[0] for part in (piece, b"\xff" * len(piece)))
            words = self._words[places + at if at else places] if is_inside else self._words_at(places + at, last)
            result &= (words if len(piece) == 8 else words & mask) == wanted
        return result

    def _words_at(self, places: Positions, last: int) -> npt.NDArray[np.uint64]:
        words = self._words[np.minimum(places, last)]
        words >>= (np.clip(places - last, 0, 8) * 8).astype(np.uint64)
        return words


class _Values:
    """The positions of values in documents, and the mask of documents that match the shape."""

    def __init__(self, documents: _Documents, quotes: Positions, shape: Shape) -> None:
        self._documents, self._shape = documents, shape
        self._bounds: list[tuple[Positions, Positions]] = []
        at, names = 0, []
        for field in shape.fields:
            names.append(quotes[:, at])
            at += 4 if field.kind == "text" else 2
        self.is_fit: Mask = documents.is_plain & (names[0] == documents.starts + len(shape.head))
        # Between two values is constant text: the trail of one, the lead of the next.
        place, constant = documents.starts, shape.head
        for number, field in enumerate(shape.fields):
            starts = names[number] + len(field.lead)
            self.is_fit &= documents.is_at(place, constant + field.lead)
            nexts = names[number + 1] if number + 1 < len(names) else documents.ends
            ends = nexts - len(field.trail)
            self.is_fit &= starts <= ends
            self._bounds.append((starts, ends))
            place, constant = ends, field.trail
        self.is_fit &= documents.is_at(place, constant)

    def column(self, number: int) -> pa.Array:
        """The strings of one field's values; undefined where a document does not match. Alternating offsets
        of start and end of values form a view of the documents' own bytes, of which every second element is taken."""
        starts, ends = self._bounds[number]
        if not self.is_fit.all():
            # Offsets must ascend: values of other documents are empty, at a harmless position.
            begin = self._documents.starts
            starts, ends = np.where(self.is_fit, starts, begin), np.where(self.is_fit, ends, begin)
        offsets = np.empty(2 * len(starts), np.int32)
        offsets[0::2], offsets[1::2] = starts, ends
        view = pa.Array.from_buffers(
            pa.binary(), len(offsets) - 1, [None, pa.py_buffer(offsets), self._documents.buffer]
        )
        return view.take(pa.array(np.arange(0, len(offsets), 2))).view(pa.string())


def _read_bare(column: pa.Array, arrow: pa.DataType | None, is_fit: Mask) -> pa.Array:
    """Converts unquoted values to their type. Invalid ones, and null, do not match. `arrow` None is for unwanted
    fields: they must be a number or boolean."""
    if arrow is None:
        is_fit &= _matches(column, _FRACTION_FORM) | np.asarray(pc.is_in(column, pa.array(["true", "false", "null"])))
        return column
    if pa.types.is_boolean(arrow):
        is_true = pc.equal(column, "true")
        is_fit &= _flags(pc.or_(is_true, pc.equal(column, "false")))
        return is_true
    if pa.types.is_float64(arrow):
        is_fit &= _matches(column, _FRACTION_FORM)
        return _replace_others(column, is_fit, "1").cast(pa.float64())
    if not _are_integers(column):
        is_fit &= _matches(column, _WHOLE_FORM)
        column = _replace_others(column, is_fit, "0")
    numbers = column.cast(pa.int64())
    if arrow != pa.int64():
        limits = np.iinfo(arrow.to_pandas_dtype())
        values = np.asarray(numbers)
        is_fit &= (values >= limits.min) & (values <= limits.max)
        numbers = numbers.cast(arrow, safe=False)
    return numbers


def _are_integers(column: pa.Array) -> bool:
    """Whether all consist of digits, at least one and not too many; a leading zero must be the only digit."""
    offsets = np.frombuffer(column.buffers()[1], np.int32)[column.offset : column.offset + len(column) + 1]
    data = np.frombuffer(column.buffers()[2], np.uint8)
    lengths = np.diff(offsets)
    if not len(lengths) or lengths.min() < 1 or lengths.max() > 18:
        return False
    if ((data[offsets[0] : offsets[-1]] - _ZERO) > 9).any():  # below '0' it wraps around
        return False
    return not ((data[offsets[:-1]] == _ZERO) & (lengths > 1)).any()


def _matches(column: pa.Array, form: str) -> Mask:
    return _flags(pc.match_substring_regex(column, form))


def _flags(column: pa.Array) -> Mask:
    return column.to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]


def _replace_others(column: pa.Array, is_fit: Mask, other: str) -> pa.Array:
    """The matching strings, with the others replaced by a default."""
    return column if is_fit.all() else pc.if_else(pa.array(is_fit), column, other)


def learnt_shape(texts: pa.Array, wire: pa.Schema) -> Shape | None:
    """The shape of some document: of the first, one in the middle, or the last."""
    for at in dict.fromkeys((0, len(texts) // 2, len(texts) - 1)):
        shape = shape_of(texts[at].as_buffer().to_pybytes(), wire)
        if shape is not None:
            return shape
    return None
