"""Built-in aggregates as Python aggregate functions, with PyFlink's names, for programs that call them directly.

Queries do not use them: there, SUM and others run over columns. Each stores its accumulator as a list, as in PyFlink;
NULL is ignored by every aggregate except the first and last value.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Iterable
from decimal import Decimal
from typing import Any

from millstream.common import constants
from millstream.pyflink_names import add_pyflink_names
from millstream.table.user_functions.function_classes import AggregateFunction

__all__ = [
    "AvgAggFunction",
    "Count1AggFunction",
    "CountAggFunction",
    "DecimalSum0AggFunction",
    "FirstValueAggFunction",
    "FirstValueWithRetractAggFunction",
    "FloatSum0AggFunction",
    "IntSum0AggFunction",
    "LastValueAggFunction",
    "LastValueWithRetractAggFunction",
    "ListAggFunction",
    "ListAggWithRetractAggFunction",
    "ListAggWsWithRetractAggFunction",
    "MaxAggFunction",
    "MaxWithRetractAggFunction",
    "MinAggFunction",
    "MinWithRetractAggFunction",
    "Sum0AggFunction",
    "SumAggFunction",
    "SumWithRetractAggFunction",
    "WelfordM2AggFunction",
]


class AvgAggFunction(AggregateFunction):
    """The mean; accumulator: sum, count."""

    def get_value(self, accumulator: Any) -> Any:
        return None if accumulator[1] == 0 else accumulator[0] / accumulator[1]

    def create_accumulator(self) -> Any:
        return [0, 0]

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        if args[0] is not None:
            accumulator[0] += args[0]
            accumulator[1] += 1

    def retract(self, accumulator: Any, *args: Any) -> None:
        if args[0] is not None:
            accumulator[0] -= args[0]
            accumulator[1] -= 1

    def merge(self, accumulator: Any, accumulators: Iterable[Any]) -> None:
        for each in accumulators:
            accumulator[0] += each[0]
            accumulator[1] += each[1]


class Count1AggFunction(AggregateFunction):
    """The number of rows; accumulator: count."""

    def get_value(self, accumulator: Any) -> Any:
        return accumulator[0]

    def create_accumulator(self) -> Any:
        return [0]

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        accumulator[0] += 1

    def retract(self, accumulator: Any, *args: Any) -> None:
        accumulator[0] -= 1

    def merge(self, accumulator: Any, accumulators: Iterable[Any]) -> None:
        for each in accumulators:
            accumulator[0] += each[0]


class CountAggFunction(Count1AggFunction):
    """The number of values that are not NULL."""

    def get_value(self, accumulator: Any) -> Any:
        return accumulator[0]

    def create_accumulator(self) -> Any:
        return [0]

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        if args[0] is not None:
            accumulator[0] += 1

    def retract(self, accumulator: Any, *args: Any) -> None:
        if args[0] is not None:
            accumulator[0] -= 1

    def merge(self, accumulator: Any, accumulators: Iterable[Any]) -> None:
        super().merge(accumulator, accumulators)


class _ListedAggFunction(AggregateFunction):
    """Stores all values, in order."""

    def get_value(self, accumulator: Any) -> Any:
        raise NotImplementedError

    def create_accumulator(self) -> Any:
        return []

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        if args[0] is not None:
            accumulator.append(args[0])

    def retract(self, accumulator: Any, *args: Any) -> None:
        if args[0] is not None and args[0] in accumulator:
            accumulator.remove(args[0])

    def merge(self, accumulator: Any, accumulators: Iterable[Any]) -> None:
        for each in accumulators:
            accumulator.extend(each)


class FirstValueWithRetractAggFunction(_ListedAggFunction):
    """The first value, with retraction."""

    def get_value(self, accumulator: Any) -> Any:
        return accumulator[0] if accumulator else None


class FirstValueAggFunction(FirstValueWithRetractAggFunction):
    """The first value."""

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        if args[0] is not None and not accumulator:
            accumulator.append(args[0])


class LastValueWithRetractAggFunction(_ListedAggFunction):
    """The last value, with retraction."""

    def get_value(self, accumulator: Any) -> Any:
        return accumulator[-1] if accumulator else None


class LastValueAggFunction(LastValueWithRetractAggFunction):
    """The last value."""

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        if args[0] is not None:
            accumulator[:] = [args[0]]


class ListAggWithRetractAggFunction(_ListedAggFunction):
    """The concatenation of strings with commas, with retraction."""

    def get_value(self, accumulator: Any) -> Any:
        return ",".join(accumulator) if accumulator else None


class ListAggFunction(ListAggWithRetractAggFunction):
    """The concatenation of strings with commas."""


class ListAggWsWithRetractAggFunction(_ListedAggFunction):
    """The concatenation of strings with a separator, which is the first argument, with retraction."""

    def get_value(self, accumulator: Any) -> Any:
        return accumulator[0].join(accumulator[1:]) if len(accumulator) > 1 else None

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        if args[0] is not None:
            accumulator[:1] = [args[1]]
            accumulator.append(args[0])

    def retract(self, accumulator: Any, *args: Any) -> None:
        if args[0] is not None and args[0] in accumulator[1:]:
            del accumulator[accumulator.index(args[0], 1)]

    def merge(self, accumulator: Any, accumulators: Iterable[Any]) -> None:
        for each in accumulators:
            if each:
                accumulator[:1] = each[:1]
                accumulator.extend(each[1:])


class _CountedAggFunction(AggregateFunction):
    """Stores the count of each value; accumulator: the result, the counts."""

    def get_value(self, accumulator: Any) -> Any:
        return accumulator[0]

    def create_accumulator(self) -> Any:
        return [None, Counter()]

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        if args[0] is not None:
            accumulator[1][args[0]] += 1
            self._update(accumulator)

    def retract(self, accumulator: Any, *args: Any) -> None:
        if args[0] is not None:
            accumulator[1][args[0]] -= 1
            self._update(accumulator)

    def merge(self, acc: Any, accumulators: Iterable[Any]) -> None:
        for each in accumulators:
            acc[1].update(each[1])
        self._update(acc)

    @staticmethod
    @abstractmethod
    def _update(acc: Any) -> None:
        """Computes the result from the values."""


class MaxWithRetractAggFunction(_CountedAggFunction):
    """The largest value, with retraction."""

    @staticmethod
    def update_max(acc: Any) -> None:
        """Computes the largest of the current values."""
        acc[0] = max((value for value, count in acc[1].items() if count > 0), default=None)

    _update = update_max


class MinWithRetractAggFunction(_CountedAggFunction):
    """The smallest value, with retraction."""

    @staticmethod
    def update_min(acc: Any) -> None:
        """Computes the smallest of the current values."""
        acc[0] = min((value for value, count in acc[1].items() if count > 0), default=None)

    _update = update_min


class MaxAggFunction(AggregateFunction):
    """The largest value, which is also the accumulator."""

    def get_value(self, accumulator: Any) -> Any:
        return accumulator[0]

    def create_accumulator(self) -> Any:
        return [None]

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        if args[0] is not None and (accumulator[0] is None or args[0] > accumulator[0]):
            accumulator[0] = args[0]

    def retract(self, accumulator: Any, *args: Any) -> None:
        raise NotImplementedError("MaxAggFunction cannot retract: use MaxWithRetractAggFunction")

    def merge(self, accumulator: Any, accumulators: Iterable[Any]) -> None:
        for each in accumulators:
            self.accumulate(accumulator, each[0])


class MinAggFunction(MaxAggFunction):
    """The smallest value, which is also the accumulator."""

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        if args[0] is not None and (accumulator[0] is None or args[0] < accumulator[0]):
            accumulator[0] = args[0]

    def retract(self, accumulator: Any, *args: Any) -> None:
        raise NotImplementedError("MinAggFunction cannot retract: use MinWithRetractAggFunction")


class Sum0AggFunction(AggregateFunction):
    """The sum, 0 without values; the accumulator is the sum."""

    def get_value(self, accumulator: Any) -> Any:
        return accumulator[0]

    @abstractmethod
    def create_accumulator(self) -> Any:
        """An empty accumulator: zero in the sum's type."""

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        if args[0] is not None:
            accumulator[0] += args[0]

    def retract(self, accumulator: Any, *args: Any) -> None:
        if args[0] is not None:
            accumulator[0] -= args[0]

    def merge(self, accumulator: Any, accumulators: Iterable[Any]) -> None:
        for each in accumulators:
            accumulator[0] += each[0]


class IntSum0AggFunction(Sum0AggFunction):
    """The sum of integers, 0 without values."""

    def create_accumulator(self) -> Any:
        return [0]


class FloatSum0AggFunction(Sum0AggFunction):
    """The sum of floats, 0.0 without values."""

    def create_accumulator(self) -> Any:
        return [0.0]


class DecimalSum0AggFunction(Sum0AggFunction):
    """The sum of decimals, 0 without values."""

    def create_accumulator(self) -> Any:
        return [Decimal(0)]


class SumAggFunction(AggregateFunction):
    """The sum, NULL without values; the accumulator is the sum."""

    def get_value(self, accumulator: Any) -> Any:
        return accumulator[0]

    def create_accumulator(self) -> Any:
        return [None]

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        if args[0] is not None:
            accumulator[0] = args[0] if accumulator[0] is None else accumulator[0] + args[0]

    def retract(self, accumulator: Any, *args: Any) -> None:
        raise NotImplementedError("SumAggFunction cannot retract: use SumWithRetractAggFunction")

    def merge(self, accumulator: Any, accumulators: Iterable[Any]) -> None:
        for each in accumulators:
            self.accumulate(accumulator, each[0])


class SumWithRetractAggFunction(AvgAggFunction):
    """The sum, NULL without values, with retraction; accumulator: sum, count."""

    def get_value(self, accumulator: Any) -> Any:
        return None if accumulator[1] == 0 else accumulator[0]


class WelfordM2AggFunction(AggregateFunction):
    """The sum of squared distances from the mean, by Welford's method; accumulator: count, mean, sum of squares."""

    def create_accumulator(self) -> Any:
        return [0, 0.0, 0.0]

    def get_value(self, accumulator: Any) -> Any:
        return None if accumulator[0] == 0 else accumulator[2]

    def accumulate(self, accumulator: Any, *args: Any) -> None:
        if args[0] is not None:
            self.merge(accumulator, [[1, float(args[0]), 0.0]])

    def retract(self, accumulator: Any, *args: Any) -> None:
        if args[0] is None:
            return
        count, mean, squares = accumulator
        if count <= 1:
            accumulator[:] = self.create_accumulator()
            return
        rest = (count * mean - args[0]) / (count - 1)
        accumulator[:] = [count - 1, rest, squares - (args[0] - mean) * (args[0] - rest)]

    def merge(self, accumulator: Any, accumulators: Iterable[Any]) -> None:
        for count, mean, squares in accumulators:
            total = accumulator[0] + count
            if total:
                distance = mean - accumulator[1]
                accumulator[2] += squares + distance * distance * accumulator[0] * count / total
                accumulator[1] += distance * count / total
                accumulator[0] = total


MAX_LONG_VALUE, MIN_LONG_VALUE = constants.MAX_LONG_VALUE, constants.MIN_LONG_VALUE

add_pyflink_names(globals())
