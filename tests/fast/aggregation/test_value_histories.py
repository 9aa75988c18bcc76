"""Reducing a history of values agrees with walking through it, wherever the history was cut."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.aggregation.groups import Groups, groups_of
from millstream.aggregation.value_histories import History, by_arrival, by_stay, net
from millstream.runtime.tables.references.groups import values_by_arrival

Changes = list[tuple[str, int]]
FORMS = {"net": net, "by stay": by_stay, "by arrival": by_arrival}


@st.composite
def histories(draw: Any) -> Changes:
    """Values that are inserted and deleted; only existing values are deleted."""
    held: dict[str, int] = {}
    changes = []
    for value, times in draw(st.lists(st.tuples(st.sampled_from("abc"), st.integers(-2, 2)), max_size=24)):
        times = max(times, -held.get(value, 0))
        if times:
            held[value] = held.get(value, 0) + times
            changes.append((value, times))
    return changes


def remaining_values(changes: Changes, form: Callable[[Any, Groups], History]) -> Changes:
    """The remaining values in list order."""
    if not changes:
        return []
    values, times = zip(*changes, strict=True)
    groups = groups_of(pa.array(values))
    at, left = form(np.array(times), Groups(groups.codes, groups.count + 1))  # a history of one value has no rows
    return [(values[at[row]], int(left[row])) for row in np.argsort(at, kind="stable")]


@pytest.mark.parametrize("form", FORMS)
@given(changes=histories(), cuts=st.lists(st.integers(0, 24), max_size=4))
def test_a_reduced_history_agrees_with_a_walk_for_any_cuts(form: str, changes: Changes, cuts: list[int]) -> None:
    ends = [*sorted(cuts), len(changes)]
    pieces = [changes[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    left = remaining_values([each for piece in pieces for each in remaining_values(piece, FORMS[form])], FORMS[form])
    times: dict[str, int] = {}
    for value, amount in left:
        times[value] = times.get(value, 0) + amount
    stays, arrivals = values_by_arrival(changes)
    assert {value: amount for value, amount in times.items() if amount} == stays
    if form != "net":
        arrived = [value for value, amount in left if amount > 0 and times[value]]
        assert arrived == list(stays if form == "by stay" else arrivals)


@pytest.mark.parametrize("form", FORMS)
@given(changes=histories(), cuts=st.lists(st.integers(0, 24), min_size=1, max_size=4))
def test_reducing_reduced_pieces_agrees_with_reducing_the_whole(form: str, changes: Changes, cuts: list[int]) -> None:
    changes = changes[min(cuts) :]  # a piece itself may delete values that were inserted before it
    ends = [*sorted(cut for cut in cuts if cut < len(changes)), len(changes)]
    pieces = [changes[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    whole = remaining_values([each for piece in pieces for each in remaining_values(piece, FORMS[form])], FORMS[form])
    if form == "net":
        assert sorted(whole) == sorted(remaining_values(changes, net))
    else:
        arrived = [
            [each for each in history if each[1] > 0] for history in (whole, remaining_values(changes, FORMS[form]))
        ]
        assert arrived[0] == arrived[1]
        assert sorted(whole) == sorted(remaining_values(changes, FORMS[form]))


@pytest.mark.parametrize("form", [by_stay, by_arrival])
@given(changes=histories())
def test_a_reduced_value_has_at_most_a_delete_followed_by_an_insert(form: Any, changes: Changes) -> None:
    left = remaining_values(changes[len(changes) // 2 :], form)
    for value in "abc":
        signs = [amount > 0 for each, amount in left if each == value]
        assert signs in ([], [False], [True], [False, True])
