"""Kernels of text, JSON and collection functions agree with their references, row by row."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs.text_strategies import FUNCTIONS, PATTERNS
from oracles.text_calls import STRING, bound, computed
from oracles.text_comparison import Comparison, comparisons, pattern_comparisons


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=8)
@given(data=st.data())
def test_a_kernel_agrees_with_its_reference(name: str, data: st.DataObject) -> None:
    data.draw(comparisons(name, FUNCTIONS[name])).check()


@settings(max_examples=20)
@given(st.sampled_from(PATTERNS).flatmap(pattern_comparisons))
def test_patterns_over_columns_agree_with_matching_each_text(comparison: Comparison) -> None:
    comparison.check()


NO_PATTERNS = {
    "look-behind": "(?<!a*)",
    "grapheme": r"\X",
    "alone": r"a\ud83d",
    "count": "a{9999999999}",
    "digits": "a{" + "9" * 5_000 + "}",
    "open": "(",
    "deep": "(" * 3_000 + ")" * 3_000,
    "class": "[" * 3_000 + "]" * 3_000,
    "escape": "a%%",
}
"""Patterns that Java refuses, or takes and no engine here does, or that are deeper than Python's stack."""


@pytest.mark.parametrize("pattern", NO_PATTERNS.values(), ids=NO_PATTERNS)
@pytest.mark.parametrize(
    ("name", "further"),
    [
        ("REGEXP", ()),
        ("REGEXP_COUNT", ()),
        ("REGEXP_INSTR", ()),
        ("REGEXP_SUBSTR", ()),
        ("REGEXP_EXTRACT", (0,)),
        ("REGEXP_EXTRACT_ALL", (0,)),
        ("REGEXP_REPLACE", ("b",)),
        ("LIKE", ("%",)),
        ("SIMILAR TO", ("%",)),
        ("STR_TO_MAP", ("=",)),
    ],
)
def test_an_unsupported_pattern_fails_at_the_first_row_that_needs_it(
    name: str, further: tuple[Any, ...], pattern: str
) -> None:
    for is_constant in (False, True):
        for texts in ([None], [None, None, "abc"], ["abc", None]):
            Comparison(name, [(text, pattern, *further) for text in texts], is_constant).check()


def test_rows_with_only_nulls_are_not_null() -> None:
    call = bound("CONCAT_WS", [STRING, STRING], {})
    assert computed(call, [(",", None), (",", "a"), (None, None)]) == ["", "a", None]
