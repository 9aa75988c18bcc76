"""Compares timestamps of different units exactly, in the coarser unit, because nanoseconds do not cover all years.

A timestamp is on a tick of the coarser unit or between two ticks. It is < a tick if the preceding tick is, and <= a
tick if the next tick is; it equals a tick only if it is exactly on it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.runtime.expressions.kernel import Value

__all__ = ["compare_times"]

_PER_SECOND = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}
_MIRRORED = {"=": "=", "<>": "<>", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
_BY_TICK: dict[str, tuple[Callable[[Value, Value], Value], bool]] = {
    "<": (pc.less, False),
    ">=": (pc.greater_equal, False),
    "<=": (pc.less_equal, True),
    ">": (pc.greater, True),
}
"""The comparison of ticks, and whether it uses the next tick (True) or the preceding one."""


def compare_times(function: str, left: Value, right: Value) -> Value:
    """Compares two timestamp columns of one kind and different units.

    >>> fine = pa.array([1_500_000_000, 2_000_000_000, None], pa.timestamp("ns"))
    >>> coarse = pa.array([1, 2, 3], pa.timestamp("s"))
    >>> compare_times(">", fine, coarse).to_pylist(), compare_times("=", coarse, fine).to_pylist()
    ([True, False, None], [False, True, None])
    """
    if _PER_SECOND[left.type.unit] < _PER_SECOND[right.type.unit]:
        return compare_times(_MIRRORED[function], right, left)
    if function == "<>":
        return pc.invert(compare_times("=", left, right))
    if function == "=":
        return pc.and_(*(pc.equal(_ticks(left, right.type, up), right) for up in (False, True)))
    compare, is_next = _BY_TICK[function]
    return compare(_ticks(left, right.type, is_next), right)


def _ticks(times: Value, type_: pa.TimestampType, is_next: bool) -> Value:
    """The preceding or next tick of a coarser unit for each timestamp, or the tick that it is on."""
    step = _PER_SECOND[times.type.unit] // _PER_SECOND[type_.unit]
    column = pa.repeat(times, 1) if isinstance(times, pa.Scalar) else times
    numbers = column.view(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    ticks, rest = np.divmod(numbers, step)
    if is_next:
        ticks = ticks + (rest > 0)
    result = pa.array(ticks, mask=np.asarray(column.is_null())).view(type_)
    return result[0] if isinstance(times, pa.Scalar) else result
