"""The stored default of a new field: one value of the field's type, as an Arrow IPC stream.

A default is data, like the state it belongs to. It is checked against the type of its field when the change is made,
and again when it is read. For an untyped field it is a pickle in the column: bytes for readers, a value for a task that
reads the field. Older versions wrote all defaults of a change as one pickle; that is `PickledDefaults`, which only a
task may open.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

__all__ = ["Defaults", "PickledDefaults", "StoredDefault", "defaults_from_json", "defaults_to_json"]

_OPTIONS = pa.ipc.IpcWriteOptions(allow_64bit=True)


@dataclass(frozen=True)
class StoredDefault:
    """One value as an Arrow IPC stream. Equal values, including NaN, have equal bytes."""

    written: bytes

    @classmethod
    def of(cls, column: pa.Array) -> StoredDefault:
        """The only value of a column.

        >>> StoredDefault.of(pa.array([7])).column.to_pylist()
        [7]
        """
        batch = pa.RecordBatch.from_arrays([column], names=["default"])
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=_OPTIONS) as writer:
            writer.write_batch(batch)
        return cls(sink.getvalue().to_pybytes())

    @cached_property
    def column(self) -> pa.Array:
        """The value as a column of one row; ValueError if the bytes are invalid."""
        try:
            with pa.ipc.open_stream(self.written) as reader:
                table = reader.read_all()
            table.validate(full=True)
        except (pa.ArrowException, OSError) as error:
            raise ValueError(f"a default is no Arrow stream ({error})") from error
        if (table.num_columns, table.num_rows) != (1, 1):
            raise ValueError(f"{table.num_rows} rows of {table.num_columns} columns are no default")
        return table.column(0).combine_chunks()


@dataclass(frozen=True)
class PickledDefaults:
    """All defaults of one change as one pickled dictionary, the form of older versions."""

    written: bytes


Defaults = Mapping[str, Any] | PickledDefaults
"""Defaults by the path of the field: the program's values, or stored ones."""


def defaults_to_json(defaults: Defaults) -> Any:
    """The stored form of defaults; None without defaults."""
    if isinstance(defaults, PickledDefaults):
        return _text(defaults.written)
    return {path: _text(stored.written) for path, stored in defaults.items()} or None


def defaults_from_json(written: Any) -> Defaults:
    """The inverse of `defaults_to_json`; ValueError for anything else. Unpickles nothing."""
    if isinstance(written, str):
        return PickledDefaults(base64.b64decode(written, validate=True))
    return {path: _checked(base64.b64decode(text, validate=True)) for path, text in (written or {}).items()}


def _checked(written: bytes) -> StoredDefault:
    default = StoredDefault(written)
    if not len(default.column):  # reading the column raises if it is damaged
        raise ValueError("a default has no value")
    return default


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
