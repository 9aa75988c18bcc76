"""Kernels of text, JSON and collections match their references on many rows, and both pattern engines agree on any
pattern.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from inputs.text_strategies import FUNCTIONS, PATTERNS
from oracles.text_comparison import Comparison, comparisons, pattern_comparisons

PIECES = (
    "a", "b", ".", "^", "$", "[a-c]", "[^b\\s]", r"\d", r"\w", r"\b", r"\s", "é", "😀", "(", ")", "(?:", "(?i)",
    "|", "*", "+",
    "?", "{2}", "*?", "++", r"\p{Lu}", r"\R", "(?=", "(?<!", r"\1", r"[a&&[ab]]", "(?m)", "(?s)", r"\Z", r"\h",
    "\n", r"\Qa\E",
)  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=100)
@given(data=st.data())
def test_a_kernel_matches_its_reference_on_many_rows(name: str, data: st.DataObject) -> None:
    data.draw(comparisons(name, FUNCTIONS[name])).check()


@settings(max_examples=500)
@given(st.sampled_from(PATTERNS).flatmap(pattern_comparisons))
def test_known_patterns_match_on_many_rows(comparison: Comparison) -> None:
    comparison.check()


@settings(max_examples=1_000)
@given(st.lists(st.sampled_from(PIECES), max_size=6).map("".join).flatmap(pattern_comparisons))
@example(Comparison("REGEXP", [(None, "(?<!a*)")], is_constant=True))
def test_both_engines_agree_on_any_pattern(comparison: Comparison) -> None:
    comparison.check()
