"""Python values of a state ↔ one Arrow column, by the type its descriptor declares.

A typed state is a column of that type, so that it can be queried and evolved; an untyped one is a column of pickles,
which is logged once, or of bytes from a user's serialiser. The value a function reads back never depends on whether an
epoch ended in between: a value that a round trip through Arrow would change (a float32, a tuple declared as a row) is
converted when it is set.

A codec unpickles only with an `open_pickle` that allows it. Tasks use `task_codec`; readers' codecs refuse.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import cached_property
from typing import Any

import pyarrow as pa

from millstream.common.typeinfo import TupleTypeInfo, TypeInformation, Types
from millstream.errors import MillstreamError, PickledValueError, TypeMismatchError
from millstream.records.codecs import OpenPickle, reject_pickle
from millstream.records.columns import arrow_type, as_declared, from_record_batch, to_record_batch
from millstream.records.pickling import pickled_each
from millstream.state.schemas.saved_types import type_from, written_type

__all__ = ["StateCodec"]

_LOG = logging.getLogger(__name__)
# Values of these exact Python types round-trip through a column of the type unchanged.
_EXACT: dict[str, type] = {"LONG": int, "INT": int, "STRING": str, "DOUBLE": float, "BOOLEAN": bool}
_ANNOUNCED: set[str] = set()


def _exact_fields(type_info: TypeInformation) -> tuple[type, ...] | None:
    """The Python types of a TUPLE's fields, if tuples of exactly these types round-trip unchanged."""
    if not isinstance(type_info, TupleTypeInfo):
        return None
    fields = [_EXACT.get(field.notation) for field in type_info.get_field_types()]
    return None if None in fields else tuple(field for field in fields if field is not None)


class StateCodec:
    """Converts the values (or map keys) of one state. `what` names it in errors: "state 'total' of 'count'". A
    `serializer` (`datastream.state.StateSerializer`) takes the place of the type."""

    def __init__(
        self,
        type_info: TypeInformation | None,
        what: str,
        serializer: Any = None,
        open_pickle: OpenPickle = reject_pickle,
    ) -> None:
        self.what = what
        self.open_pickle = open_pickle
        self._serializer = serializer
        self.version: int | None = None if serializer is None else serializer.version
        typed = serializer is None and type_info is not None and arrow_type(type_info) is not None
        self._type_info = type_info if typed else None
        # Nested in a tuple of one field, so that None and rows are ordinary values of one column.
        self._wrapped = Types.TUPLE([type_info]) if typed and type_info is not None else None
        # Rows and tuples with fields are structs in a state and columns in a stream.
        self._is_nested = typed and pa.types.is_struct(self.arrow_type) and self.arrow_type.num_fields > 0
        self.is_pickled = not typed and serializer is None
        if self.is_pickled and what not in _ANNOUNCED:
            _ANNOUNCED.add(what)
            _LOG.info("%s has no declared type: its values are pickled. Declare one to query and evolve it", what)
        # Values of exactly this Python type need no conversion; None if all need it.
        self.exact = None if self._type_info is None else _EXACT.get(self._type_info.notation)
        self._exact_fields = None if self._type_info is None else _exact_fields(self._type_info)
        # Pairs of exactly these Python types need no conversion.
        self.exact_pair = self._exact_fields if self._exact_fields and len(self._exact_fields) == 2 else None
        self.settle = self._settler()

    @cached_property
    def saved_type(self) -> TypeInformation:
        """The type of the values as stored in manifests."""
        return type_from(written_type(self._type_info), self.what)

    @property
    def arrow_type(self) -> pa.DataType:
        """The type of the column."""
        if self._type_info is None:
            return pa.binary()
        column_type = arrow_type(self._type_info)
        assert column_type is not None
        return column_type

    def encode(self, values: list[Any]) -> pa.Array:
        """The values as a column; an error names the state."""
        try:
            if self._serializer is not None:
                return pa.array([self._serializer.serialize(value) for value in values], pa.binary())
            if self._wrapped is None:
                return pa.array(pickled_each(values), pa.binary())
            return self._typed_column(values)
        except TypeMismatchError as error:
            raise TypeMismatchError(f"{self.what}: {error.message}", value=error.value, path=error.path) from error
        except MillstreamError:
            raise
        except Exception as error:
            if self._serializer is not None:
                raise TypeMismatchError(
                    f"{self.what}: {type(self._serializer).__name__}.serialize raised {type(error).__name__}: {error}, "
                    "expected bytes"
                ) from error
            raise TypeMismatchError(
                f"{self.what}: a value cannot be pickled ({error}). Keep plain data in state, or declare its type"
            ) from error

    def encode_settled(self, values: list[Any]) -> pa.Array:
        """As `encode`, for non-None values returned by `settle`: plain values need no second conversion."""
        try:
            if self.exact is not None:
                return pa.array(values, self.arrow_type)
            if self._exact_fields is not None and values:
                fields = list(self.arrow_type)
                columns = zip(zip(*values, strict=True), fields, strict=True)
                return pa.StructArray.from_arrays([pa.array(c, field.type) for c, field in columns], fields=fields)
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            pass  # for example a number too large for its type; the slow path names it
        return self.encode(values)

    def decode(self, column: pa.Array, version: int | None = None) -> list[Any]:
        """The column as values; PickledValueError for pickles that this codec does not open. `version` is the version
        of the serialiser that wrote the column, if not the current one."""
        try:
            return self._decoded(column, version)
        except PickledValueError as error:
            raise PickledValueError(f"{self.what}: {error.message}") from error

    def _decoded(self, column: pa.Array, version: int | None) -> list[Any]:
        if self._serializer is not None:
            read, written_by = self._serializer.deserialize, self.version if version is None else version
            return [None if data is None else read(data, written_by) for data in column.to_pylist()]
        if self._wrapped is None:
            return list(map(self.open_pickle, column.to_pylist()))
        assert self._type_info is not None
        if column.null_count:
            batch = pa.RecordBatch.from_arrays([column], names=["f0"])
            return [value for (value,) in from_record_batch(batch, self._wrapped, self.open_pickle)]
        if not self._is_nested:
            batch = pa.RecordBatch.from_arrays([column], names=["value"])
        else:
            batch = pa.RecordBatch.from_struct_array(column)
        return from_record_batch(batch, self._type_info, self.open_pickle)

    def _typed_column(self, values: list[Any]) -> pa.Array:
        """Encode values without a None: their stream columns are used directly, without wrapping."""
        assert self._type_info is not None and self._wrapped is not None
        if type(None) not in set(map(type, values)):
            batch = to_record_batch(values, self._type_info)
            if not self._is_nested:
                return batch.column(0)
            if batch.num_columns == self.arrow_type.num_fields:  # no row has a change kind, which a state cannot hold
                return pa.StructArray.from_arrays(batch.columns, type=self.arrow_type)
        return to_record_batch(list(zip(values, strict=True)), self._wrapped).column(0)

    def _settler(self) -> Callable[[Any], Any]:
        """A function that converts a value to the form in which the column would return it."""
        if self._type_info is None:
            return lambda value: value
        exact, fields = self.exact, self._exact_fields

        def settle(value: Any) -> Any:
            kind = type(value)
            if value is None or kind is exact:
                return value
            if fields is not None and kind is tuple and tuple(map(type, value)) == fields:
                return value
            return self._declared(value)

        return settle

    def _declared(self, value: Any) -> Any:
        """The value as its column would return it; an error names the state."""
        assert self._type_info is not None
        try:
            return as_declared([value], self._type_info)[0]
        except TypeMismatchError as error:
            raise TypeMismatchError(f"{self.what}: {error.message}", value=value, path=error.path) from error
