"""Sums, means and variances of numbers that come and go are those of the numbers that are left, rounded once."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from millstream.aggregation.groups import Groups
from millstream.aggregation.kernels import kernels_of
from millstream.aggregation.signed_kernels import negated
from millstream.common.typeinfo import Types
from millstream.state.windows.bound_aggregates import AggregateArgument, BoundAggregate

LOOKS = (AggregateArgument(Types.DOUBLE(), 0),)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


def exact(kind: str, detail: str = "") -> BoundAggregate:
    inner = BoundAggregate("m", kind, LOOKS, result=Types.DOUBLE(), detail=detail)
    return BoundAggregate("m", "exact_reals", LOOKS, result=Types.DOUBLE(), detail=detail, inner=inner)


def result(measure: BoundAggregate, added: list[float | None], taken: list[float | None], pieces: int) -> float | None:
    """Of one group, whose rows come mixed, in so many partials that are combined a second time."""
    (kernel,) = kernels_of([measure])
    rows = [(value, 1) for value in added] + [(value, -1) for value in taken]
    random.Random(len(rows)).shuffle(rows)
    partials = []
    for piece in range(pieces):
        some = rows[piece::pieces]
        lifted = kernel.lift([pa.array([value for value, _ in some], pa.float64())], np.arange(len(some)))
        signed = negated(kernel, lifted, np.array([sign for _, sign in some], dtype=np.int64))
        partials.append(kernel.combine(signed, Groups(np.zeros(len(some), dtype=np.int64), 1)))
    both = [pa.concat_arrays(columns) for columns in zip(*partials, strict=True)]
    (value,) = kernel.results(kernel.combine(both, Groups(np.zeros(pieces, dtype=np.int64), 1))).to_pylist()
    return value


def rounded(value: Fraction) -> float:
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


@given(st.lists(NUMBERS, max_size=8), st.lists(NUMBERS, max_size=8), st.integers(1, 3))
@example([1.0], [1e17], 1)
@example([5e-324, 1e308, 1e308], [], 2)
def test_what_went_leaves_no_trace(left: list[float], gone: list[float], pieces: int) -> None:
    total = sum(map(Fraction, left), Fraction(0))
    added = [*left, *gone]
    assert result(exact("sum"), added, list(gone), pieces) == (rounded(total) if left else None)
    assert result(exact("avg"), added, list(gone), pieces) == (rounded(total / len(left)) if left else None)


@given(st.lists(st.floats(-1e100, 1e100).filter(lambda n: n == 0 or abs(n) > 1e-100), min_size=1, max_size=6))
@example([1e9, 1e9 + 1])
def test_a_variance_is_that_of_the_numbers_themselves(left: list[float]) -> None:
    mean = sum(map(Fraction, left), Fraction(0)) / len(left)
    expected = sum(((Fraction(value) - mean) ** 2 for value in left), Fraction(0)) / len(left)
    found = result(exact("variance", "VAR_POP"), [*left, 3.5, 1e120], [3.5, 1e120], 2)
    assert found == pytest.approx(float(expected), rel=1e-15)


@pytest.mark.parametrize("guest", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_counts_while_it_is_there(guest: float) -> None:
    there = result(exact("sum"), [1.0, guest], [], 1)
    assert there is not None and (math.isnan(there) if math.isnan(guest) else there == guest)
    assert result(exact("sum"), [1.0, guest], [guest], 2) == 1.0
    assert result(exact("variance", "VAR_POP"), [1.0, 3.0, guest], [guest], 2) == 1.0


def test_infinities_of_both_signs_have_no_sum_and_null_is_nothing() -> None:
    both = result(exact("sum"), [math.inf, -math.inf], [], 1)
    assert both is not None and math.isnan(both)
    assert result(exact("sum"), [None, None], [None], 1) is None
    assert result(exact("sum"), [None, 2.0], [], 1) == 2.0
