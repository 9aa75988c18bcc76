"""Compares kernels of text, JSON and collections with their references, on drawn rows.

The drawn value is a `Comparison`, so that a failed one can be pinned as an `@example`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st
from inputs.text_strategies import texts

from millstream.expressions.nested_types import ArrayType
from millstream.expressions.types import BooleanType, IntType
from millstream.runtime.expressions.kernel import EvaluationError
from oracles.text_calls import PROBLEM, STRING, bound, computed, expected, same

_FURTHER: dict[str, tuple[Any, ...]] = {
    "REGEXP": (),
    "REGEXP_COUNT": (),
    "REGEXP_INSTR": (),
    "REGEXP_SUBSTR": (),
    "REGEXP_EXTRACT": (st.none() | st.integers(-1, 3),),
    "REGEXP_EXTRACT_ALL": (st.none() | st.integers(-1, 3),),
    "REGEXP_REPLACE": (st.sampled_from([None, "", "<$0\\1>"]),),
    "LIKE": (),
    "SIMILAR TO": (),
    "STR_TO_MAP": (),
}
"""Functions that take a pattern after the text, and what they take after it."""


@dataclass(frozen=True)
class Comparison:
    """A call of a function for some rows. `is_constant`: all arguments but the first are the same for all rows."""

    name: str
    rows: list[tuple[Any, ...]]
    is_constant: bool = False

    def check(self) -> None:
        width = len(self.rows[0])
        rows = [(row[0], *self.rows[0][1:]) for row in self.rows] if self.is_constant else self.rows
        call = bound(self.name, argument_types(self.name, width), {})
        said = expected(call, rows)
        try:
            found = computed(call, rows, range(1, width) if self.is_constant else ())
        except EvaluationError as problem:
            assert said[problem.row] == PROBLEM
            assert PROBLEM not in said[: problem.row]
        else:
            assert same(found, said), f"{self.name} of {rows}: {found} for {said}"


def comparisons(name: str, strategies: tuple[st.SearchStrategy[Any], ...]) -> st.SearchStrategy[Comparison]:
    rows = st.lists(st.tuples(*strategies), min_size=1, max_size=5)
    return st.builds(Comparison, st.just(name), rows, st.booleans())


def pattern_comparisons(source: str) -> st.SearchStrategy[Comparison]:
    """A pattern function on a column agrees with its result on each text."""
    return st.sampled_from(sorted(_FURTHER)).flatmap(
        lambda name: comparisons(name, (texts, st.just(source), *_FURTHER[name]))
    )


def argument_types(name: str, count: int) -> list[Any]:
    """The types of columns that the strategies of a function fill."""
    numbers, texts_ = ArrayType(IntType()), ArrayType(STRING)
    of_places = {"SUBSTRING": (1, 2), "SUBSTR": (1,), "LEFT": (1,), "RIGHT": (1,), "LOCATE": (2,), "REPEAT": (1,)}
    of_places |= {"OVERLAY": (2, 3), "LPAD": (1,), "RPAD": (1,), "CHR": (0,), "SPLIT_INDEX": (2,), "ELT": (0,)}
    of_places |= {"ITEM": (1,), "ARRAY_CONTAINS": (1,), "ARRAY_POSITION": (1,), "ARRAY_SLICE": (1, 2)}
    of_places |= {"REGEXP_EXTRACT": (2,), "REGEXP_EXTRACT_ALL": (2,)}
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
