"""The function of query 14 gives equal results by column and by row: otherwise the benchmarks would not be
comparable.
"""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from inputs.project_scripts import script_module

COUNTS = script_module("bench/letter_counts.py")


@given(st.lists(st.text(alphabet="abcé€", max_size=8), min_size=1, max_size=12), st.integers(0, 3))
def test_counting_a_column_equals_counting_its_rows(texts: list[str], skipped: int) -> None:
    # The column is a slice: the bytes before and after it belong to other rows.
    column = pa.array(["c", *texts, "cc"]).slice(skipped, len(texts))
    counted = COUNTS.letters_in_column(column, pa.scalar("c")).to_pylist()
    assert counted == [COUNTS.letters_in_text(text, "c") for text in column.to_pylist()]
