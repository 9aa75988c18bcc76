"""Truths go from columns to numpy and back, whole bytes at a time, wherever a slice begins."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millstream.runtime.expressions.numbers import boolean_column, booleans


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 20), st.integers(0, 20))
def test_truths_of_a_slice_are_those_of_its_values(values: list[bool], start: int, count: int) -> None:
    column = pa.array(values, pa.bool_()).slice(start, count)
    assert booleans(column).tolist() == column.to_pylist()


@given(st.lists(st.booleans(), max_size=40))
def test_a_column_of_truths_is_the_one_that_arrow_makes(values: list[bool]) -> None:
    column = boolean_column(np.array(values, np.bool_))
    column.validate(full=True)
    assert column.equals(pa.array(values, pa.bool_()))
