"""Random types, values of them, and random compatible changes of a type, for the tests of schema evolution."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from millstream.common.typeinfo import MapTypeInfo, RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from millstream.common.types import Row
from millstream.records.shapes import is_sequence
from millstream.state.schemas.evolution import fields_of

_NUMBERS: dict[TypeInformation, st.SearchStrategy[Any]] = {
    Types.BYTE(): st.integers(-(2**7), 2**7 - 1),
    Types.SHORT(): st.integers(-(2**15), 2**15 - 1),
    Types.INT(): st.integers(-(2**31), 2**31 - 1),
    Types.LONG(): st.integers(-(2**63), 2**63 - 1),
}
LEAVES: dict[TypeInformation, st.SearchStrategy[Any]] = {
    **_NUMBERS,
    Types.FLOAT(): st.floats(width=32, allow_nan=False),
    Types.DOUBLE(): st.floats(allow_nan=False),
    Types.BOOLEAN(): st.booleans(),
    Types.CHAR(): st.characters(codec="utf-8"),
    Types.STRING(): st.text(max_size=5),
    Types.BIG_INT(): st.integers(-(2**80), 2**80),
    Types.BIG_DEC(): st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-999, max_value=999),
    Types.SQL_DATE(): st.dates(),
    Types.SQL_TIMESTAMP(): st.datetimes(),
    Types.PRIMITIVE_ARRAY(Types.BYTE()): st.binary(max_size=5),
    Types.PICKLED_BYTE_ARRAY(): st.sampled_from([1, "x", (1, 2), {"a": 1}]),
}
WIDER: dict[TypeInformation, list[TypeInformation]] = {
    Types.BYTE(): [Types.SHORT(), Types.INT(), Types.LONG(), Types.FLOAT(), Types.DOUBLE(), Types.BIG_INT()],
    Types.SHORT(): [Types.INT(), Types.LONG(), Types.FLOAT(), Types.DOUBLE(), Types.BIG_DEC()],
    Types.INT(): [Types.LONG(), Types.DOUBLE(), Types.BIG_INT(), Types.BIG_DEC()],
    Types.LONG(): [Types.BIG_INT(), Types.BIG_DEC()],
    Types.FLOAT(): [Types.DOUBLE()],
    Types.CHAR(): [Types.STRING()],
    Types.SQL_DATE(): [Types.SQL_TIMESTAMP()],
}
_MAP_KEYS = [Types.INT(), Types.STRING(), Types.CHAR(), Types.SHORT()]


def types(depth: int = 2) -> st.SearchStrategy[TypeInformation]:
    """A type of at most `depth` levels."""
    leaves = st.sampled_from(list(LEAVES))
    if not depth:
        return leaves
    inner = types(depth - 1)
    fields = st.lists(inner, min_size=1, max_size=3)
    return st.one_of(
        leaves,
        fields.map(lambda kinds: Types.ROW_NAMED([f"a{at}" for at in range(len(kinds))], kinds)),
        fields.map(Types.TUPLE),
        inner.map(Types.LIST),
        st.builds(Types.MAP, st.sampled_from(_MAP_KEYS), inner),
    )


def values(kind: TypeInformation) -> st.SearchStrategy[Any]:
    """A value of the type, sometimes with None inside."""
    if is_sequence(kind):
        return st.lists(maybe(kind.element_type), max_size=3)
    if isinstance(kind, MapTypeInfo):
        return st.dictionaries(values(kind.key_type), maybe(kind.value_type), max_size=3)
    if isinstance(kind, TupleTypeInfo):
        return st.tuples(*map(maybe, kind.get_field_types()))
    if isinstance(kind, RowTypeInfo):
        names = kind.get_field_names()
        return st.tuples(*map(maybe, kind.get_field_types())).map(lambda parts: named_row(names, parts))
    return LEAVES[kind]


def maybe(kind: TypeInformation) -> st.SearchStrategy[Any]:
    return st.one_of(values(kind), values(kind), st.none())


def named_row(names: list[str], parts: Any) -> Row:
    row = Row(*parts)
    row.set_field_names(names)
    return row


@dataclass
class Change:
    """A change of a type: the new type, and the declarations it requires."""

    old: TypeInformation
    new: TypeInformation = field(default_factory=Types.LONG)
    renames: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, Any] = field(default_factory=dict)


_NAMES = (f"n{number}" for number in itertools.count())


@st.composite
def changes(draw: st.DrawFn, old: TypeInformation) -> Change:
    """A compatible change of the type, possibly none."""
    change = Change(old)
    change.new = _changed(draw, old, (), (), change)
    return change


def _changed(draw: st.DrawFn, old: Any, old_path: tuple[str, ...], new_path: tuple[str, ...], change: Change) -> Any:
    if is_sequence(old):
        return Types.LIST(_changed(draw, old.element_type, old_path, new_path, change))
    if isinstance(old, MapTypeInfo):
        key = draw(st.sampled_from([old.key_type, *WIDER.get(old.key_type, [])]))
        key = old.key_type if key in (Types.BIG_DEC(), Types.DOUBLE()) else key
        return Types.MAP(key, _changed(draw, old.value_type, old_path, new_path, change))
    fields = fields_of(old)
    if fields is None:
        return draw(st.sampled_from([old, *WIDER.get(old, [])]))
    is_row = isinstance(old, RowTypeInfo)
    kept: list[tuple[str, Any]] = []
    for at, (name, kind) in enumerate(fields.items()):
        fate = draw(st.sampled_from(["kept", "kept", "renamed", "gone"])) if is_row else "kept"
        if fate == "gone" and (kept or at < len(fields) - 1):
            continue
        called = next(_NAMES) if fate == "renamed" else name
        if fate == "renamed":
            change.renames[".".join((*old_path, name))] = called
        kept.append((called, _changed(draw, kind, (*old_path, name), (*new_path, called), change)))
    if is_row:
        kept = draw(st.permutations(kept))
    for _ in range(draw(st.integers(0, 2))):
        called = next(_NAMES) if is_row else f"f{len(kept)}"
        kind = draw(types(1))
        if draw(st.booleans()):
            change.defaults[".".join((*new_path, called))] = draw(values(kind))
        kept.insert(draw(st.integers(0, len(kept))) if is_row else len(kept), (called, kind))
    if is_row:
        return Types.ROW_NAMED([name for name, _ in kept], [kind for _, kind in kept])
    return Types.TUPLE([kind for _, kind in kept])
