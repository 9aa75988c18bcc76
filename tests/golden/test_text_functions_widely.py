"""Kernels of text, JSON and collections do what their references say, on many rows; and any pattern means one thing."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_comparison import agrees, patterns_agree
from text_strategies import FUNCTIONS, PATTERNS

PIECES = (
    "a", "b", ".", "^", "$", "[a-c]", "[^b\\s]", r"\d", r"\w", r"\b", r"\s", "é", "😀", "(", ")", "(?:", "(?i)",
    "|", "*", "+",
    "?", "{2}", "*?", "++", r"\p{Lu}", r"\R", "(?=", "(?<!", r"\1", r"[a&&[ab]]", "(?m)", "(?s)", r"\Z", r"\h",
    "\n", r"\Qa\E",
)  # fmt: skip


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=100)
@given(data=st.data())
def test_a_kernel_agrees_with_its_reference_widely(name: str, data: st.DataObject) -> None:
    agrees(name, FUNCTIONS[name], data)


@settings(max_examples=500)
@given(data=st.data(), source=st.sampled_from(PATTERNS))
def test_known_patterns_over_columns_widely(data: st.DataObject, source: str) -> None:
    patterns_agree(source, data)


@settings(max_examples=1_000)
@given(data=st.data(), pieces=st.lists(st.sampled_from(PIECES), max_size=6))
def test_any_pattern_means_the_same_to_both_engines(data: st.DataObject, pieces: list[str]) -> None:
    patterns_agree("".join(pieces), data)
