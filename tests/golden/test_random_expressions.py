"""Many random expressions: compiled programs match the reference interpreter, on few rows and on many."""

from __future__ import annotations

import pytest
from inputs.random_expressions import both_agree_for


@pytest.mark.parametrize("start", range(0, 16_000, 2_000))
def test_compiled_programs_match_the_reference(start: int) -> None:
    for seed in range(start, start + 2_000):
        try:
            both_agree_for(seed)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize("seed", range(1_000_000, 1_000_020))
def test_compiled_programs_match_the_reference_on_many_rows(seed: int) -> None:
    both_agree_for(seed, rows_max=3_000)
