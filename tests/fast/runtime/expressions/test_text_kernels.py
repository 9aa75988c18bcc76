"""Kernels of text, JSON and collections do what their references say, row for row."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from text_calls import STRING, bound, computed
from text_comparison import agrees, patterns_agree
from text_strategies import FUNCTIONS, PATTERNS


@pytest.mark.parametrize("name", FUNCTIONS)
@settings(max_examples=8)
@given(data=st.data())
def test_a_kernel_agrees_with_its_reference(name: str, data: st.DataObject) -> None:
    agrees(name, FUNCTIONS[name], data)


@settings(max_examples=20)
@given(data=st.data(), source=st.sampled_from(PATTERNS))
def test_patterns_over_columns_find_what_they_find_in_each_text(data: st.DataObject, source: str) -> None:
    patterns_agree(source, data)


def test_rows_of_null_alone_stay_rows() -> None:
    call = bound("CONCAT_WS", [STRING, STRING], {})
    assert computed(call, [(",", None), (",", "a"), (None, None)]) == ["", "a", None]
