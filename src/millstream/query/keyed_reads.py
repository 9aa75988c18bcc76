"""Reads values by key, at one epoch: one key as fast as possible, many in one search, or as columns.

`state.tables.point_reads` reads a single key if its type and the value's type are plain. Everything else is a lookup of
a column of keys, which is the reference for the quick path. Values are as the job's functions see them: a TUPLE is a
tuple, a ROW a Row. Pickles are refused, unless the store was opened with a function that unpickles them: that runs code
from the store.

All segments are opened when a reader is made, so files that the job removes later do not matter.

A lookup must hash and encode a key as the job did: by the declared type, or in the canonical form of values without
one. So all keys go through `state.keys.key_columns` (`KeyEncoding`). A key that does not fit is rejected with an error;
it is never "not found".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa

from millstream.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation
from millstream.common.types import Row
from millstream.errors import MillstreamError
from millstream.query.catalog import StateLocation, value_type_of
from millstream.query.errors import KeyTypeError, StateKindError
from millstream.records.codecs import OpenPickle, reject_pickle
from millstream.records.columns import arrow_type
from millstream.state.keys.key_columns import KeyColumn, key_column, key_column_of_arrow
from millstream.state.schemas.saved_types import type_from, type_of_arrow
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.map_keys import MapKeyCodec
from millstream.state.tables.table import LookupResult, TableView
from millstream.state_reader.table_source import kind_of

__all__ = ["KeyEncoding", "KeyedReads", "stored_key_type"]


@lru_cache(maxsize=256)
def stored_key_type(key_type: TypeInformation) -> pa.DataType:
    """The Arrow type of the key column of keys of a declared type."""
    return key_column([], key_type).array.type


class KeyEncoding:
    """The keys of one state. `stored` is the Arrow type of the key column, None for canonical bytes. `names`: the
    column names of a table's key parts."""

    def __init__(
        self, declared: TypeInformation | None, stored: pa.DataType | None, what: str, names: Sequence[str] = ()
    ) -> None:
        self._stored, self._names = stored, names
        self._what = what
        self._type = declared
        if declared is None and stored is not None:
            self._type = type_of_arrow(pa.field("key", stored))

    @property
    def type_name(self) -> str:
        """For errors."""
        return "any type" if self._type is None else self._type.notation

    def column(self, keys: list[Any]) -> KeyColumn:
        """These keys as a column."""
        try:
            return key_column(keys, self._type)
        except (MillstreamError, pa.ArrowException, TypeError, ValueError, OverflowError) as error:
            raise self._refusal(keys[0] if len(keys) == 1 else keys, error) from error

    def of_arrow(self, keys: pa.Array) -> KeyColumn:
        """The keys of a column of the keys' type, or of a type that casts to it without loss."""
        if self._stored is None:
            try:
                values = keys.to_pylist()
            except (pa.ArrowException, ValueError, OverflowError, KeyError) as error:  # KeyError: unknown time zones
                raise self._refusal(keys.type, error) from error
            return self.column(values)
        keys = self._with_stored_names(keys)
        if keys.type != self._stored and not _are_alike(keys.type, self._stored):
            raise self._refusal(keys.type, TypeError(f"expected a column of {self._shown_type()}"))
        try:
            return key_column_of_arrow(keys if keys.type == self._stored else keys.cast(self._stored))
        except (pa.ArrowException, TypeError, ValueError) as error:
            raise self._refusal(keys.type, error) from error

    def _with_stored_names(self, keys: pa.Array) -> pa.Array:
        """Renames the parts of a table's keys from column names to stored names."""
        names = list(self._names)
        if len(names) < 2 or not pa.types.is_struct(keys.type) or not _are_names_of(names, keys.type):
            return keys
        return _renamed(keys, names, [field.name for field in self._stored or ()])

    def shown(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Renames the parts of `key` in these rows to the table's column names."""
        at = rows.schema.get_field_index("key")
        if len(self._names) < 2 or at < 0 or not pa.types.is_struct(rows.schema.field(at).type):
            return rows
        keys = rows.column(at)
        return rows.set_column(at, "key", _renamed(keys, [field.name for field in keys.type], self._names))

    def _shown_type(self) -> str:
        if len(self._names) < 2:
            return str(self._stored)
        parts = [f"{name}: {part.type}" for name, part in zip(self._names, self._stored or (), strict=True)]
        return f"struct<{', '.join(parts)}>"

    def _refusal(self, value: Any, error: Exception) -> KeyTypeError:
        why = error.message if isinstance(error, MillstreamError) else str(error)
        shown = repr(value)
        shown = shown if len(shown) <= 200 else f"{shown[:200]}…"
        return KeyTypeError(f"{self._what} has keys of {self.type_name}, found {shown}: {why}", value=value)


_KINDS = (pa.types.is_integer, pa.types.is_boolean, pa.types.is_temporal, pa.types.is_decimal)


def _are_alike(kind: pa.DataType, stored: pa.DataType) -> bool:
    """Whether a cast preserves the keys, in all their parts. Arrow also casts numbers to strings, and a part with
    another name to NULL: such keys would match nothing."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_null(kind) or any(is_of(kind) and is_of(stored) for is_of in _KINDS):
        return True
    if pa.types.is_struct(stored):
        names = [field.name for field in stored]
        is_named = pa.types.is_struct(kind) and _are_names_of(names, kind)
        return is_named and all(_are_alike(kind.field(name).type, stored.field(name).type) for name in names)
    if pa.types.is_nested(stored):
        parts = stored.num_fields
        is_same = kind.id == stored.id or (_is_list(kind) and _is_list(stored))
        return is_same and all(_are_alike(kind.field(at).type, stored.field(at).type) for at in range(parts))
    if pa.types.is_floating(stored):
        return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind))
    return _is_text(kind) and _is_text(stored)


def _renamed(keys: pa.StructArray, names: Sequence[str], new_names: Sequence[str]) -> pa.StructArray:
    """The keys with these parts, in this order, under other names. A cast would look for parts by the new names."""
    return pa.StructArray.from_arrays([keys.field(name) for name in names], names=list(new_names), mask=keys.is_null())


def _are_names_of(names: list[str], kind: pa.StructType) -> bool:
    return sorted(field.name for field in kind) == sorted(names) and len(set(names)) == len(names)


def _is_list(kind: pa.DataType) -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind))


def _is_text(kind: pa.DataType) -> bool:
    return str(kind).removeprefix("large_").removesuffix("_view") in ("string", "binary")


_PLAIN_VALUES = {"LONG", "INT", "SHORT", "BYTE", "DOUBLE", "FLOAT", "STRING", "BOOLEAN"}
_INT_BITS = {pa.int64(): 63, pa.int32(): 31, pa.int16(): 15, pa.int8(): 7}


class KeyedReads:
    """The values of one state. `view` is None while it is empty. `result_of` converts an accumulator to an answer,
    `open_pickle` a pickle to a value. `archived` and `removed` are for readers of tables (`table_reads`)."""

    def __init__(
        self,
        location: StateLocation,
        view: TableView | None,
        result_of: Callable[[Any], Any] | None,
        open_pickle: OpenPickle = reject_pickle,
        *,
        archived: TableView | None = None,
        removed: TableView | None = None,
    ) -> None:
        self.location, self.view = location, view
        self.archived, self.removed = archived, removed
        self.kind = location.info.kind
        if location.declared is None and location.stored is not None and view is not None:
            self.kind = kind_of(location.stored, view)
        declared = location.declared
        layout = None if view is None else view.layout
        key_type = None if declared is None else declared.key_type
        stored = layout.key_type if layout is not None else _stored_key(key_type)
        names = () if declared is None else declared.key_names
        self.keys = KeyEncoding(key_type, stored, location.what, names)
        self._result_of = result_of
        self._codec = _codec(location, view, open_pickle)
        self._map_keys = _map_key_codec(location, view, open_pickle) if self.kind == "map" else None
        self.is_quick = False
        self._point = self._quick_get()

    # --- one key --------------------------------------------------------------------------------------------------

    def get(self, key: Any) -> Any:
        """The value of a key: a value, list or dict; None if absent."""
        return self._point(key)

    def _quick_get(self) -> Callable[[Any], Any]:
        if self.view is None:
            return lambda key: self.keys.column([key]) and None
        slow = lambda key: self.get_many([key])[0]  # noqa: E731
        layout = self.view.layout
        convert = self._converter()
        if self.kind in ("list", "map") or convert is _NOT_PLAIN or self.archived is not None:
            return slow
        read, kind = self.view.get_value, layout.key_type
        kinds = (str, int) if kind is None else (int,) if kind in _INT_BITS else (str,)
        if kinds == (str,) and not pa.types.is_string(kind):
            return slow
        self.is_quick = True
        return _quick(read, kinds, 1 << _INT_BITS[kind] if kind in _INT_BITS else None, convert, slow)

    def _converter(self) -> Callable[[Any], Any] | None:
        """Converts the result of a point read to the value; None: they are identical. `_NOT_PLAIN`: use the slow
        path."""
        assert self.view is not None
        if self._result_of is not None or self.view.layout.serializer_version is not None:
            return _NOT_PLAIN
        if self.view.layout.is_pickled:
            return _NOT_PLAIN
        kind = value_type_of(self.location)
        if kind is None or kind.notation in _PLAIN_VALUES:
            return None if kind is not None else _NOT_PLAIN
        if isinstance(kind, TupleTypeInfo) and all(field.notation in _PLAIN_VALUES for field in kind.get_field_types()):
            return lambda fields: tuple(fields.values())
        if isinstance(kind, RowTypeInfo) and all(field.notation in _PLAIN_VALUES for field in kind.get_field_types()):
            named = Row(*kind.get_field_names())
            return lambda fields: named(*fields.values())
        return _NOT_PLAIN

    # --- many -----------------------------------------------------------------------------------------------------

    def get_many(self, keys: list[Any]) -> list[Any]:
        """The values of keys, in the order of the keys; None where absent."""
        column = self.keys.column(keys)
        if self.view is None:
            return [None] * len(keys)
        if self.kind in ("list", "map"):
            return self._collections(column)
        rows = self.view.get(column)
        self._refuse_archived(rows)
        values = iter(self._values(rows.values))
        return [next(values) if has_row else None for has_row in rows.mask.tolist()]

    def _refuse_archived(self, rows: LookupResult) -> None:
        """Raises if a key is not in the state: it may be in the archive, which is not searched here."""
        if self.archived is not None and not rows.mask.all():
            raise StateKindError(
                f"{self.location.what} is a table with an archive, and some of these keys are not in its state. Use "
                "SQL or table(name).of_keys(keys): both search the archive, too"
            )

    def _values(self, column: pa.Array | None) -> list[Any]:
        if column is None or not len(column):
            return []
        values = self._decoder().decode(column)
        return values if self._result_of is None else [self._result_of(value) for value in values]

    def _decoder(self) -> StateCodec:
        if self._codec is None:
            raise StateKindError(
                f"{self.location.what} was written by a serializer of the program, which a reader does not have. "
                "Declare a type for the state, or read it with the program"
            )
        return self._codec

    def _collections(self, column: KeyColumn) -> list[Any]:
        assert self.view is not None
        rows = self.view.scan_keys(column)
        positions, values = rows.column("position").to_pylist(), self._values(rows.column("value"))
        answers: list[Any] = [None] * len(column)
        if self.kind == "list":
            for at, value in zip(positions, values, strict=True):
                if answers[at] is None:
                    answers[at] = []
                answers[at].append(value)
            return answers
        assert self._map_keys is not None
        subs = self._map_keys.decode(rows.column("sub")) if rows.num_rows else []
        for at, sub, value in zip(positions, subs, values, strict=True):
            if answers[at] is None:
                answers[at] = {}
            answers[at][sub] = value
        return answers

    # --- columns --------------------------------------------------------------------------------------------------

    def columns(self, keys: pa.Array) -> pa.RecordBatch:
        """The columns key (as passed), found, and value, which is null where absent. Pickles are returned as bytes."""
        if isinstance(keys, pa.ChunkedArray):
            keys = keys.combine_chunks()
        if pa.types.is_dictionary(keys.type):
            keys = keys.dictionary_decode()
        column = self.keys.of_arrow(keys)
        if self.kind in ("list", "map"):
            mask, value = self._collection_columns(column)
        elif self.view is None:
            mask, value = np.zeros(len(column), dtype=np.bool_), pa.nulls(len(column), self._arrow_type())
        else:
            answer = self.view.get(column)
            self._refuse_archived(answer)
            mask, value = answer.mask, _spread(answer)
        return pa.RecordBatch.from_arrays([keys, pa.array(mask), value], names=["key", "found", "value"])

    def _arrow_type(self) -> pa.DataType:
        kind: TypeInformation | None = value_type_of(self.location)
        return (None if kind is None else arrow_type(kind)) or pa.binary()

    def _collection_columns(self, column: KeyColumn) -> tuple[Any, pa.Array]:
        value_type = self._arrow_type() if self.view is None else self.view.layout.value_type
        if self.view is None:
            empty = pa.list_(value_type) if self.kind == "list" else pa.map_(pa.binary(), value_type)
            return np.zeros(len(column), dtype=np.bool_), pa.nulls(len(column), empty)
        rows = self.view.scan_keys(column)
        counts = np.bincount(rows.column("position").to_numpy(), minlength=len(column))
        offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))
        mask = counts > 0
        if self.kind == "list":
            return mask, pa.ListArray.from_arrays(offsets, rows.column("value"), mask=pa.array(~mask))
        maps = pa.MapArray.from_arrays(offsets, rows.column("sub"), rows.column("value"))
        return mask, maps.take(pa.array(np.arange(len(column)), mask=~mask))


def _NOT_PLAIN(value: Any) -> Any:  # noqa: N802 - a mark that is also callable, so that one type serves
    raise AssertionError("never called")


def _quick(
    read: Callable[[Any], Any],
    kinds: tuple[type, ...],
    bound: int | None,
    convert: Callable[[Any], Any] | None,
    slow: Callable[[Any], Any],
) -> Callable[[Any], Any]:
    """A function for keys of exactly these Python types; others, and numbers out of bounds, use the slow path."""

    def get(key: Any) -> Any:
        if type(key) not in kinds or (bound is not None and not -bound <= key < bound):
            return slow(key)
        try:
            value = read(key)
        except UnicodeEncodeError:
            return slow(key)
        return value if convert is None or value is None else convert(value)

    return get


def _codec(location: StateLocation, view: TableView | None, open_pickle: OpenPickle) -> StateCodec | None:
    """The codec of values; None if only the program's serializer could decode them."""
    if view is not None and view.layout.serializer_version is not None:
        return None
    kind = None
    if view is not None and not view.layout.is_pickled and view.layout.value_type is not None:
        history = location.stored.history if location.stored is not None else ()
        kind = history[-1].type if history else type_of_arrow(pa.field("value", view.layout.value_type))
    return StateCodec(kind, location.what, open_pickle=open_pickle)


def _map_key_codec(location: StateLocation, view: TableView | None, open_pickle: OpenPickle) -> MapKeyCodec | None:
    if view is None or view.layout.sub_type is None:
        return None
    history = location.stored.history if location.stored is not None else ()
    kind = type_of_arrow(pa.field("sub", view.layout.sub_type))
    if history and history[-1].map_key is not None:
        kind = type_from(history[-1].map_key, location.what)
    return MapKeyCodec(kind, f"the map keys of {location.what}", open_pickle=open_pickle)


def _stored_key(key_type: TypeInformation | None) -> pa.DataType | None:
    if key_type is None:
        return None
    sample = stored_key_type(key_type)
    return None if sample == pa.binary() and arrow_type(key_type) != pa.binary() else sample


def _spread(answer: LookupResult) -> pa.Array:
    """Spreads values over the keys that have one; null elsewhere."""
    assert answer.values is not None
    if len(answer.values) == len(answer.mask):
        return answer.values
    return answer.values.take(pa.array(np.cumsum(answer.mask) - 1, mask=~answer.mask))
