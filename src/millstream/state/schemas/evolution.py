"""Converts values between two types of a state: plans once, then projects whole columns.

A state's type may change from one run of a program to the next. Compatible values are read through a projection of
the value column: fields are matched by name (TUPLEs: by position, their fields are f0, f1, …), also within lists and
maps. A field may be added (null, or a default), removed, moved, renamed, or widened:

    BYTE → SHORT → INT → LONG      BYTE, SHORT → FLOAT      BYTE, SHORT, INT, FLOAT → DOUBLE
    whole numbers → BIG_INT, BIG_DEC      CHAR → STRING      DATE → TIMESTAMP

Nothing is rounded, truncated or guessed: any other change is an `IncompatibleChange`, which names the mismatch and
needs a user function (`Evolution.upgrade`). Projecting runs no Python per row; `evolution_reference` is the slow
implementation that tests compare with.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.typeinfo import BasicType, BasicTypeInfo, MapTypeInfo, RowTypeInfo, TupleTypeInfo, Types
from millstream.common.typeinfo import TypeInformation as Type
from millstream.errors import StoreDamagedError, TypeMismatchError
from millstream.records.columns import arrow_type, to_record_batch
from millstream.records.shapes import is_sequence
from millstream.state.schemas.saved_types import shown_types
from millstream.state.schemas.stored_defaults import StoredDefault

__all__ = [
    "Elements",
    "Entries",
    "Evolution",
    "IncompatibleChange",
    "Picked",
    "PickedField",
    "Projection",
    "Same",
    "Widened",
    "fields_of",
    "is_widened",
    "plan_projection",
    "project",
    "used_defaults",
]


@dataclass(frozen=True)
class Evolution:
    """A descriptor's declaration of how its state's type changed.

    `renames` maps old fields to new names, `defaults` has the values of new fields; nested fields are named by path,
    `"address.street"`. `upgrade` is a function from an old value to a new one, or a function per old type. `serializer`
    replaces a type. Descriptors that differ only in a function are equal.
    """

    renames: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    upgrade: Callable[[Any], Any] | Mapping[Any, Callable[[Any], Any]] | None = field(default=None, compare=False)
    serializer: Any = field(default=None, compare=False)


class IncompatibleChange(Exception):
    """No projection exists. `finding` completes a sentence that starts with the state, `advice` is the next step."""

    def __init__(self, finding: str, advice: str) -> None:
        super().__init__(finding)
        self.finding, self.advice = finding, advice


@dataclass(frozen=True)
class Same:
    """The column unchanged."""


@dataclass(frozen=True)
class Widened:
    """Single values in a wider type."""

    to: Type


@dataclass(frozen=True)
class PickedField:
    """A field of a struct: a projected field of the old struct, or a new field with a constant (None: null)."""

    source: int | None
    change: Projection
    default: pa.Array | None = None


@dataclass(frozen=True)
class Picked:
    """A struct composed of fields of the old one."""

    fields: tuple[PickedField, ...]
    kind: pa.DataType


@dataclass(frozen=True)
class Elements:
    """Lists whose elements are projected."""

    change: Projection
    kind: pa.DataType


@dataclass(frozen=True)
class Entries:
    """Maps whose keys and values are projected."""

    keys: Projection
    values: Projection
    kind: pa.DataType


Projection: TypeAlias = Same | Widened | Picked | Elements | Entries

_WIDER: dict[BasicType, frozenset[BasicType]] = {
    BasicType.BYTE: frozenset({BasicType.SHORT, BasicType.INT, BasicType.LONG, BasicType.FLOAT, BasicType.DOUBLE}),
    BasicType.SHORT: frozenset({BasicType.INT, BasicType.LONG, BasicType.FLOAT, BasicType.DOUBLE}),
    BasicType.INT: frozenset({BasicType.LONG, BasicType.DOUBLE}),
    BasicType.FLOAT: frozenset({BasicType.DOUBLE}),
    BasicType.CHAR: frozenset({BasicType.STRING}),
}
_WHOLE = frozenset({BasicType.BYTE, BasicType.SHORT, BasicType.INT, BasicType.LONG})
_BIG = frozenset({BasicType.BIG_INT, BasicType.BIG_DEC})


def is_widened(old: Type, new: Type) -> bool:
    """Whether the new type contains every value of the old type.

    >>> is_widened(Types.INT(), Types.DOUBLE()), is_widened(Types.LONG(), Types.DOUBLE())
    (True, False)
    """
    if isinstance(old, BasicTypeInfo) and isinstance(new, BasicTypeInfo):
        was, now = old.basic_type, new.basic_type
        return now in _WIDER.get(was, ()) or (was in _WHOLE and now in _BIG)
    return old == Types.SQL_DATE() and new == Types.SQL_TIMESTAMP()


def fields_of(kind: Type) -> dict[str, Type] | None:
    """The fields of a ROW or a TUPLE by name; None for other types."""
    if isinstance(kind, RowTypeInfo):
        return dict(zip(kind.get_field_names(), kind.get_field_types(), strict=True))
    if isinstance(kind, TupleTypeInfo):
        return {f"f{at}": inner for at, inner in enumerate(kind.get_field_types())}
    return None


def plan_projection(old: Type, new: Type, evolution: Evolution) -> Projection:
    """The projection from the old type to the new; raises IncompatibleChange if none exists.

    The types are as returned by `saved_types.type_from`.

    >>> plan_projection(Types.INT(), Types.LONG(), Evolution())
    Widened(to=Types.LONG())
    >>> plan_projection(Types.LONG(), Types.STRING(), Evolution())
    Traceback (most recent call last):
    millstream.state.schemas.evolution.IncompatibleChange:  was saved as int64, is now string
    """
    plan = _Plan(evolution)
    change = plan.change(old, new, "", "")
    plan.check_all_used()
    return change


def used_defaults(old: Type, new: Type, evolution: Evolution) -> dict[str, StoredDefault]:
    """The defaults of the fields that a compatible change adds, by path, in stored form."""
    plan = _Plan(evolution)
    plan.change(old, new, "", "")
    return {path: StoredDefault.of(column) for path, column in plan.defaults.items()}


class _Plan:
    """Plans one projection: walks both types together and records the fields it visits and the defaults it uses."""

    def __init__(self, evolution: Evolution) -> None:
        self._renames, self._defaults = dict(evolution.renames), dict(evolution.defaults)
        self.defaults: dict[str, pa.Array] = {}
        self._old_paths: set[str] = set()
        self._new_paths: set[str] = set()

    def change(self, old: Type, new: Type, old_path: str, new_path: str) -> Projection:
        old_fields, new_fields = fields_of(old), fields_of(new)
        if old_fields is not None and new_fields is not None:
            return self._picked(old, new, old_path, new_path)
        if is_sequence(old) and is_sequence(new):
            change = self.change(old.element_type, new.element_type, old_path, new_path)
            return change if isinstance(change, Same) else Elements(change, arrow_type(new))
        if isinstance(old, MapTypeInfo) and isinstance(new, MapTypeInfo):
            return self._entries(old, new, old_path, new_path)
        if old == new:
            return Same()
        if is_widened(old, new):
            return Widened(new)
        raise _misfit(old, new, new_path)

    def _entries(self, old: MapTypeInfo, new: MapTypeInfo, old_path: str, new_path: str) -> Projection:
        keys: Projection = Same()
        if old.key_type != new.key_type:
            # Keys of composite types could become equal to one another.
            if not is_widened(old.key_type, new.key_type):
                raise _misfit(old.key_type, new.key_type, new_path, "the keys of ")
            keys = Widened(new.key_type)
        values = self.change(old.value_type, new.value_type, old_path, new_path)
        is_same = isinstance(keys, Same) and isinstance(values, Same)
        return Same() if is_same else Entries(keys, values, arrow_type(new))

    def _picked(self, old: Type, new: Type, old_path: str, new_path: str) -> Projection:
        old_fields, new_fields = fields_of(old), fields_of(new)
        assert old_fields is not None and new_fields is not None
        sources = self._sources(old_fields, new_fields, old_path, new_path)
        if (old_fields and not sources) or (old_fields and not new_fields):
            raise IncompatibleChange(
                f"{_at(new_path)} was saved with the fields {', '.join(old_fields)}, and has none of them now",
                "Say which field is which by evolve(renames={old: new}), pass upgrade=, or give the state a new name",
            )
        names = list(old_fields)
        picked = []
        for name, kind in new_fields.items():
            path = _joined(new_path, name)
            if name in sources:
                source = sources[name]
                change = self.change(old_fields[source], kind, _joined(old_path, source), path)
                picked.append(PickedField(names.index(source), change))
            else:
                picked.append(PickedField(None, Same(), self._default(kind, path)))
        in_place = [(one.source, one.change) for one in picked] == [(at, Same()) for at in range(len(names))]
        is_same = in_place and names == list(new_fields) and type(old) is type(new)
        return Same() if is_same else Picked(tuple(picked), arrow_type(new))

    def _sources(
        self, old_fields: Mapping[str, Type], new_fields: Mapping[str, Type], old_path: str, new_path: str
    ) -> dict[str, str]:
        """The old field for every new field that existed before."""
        self._old_paths |= {_joined(old_path, name) for name in old_fields}
        self._new_paths |= {_joined(new_path, name) for name in new_fields}
        paths = {name: _joined(old_path, name) for name in old_fields}
        renamed = {name: self._renames[path] for name, path in paths.items() if path in self._renames}
        sources = {name: name for name in old_fields if name in new_fields and name not in renamed}
        for was, now in renamed.items():
            if now not in new_fields or now in sources:
                why = f"'{sources[now]}' is" if now in sources else "there is none of that name now"
                raise IncompatibleChange(
                    f"{_at(new_path)}: renames= says that '{was}' is now '{now}', but {why}", "Correct renames="
                )
            sources[now] = was
        return sources

    def _default(self, kind: Type, path: str) -> pa.Array | None:
        if path not in self._defaults:
            return None
        default = self._defaults[path]
        try:
            is_stored = isinstance(default, StoredDefault)
            column = _stored_column(default, kind, path) if is_stored else _column(default, kind)
        except TypeMismatchError as error:
            raise IncompatibleChange(
                f": defaults= has {default!r} for the field '{path}', which is {kind} ({error.message})",
                "Correct defaults=",
            ) from error
        self.defaults[path] = column
        return column

    def check_all_used(self) -> None:
        """Reject names of unknown fields: a typo would lose a field. Earlier renames are accepted."""
        for path, now in self._renames.items():
            done = _joined(path.rpartition(".")[0], now)
            if path not in self._old_paths and done not in self._old_paths:
                raise IncompatibleChange(
                    f": renames= names the field '{path}', but what was saved has {_listed(self._old_paths)}",
                    "Correct renames=",
                )
        for path in self._defaults:
            if path not in self._new_paths:
                raise IncompatibleChange(
                    f": defaults= names the field '{path}', but the type has {_listed(self._new_paths)}",
                    "Correct defaults=",
                )


def _column(value: Any, kind: Type) -> pa.Array:
    """One value in a column of its type, or pickled if untyped."""
    return to_record_batch([(value,)], Types.TUPLE([kind])).column(0)


def _stored_column(default: StoredDefault, kind: Type, path: str) -> pa.Array:
    expected = _column(None, kind).type
    if default.column.type != expected:
        raise StoreDamagedError(
            f"the default of field '{path}' is stored as {default.column.type}, where the field is {expected}. Was the "
            "manifest changed by hand? Restore it from a copy, or start the job from an older epoch."
        )
    return default.column


def _misfit(old: Type, new: Type, path: str, whose: str = "") -> IncompatibleChange:
    was, now = shown_types(old, new)
    return IncompatibleChange(f"{_at(path, whose)} was saved as {was}, is now {now}", "")


def _at(path: str, whose: str = "") -> str:
    if not path:
        return f": {whose}what it holds" if whose else ""
    return f": {whose}field '{path}'"


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _listed(paths: set[str]) -> str:
    return ", ".join(sorted(paths)) or "no fields"


# --- columns ------------------------------------------------------------------------------------------------------


def project(column: pa.Array, change: Projection) -> pa.Array:
    """Applies a projection to a column; nulls stay null.

    >>> project(pa.array([1, None], pa.int32()), Widened(Types.DOUBLE())).to_pylist()
    [1.0, None]
    """
    if isinstance(change, Same):
        return column
    if isinstance(change, Widened):
        return _widened(column, change.to)
    nulls = column.is_null() if column.null_count else None
    if isinstance(change, Picked):
        fields = [_field(column, one, change.kind.field(at).type) for at, one in enumerate(change.fields)]
        return pa.StructArray.from_arrays(fields, type=change.kind, mask=nulls)
    offsets = np.asarray(column.offsets)
    start, length = int(offsets[0]), int(offsets[-1] - offsets[0])
    bounds = pa.array(offsets - start, pa.int32())
    if isinstance(change, Elements):
        items = project(column.values.slice(start, length), change.change)
        return pa.ListArray.from_arrays(bounds, items, type=change.kind, mask=nulls)
    keys = project(column.keys.slice(start, length), change.keys)
    items = project(column.items.slice(start, length), change.values)
    return pa.MapArray.from_arrays(bounds, keys, items, type=change.kind, mask=nulls)


def _field(struct: pa.StructArray, picked_field: PickedField, kind: pa.DataType) -> pa.Array:
    if picked_field.source is not None:
        return project(struct.field(picked_field.source), picked_field.change)
    if picked_field.default is None:
        return pa.nulls(len(struct), kind)
    return picked_field.default.take(pa.array(np.zeros(len(struct), dtype=np.int64)))


def _widened(column: pa.Array, to: Type) -> pa.Array:
    basic = to.basic_type if isinstance(to, BasicTypeInfo) else None
    if basic is BasicType.BIG_INT:
        return _big_integers(column)
    return column.cast(arrow_type(to))  # for BIG_DEC this is a string


def _big_integers(column: pa.Array) -> pa.Array:
    """Whole numbers as BIG_INT stores them: big-endian two's complement, eight bytes each."""
    numbers = column.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False).astype(">i8")
    fixed = pa.Array.from_buffers(pa.binary(8), len(column), [None, pa.py_buffer(numbers.tobytes())])
    written = fixed.cast(pa.binary())
    return pc.if_else(column.is_valid(), written, pa.scalar(None, pa.binary())) if column.null_count else written
