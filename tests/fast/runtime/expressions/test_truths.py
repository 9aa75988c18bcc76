"""Boolean columns are converted to numpy and back in whole bytes, wherever a slice begins."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from millstream.runtime.expressions.numbers import boolean_column, booleans


@given(st.lists(st.booleans(), max_size=40), st.integers(0, 20), st.integers(0, 20))
def test_booleans_of_a_slice_equal_its_values(values: list[bool], start: int, count: int) -> None:
    column = pa.array(values, pa.bool_()).slice(start, count)
    assert booleans(column).tolist() == column.to_pylist()


@given(st.lists(st.booleans(), max_size=40))
def test_a_boolean_column_equals_that_of_arrow(values: list[bool]) -> None:
    column = boolean_column(np.array(values, np.bool_))
    column.validate(full=True)
    assert column.equals(pa.array(values, pa.bool_()))
