"""Forms: the columns that a reader sees for one stored column; the conversion is vectorised.

    Plain         the stored column, under a name
    Fields        a struct as one column per field
    keys without a declared type, all of one kind (strings, whole numbers, …), as a column of that type
    Bounds        windows of time, which are stored as sixteen bytes each, as start and end
    Encoded       values that only Python can read: pickles, and keys without a declared type of mixed or composite
                  kinds. The column has the bytes; its field is marked, and `rows` decodes keys. Pickles are never
                  opened unless the caller passes `unpickle`

A form is created once per state and is small: it is shipped to Spark's tasks. Invariant: its arrays have the types of
its fields, in every block.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.records.codecs import reject_pickle
from millstream.state.keys.canonical_decoding import decode

__all__ = ["Bounds", "Canonical", "Encoded", "Fields", "Form", "Plain", "decoder_of", "key_form", "window_form"]

_MARK = b"millstream.encoding"


@dataclass(frozen=True)
class Plain:
    """The column unchanged."""

    name: str
    type: pa.DataType

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.name, self.type)]

    def arrays(self, column: pa.Array) -> list[pa.Array]:
        return [column]


@dataclass(frozen=True)
class Fields:
    """The fields of a struct, each a column `name_field`."""

    name: str
    type: pa.StructType

    @property
    def fields(self) -> list[pa.Field]:
        return [field.with_name(f"{self.name}_{field.name}") for field in self.type]

    def arrays(self, column: pa.Array) -> list[pa.Array]:
        return list(column.flatten())  # null where the struct is null


@dataclass(frozen=True)
class Encoded:
    """Bytes that Python decodes: `encoding` is "pickle" or "key"."""

    name: str
    encoding: str
    is_raw: bool = False
    """Whether the caller requested the raw bytes."""

    @property
    def fields(self) -> list[pa.Field]:
        mark = None if self.is_raw else {_MARK: self.encoding.encode()}
        return [pa.field(self.name, pa.binary(), metadata=mark)]

    def arrays(self, column: pa.Array) -> list[pa.Array]:
        return [column]


def decoder_of(field: pa.Field, unpickle: Callable[[bytes], Any] = reject_pickle) -> Callable[[bytes], Any] | None:
    """The function that decodes an encoded column's bytes; None if the column is not encoded."""
    encoding = (field.metadata or {}).get(_MARK)
    return None if encoding is None else decode if encoding == b"key" else unpickle


@dataclass(frozen=True)
class Canonical:
    """Canonical bytes of one kind, identified by their first byte; null is a key too."""

    name: str
    kind: str

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(self.name, _SCALARS[self.kind][0])]

    def arrays(self, column: pa.Array) -> list[pa.Array]:
        is_none = pc.equal(pc.binary_slice(column, 0, 1), pa.scalar(b"n"))
        values = _SCALARS[self.kind][1](pc.binary_slice(column, 1, 1 << 31))
        return [pc.if_else(is_none, pa.scalar(None, values.type), values) if is_none.true_count else values]


def _numbers(column: pa.Array, dtype: str, per_row: int = 1) -> Any:
    """Fixed-length bytes as numbers, `per_row` of them per row; bytes of another length (a null key) as 0."""
    width = np.dtype(dtype).itemsize * per_row
    fits = pc.equal(pc.binary_length(column), width)
    if fits.true_count < len(column):
        column = pc.if_else(fits, column, pa.scalar(b"\0" * width, pa.binary()))
    data = pc.cast(column, pa.binary(width))
    if not len(data):
        return np.empty((0, per_row), dtype=dtype).astype(np.dtype(dtype).newbyteorder("="))
    stored = np.frombuffer(data.buffers()[1], np.uint8)[data.offset * width : (data.offset + len(data)) * width]
    return stored.view(dtype).astype(np.dtype(dtype).newbyteorder("=")).reshape(-1, per_row)


def _as(arrow: pa.DataType, dtype: str) -> tuple[pa.DataType, Callable[[pa.Array], pa.Array]]:
    return arrow, lambda column: pa.array(_numbers(column, dtype).reshape(-1)).cast(arrow)


_SCALARS: dict[str, tuple[pa.DataType, Callable[[pa.Array], pa.Array]]] = {
    "s": (pa.string(), lambda column: column.cast(pa.string())),
    "b": (pa.binary(), lambda column: column),
    "i": _as(pa.int64(), ">i8"),
    "f": _as(pa.float64(), ">f8"),
    "d": _as(pa.date32(), ">i4"),
    "t": _as(pa.timestamp("us"), ">i8"),
    "u": _as(pa.timestamp("us", "UTC"), ">i8"),
}


@dataclass(frozen=True)
class Bounds:
    """Windows as start and (exclusive) end, in milliseconds."""

    prefix: str = "window"

    @property
    def fields(self) -> list[pa.Field]:
        return [pa.field(f"{self.prefix}_{bound}_ms", pa.int64()) for bound in ("start", "end")]

    def arrays(self, column: pa.Array) -> list[pa.Array]:
        pairs = _numbers(column, ">i8", per_row=2)
        return [pa.array(np.ascontiguousarray(pairs[:, side])) for side in (0, 1)]


Form: TypeAlias = Plain | Fields | Encoded | Canonical | Bounds


def key_form(name: str, columns: Iterable[pa.Array]) -> Form:
    """The form of canonical bytes, by the kinds that occur in all columns."""
    kinds: set[str] = set()
    for column in columns:
        kinds |= {chr(first[0]) for first in pc.unique(pc.binary_slice(column, 0, 1)).to_pylist() if first}
    scalars = kinds - {"n"}
    if not scalars:
        return Canonical(name, "s")
    [kind, *others] = sorted(scalars)
    return Canonical(name, kind) if not others and kind in _SCALARS else Encoded(name, "key")


def window_form(name: str, columns: Iterable[pa.Array]) -> Form:
    """The form of windows: time windows are sixteen bytes each, others are shown as their serializer's bytes."""
    lengths = {length for column in columns for length in pc.unique(pc.binary_length(column)).to_pylist()}
    return Bounds(name) if lengths <= {16} else Plain(name, pa.binary())
