"""Compares kernels of text, JSON and collections with their references, on drawn rows."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from text_calls import PROBLEM, STRING, bound, computed, expected, same
from text_strategies import texts

from millstream.expressions.nested_types import ArrayType
from millstream.expressions.types import BooleanType, IntType
from millstream.runtime.expressions.kernel import ValueProblem

_OF_PATTERNS = ("REGEXP", "REGEXP_COUNT", "REGEXP_INSTR", "REGEXP_SUBSTR", "REGEXP_EXTRACT", "REGEXP_REPLACE")


def patterns_agree(source: str, data: st.DataObject) -> None:
    """A function of patterns finds in a column what it finds in each text."""
    function = data.draw(st.sampled_from(_OF_PATTERNS))
    further = {"REGEXP_EXTRACT": (st.integers(-1, 3),), "REGEXP_REPLACE": (st.sampled_from(["", "<$0\\1>"]),)}
    agrees(function, (texts, st.just(source), *further.get(function, ())), data)


def agrees(name: str, strategies: tuple[Any, ...], data: st.DataObject) -> None:
    """Draw rows and compare, with columns, and with constants where only the first argument varies."""
    rows = data.draw(st.lists(st.tuples(*strategies), min_size=1, max_size=5))
    is_constant = data.draw(st.booleans())
    if is_constant and len(strategies) > 1:
        rows = [(row[0], *rows[0][1:]) for row in rows]
    constants = range(1, len(strategies)) if is_constant else ()
    call = bound(name, argument_types(name, len(strategies)), {})
    said = expected(call, rows)
    try:
        found = computed(call, rows, constants)
    except ValueProblem as problem:
        assert said[problem.row] == PROBLEM
        assert PROBLEM not in said[: problem.row]
    else:
        assert same(found, said), f"{name} of {rows}: {found} for {said}"


def argument_types(name: str, count: int) -> list[Any]:
    """The types of columns that the strategies of a function fill."""
    numbers, texts_ = ArrayType(IntType()), ArrayType(STRING)
    of_places = {"SUBSTRING": (1, 2), "SUBSTR": (1,), "LEFT": (1,), "RIGHT": (1,), "LOCATE": (2,), "REPEAT": (1,)}
    of_places |= {"OVERLAY": (2, 3), "LPAD": (1,), "RPAD": (1,), "CHR": (0,), "SPLIT_INDEX": (2,), "ELT": (0,)}
    of_places |= {"ITEM": (1,), "ARRAY_CONTAINS": (1,), "ARRAY_POSITION": (1,), "ARRAY_SLICE": (1, 2)}
    of_places |= {"REGEXP_EXTRACT": (2,)}
    types: list[Any] = [IntType() if place in of_places.get(name, ()) else STRING for place in range(count)]
    arrays = {"CARDINALITY": (0,), "ITEM": (0,), "ARRAY_UNION": (0, 1), "ARRAY_SORT": (0,), "ARRAY_SLICE": (0,)}
    arrays |= {"ARRAY_CONTAINS": (0,), "ARRAY_POSITION": (0,), "MAP_FROM_ARRAYS": (1,)}
    for place in arrays.get(name, ()):
        types[place] = numbers
    if name in ("ARRAY_JOIN", "MAP_FROM_ARRAYS"):
        types[0] = texts_
    if name == "ARRAY_SORT":
        types[1] = BooleanType()
    return types
