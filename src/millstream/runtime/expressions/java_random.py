"""Java's `java.util.Random`, vectorised, for RAND(seed) and RAND_INTEGER(seed, bound) as in Flink.

The generator is a 48-bit linear congruential one: its n-th state is computed from the first by one multiplication and
one addition with precomputed constants, so columns are generated without a loop over rows. Only if Java rejects an
integer and draws again, to avoid bias, the rest of the column needs a loop.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import numpy.typing as npt

__all__ = ["JavaRandom", "first_doubles", "first_integers"]

Int64s = npt.NDArray[np.int64]
UInt64s = npt.NDArray[np.uint64]
_FACTOR, _ADDEND, _BITS = 0x5DEECE66D, 0xB, 48
_MASK = (1 << _BITS) - 1
_CHUNK = 1 << 14
_DOUBLE_UNIT = 2.0**-53


class JavaRandom:
    """A sequence of numbers, continued from `state`."""

    def __init__(self, seed: int) -> None:
        self.state = (seed ^ _FACTOR) & _MASK

    @classmethod
    def at(cls, state: int) -> JavaRandom:
        """The sequence continued from a state."""
        result = cls(0)
        result.state = state
        return result

    def doubles(self, count: int) -> npt.NDArray[np.float64]:
        """`count` calls of `nextDouble()`.

        >>> JavaRandom(42).doubles(2).tolist()
        [0.7275636800328681, 0.6832234717598454]
        """
        states = self._states(2 * count)
        return _double(states[::2], states[1::2])

    def integers(self, bounds: Int64s) -> Int64s:
        """`nextInt(bound)` for each of the bounds, which must be positive.

        >>> JavaRandom(42).integers(np.array([10, 10, 64, 2**31 - 1])).tolist()
        [0, 3, 43, 102948884]
        """
        before = self.state
        result, is_accepted = _below(self._states(len(bounds)), bounds)
        if is_accepted.all():
            return result
        # Java draws again after a rejected number, which shifts all subsequent numbers by one.
        self.state = before
        return np.array([self._integer(bound) for bound in bounds.tolist()], np.int64)

    def _integer(self, bound: int) -> int:
        while True:
            result, is_accepted = _below(self._states(1), np.array([bound], np.int64))
            if is_accepted[0]:
                return int(result[0])

    def _states(self, count: int) -> UInt64s:
        """The next `count` states."""
        factors, addends = _jumps()
        result = np.empty(count, np.uint64)
        for start in range(0, count, _CHUNK):
            length = min(_CHUNK, count - start)
            states = (factors[:length] * np.uint64(self.state) + addends[:length]) & np.uint64(_MASK)
            result[start : start + length] = states
            self.state = int(states[-1])
        return result


def first_doubles(seeds: Int64s) -> npt.NDArray[np.float64]:
    """The first double of a separate sequence for each seed.

    >>> first_doubles(np.array([42, 42, 1])).tolist()
    [0.7275636800328681, 0.7275636800328681, 0.7308781907032909]
    """
    first = _next(_scramble(seeds))
    return _double(first, _next(first))


def first_integers(seeds: Int64s, bounds: Int64s) -> Int64s:
    """The first integer below a bound of a separate sequence for each seed."""
    result, is_accepted = _below(_next(_scramble(seeds)), bounds)
    for row in np.flatnonzero(~is_accepted).tolist():
        result[row] = JavaRandom(int(seeds[row])).integers(bounds[row : row + 1])[0]
    return result


def _scramble(seeds: Int64s) -> UInt64s:
    return (seeds.astype(np.uint64) ^ np.uint64(_FACTOR)) & np.uint64(_MASK)


def _next(states: UInt64s) -> UInt64s:
    return (states * np.uint64(_FACTOR) + np.uint64(_ADDEND)) & np.uint64(_MASK)


def _double(first: UInt64s, second: UInt64s) -> npt.NDArray[np.float64]:
    """A double from two states: 26 bits of the first, 27 of the second."""
    high, low = first >> np.uint64(_BITS - 26), second >> np.uint64(_BITS - 27)
    return np.asarray(((high << np.uint64(27)) + low) * _DOUBLE_UNIT, np.float64)


def _below(states: UInt64s, bounds: Int64s) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """31 bits of each state reduced below a bound, and whether Java accepts them."""
    drawn = (states >> np.uint64(_BITS - 31)).astype(np.int64)
    is_power = bounds & (bounds - 1) == 0
    rest = drawn % bounds
    return np.where(is_power, (bounds * drawn) >> 31, rest), is_power | (drawn - rest + (bounds - 1) < 1 << 31)


@cache
def _jumps() -> tuple[UInt64s, UInt64s]:
    """The factors and addends that advance a state by 1, 2, 3, … steps."""
    factors, addends = np.empty(_CHUNK, np.uint64), np.empty(_CHUNK, np.uint64)
    factor, addend = 1, 0
    for step in range(_CHUNK):
        factor, addend = factor * _FACTOR & _MASK, (addend * _FACTOR + _ADDEND) & _MASK
        factors[step], addends[step] = factor, addend
    return factors, addends
