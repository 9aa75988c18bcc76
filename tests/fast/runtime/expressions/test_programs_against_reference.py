"""A compiled program agrees with the reference interpreter, row by row."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs.random_expressions import both_agree_for


@pytest.mark.slow
@settings(max_examples=60)
@given(st.integers(0, 2**62))
def test_random_expressions_agree_with_the_reference(seed: int) -> None:
    both_agree_for(seed)
