"""Sums, means and variances after inserts and deletes equal those of the remaining numbers, rounded once."""

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

ARGUMENTS = (AggregateArgument(Types.DOUBLE(), 0),)
NUMBERS = st.floats(allow_nan=False, allow_infinity=False)


def exact_aggregate(kind: str, detail: str = "") -> BoundAggregate:
    inner = BoundAggregate("m", kind, ARGUMENTS, result=Types.DOUBLE(), detail=detail)
    return BoundAggregate("m", "exact_reals", ARGUMENTS, result=Types.DOUBLE(), detail=detail, inner=inner)


def result_of(
    measure: BoundAggregate, added: list[float | None], deleted: list[float | None], pieces: int
) -> float | None:
    """The result of one group, whose rows are in random order, in several partials that are combined a second time."""
    (kernel,) = kernels_of([measure])
    rows = [(value, 1) for value in added] + [(value, -1) for value in deleted]
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
def test_deleted_values_do_not_affect_the_result(left: list[float], deleted: list[float], pieces: int) -> None:
    total = sum(map(Fraction, left), Fraction(0))
    added = [*left, *deleted]
    assert result_of(exact_aggregate("sum"), added, list(deleted), pieces) == (rounded(total) if left else None)
    assert result_of(exact_aggregate("avg"), added, list(deleted), pieces) == (
        rounded(total / len(left)) if left else None
    )


@given(st.lists(st.floats(-1e100, 1e100).filter(lambda n: n == 0 or abs(n) > 1e-100), min_size=1, max_size=6))
@example([1e9, 1e9 + 1])
def test_a_variance_equals_the_exact_variance(left: list[float]) -> None:
    mean = sum(map(Fraction, left), Fraction(0)) / len(left)
    expected = sum(((Fraction(value) - mean) ** 2 for value in left), Fraction(0)) / len(left)
    actual = result_of(exact_aggregate("variance", "VAR_POP"), [*left, 3.5, 1e120], [3.5, 1e120], 2)
    assert actual == pytest.approx(float(expected), rel=1e-15)


@pytest.mark.parametrize("guest", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_count_until_they_are_deleted(guest: float) -> None:
    with_guest = result_of(exact_aggregate("sum"), [1.0, guest], [], 1)
    assert with_guest is not None and (math.isnan(with_guest) if math.isnan(guest) else with_guest == guest)
    assert result_of(exact_aggregate("sum"), [1.0, guest], [guest], 2) == 1.0
    assert result_of(exact_aggregate("variance", "VAR_POP"), [1.0, 3.0, guest], [guest], 2) == 1.0


def test_infinities_of_both_signs_sum_to_nan_and_nulls_are_ignored() -> None:
    both = result_of(exact_aggregate("sum"), [math.inf, -math.inf], [], 1)
    assert both is not None and math.isnan(both)
    assert result_of(exact_aggregate("sum"), [None, None], [None], 1) is None
    assert result_of(exact_aggregate("sum"), [None, 2.0], [], 1) == 2.0
