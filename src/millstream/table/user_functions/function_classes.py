"""The classes a program derives its functions from. They fix names and shapes, and do nothing by themselves.

A function travels to its tasks by pickle, once. There `open` is called before the first row, with the task's
`FunctionContext`, and `close` after the last one.
"""

from __future__ import annotations

import abc
from collections.abc import Iterable, Mapping
from typing import Any, Generic, TypeVar

from millstream.expressions.data_type import DataType
from millstream.metrics import MetricGroup

__all__ = [
    "AggregateFunction",
    "AsyncScalarFunction",
    "FunctionContext",
    "ImperativeAggregateFunction",
    "ScalarFunction",
    "TableAggregateFunction",
    "TableFunction",
    "UserDefinedFunction",
]

T = TypeVar("T")
ACC = TypeVar("ACC")


class FunctionContext:
    """The task as a function sees it."""

    def __init__(
        self,
        base_metric_group: MetricGroup | None,
        job_parameters: Mapping[str, str],
        task_name: str = "",
        task_name_with_subtasks: str = "",
        number_of_parallel_subtasks: int = 1,
        max_number_of_parallel_subtasks: int = 1,
        index_of_this_subtask: int = 0,
        attempt_number: int = 0,
    ) -> None:
        self._base_metric_group = base_metric_group
        self._job_parameters = job_parameters
        self._task_name = task_name
        self._task_name_with_subtasks = task_name_with_subtasks
        self._number_of_parallel_subtasks = number_of_parallel_subtasks
        self._max_number_of_parallel_subtasks = max_number_of_parallel_subtasks
        self._index_of_this_subtask = index_of_this_subtask
        self._attempt_number = attempt_number

    def get_metric_group(self) -> MetricGroup:
        """Where the function enters its counters, meters and gauges."""
        if self._base_metric_group is None:
            raise RuntimeError("Metric has not been enabled. You can enable metric with 'python.metric.enabled'.")
        return self._base_metric_group

    def get_job_parameter(self, key: str, default_value: str) -> str:
        """A parameter of the job (`pipeline.global-job-parameters`)."""
        return self._job_parameters.get(key, default_value)

    def get_task_name(self) -> str:
        """The name of the operator."""
        return self._task_name

    def get_task_name_with_subtasks(self) -> str:
        """The name with this subtask's place, as in `Calc (3/7)`."""
        return self._task_name_with_subtasks

    def get_number_of_parallel_subtasks(self) -> int:
        """How many subtasks the operator has."""
        return self._number_of_parallel_subtasks

    def get_max_number_of_parallel_subtasks(self) -> int:
        """The highest parallelism the job can be given."""
        return self._max_number_of_parallel_subtasks

    def get_index_of_this_subtask(self) -> int:
        """This subtask's number, from 0."""
        return self._index_of_this_subtask

    def get_attempt_number(self) -> int:
        """How often this subtask was tried before, from 0."""
        return self._attempt_number


class UserDefinedFunction(abc.ABC):  # noqa: B024 - PyFlink has it abstract, with nothing to override
    """What every function has: a beginning and an end in its task."""

    def open(self, function_context: FunctionContext) -> None:
        """Called once in the task before the first row."""

    def close(self) -> None:
        """Called once in the task after the last row, also when the task fails."""

    def is_deterministic(self) -> bool:
        """Whether the same arguments always give the same result."""
        return True


class ScalarFunction(UserDefinedFunction):
    """Values of one row in, one value out.

    >>> class Twice(ScalarFunction):
    ...     def eval(self, number):
    ...         return number * 2
    >>> Twice().eval(21)
    42
    """

    @abc.abstractmethod
    def eval(self, *args: Any) -> Any:
        """The value for the arguments of one row."""


class AsyncScalarFunction(UserDefinedFunction):
    """As a ScalarFunction, awaited: several rows are under way at once."""

    @abc.abstractmethod
    async def eval(self, *args: Any) -> Any:
        """The value for the arguments of one row."""


class TableFunction(UserDefinedFunction):
    """Values of one row in, any number of rows out."""

    @abc.abstractmethod
    def eval(self, *args: Any) -> Iterable[Any]:
        """The rows for the arguments of one row: an iterable, or by `yield`."""


class ImperativeAggregateFunction(UserDefinedFunction, Generic[T, ACC]):
    """Values of many rows in, held in an accumulator."""

    @abc.abstractmethod
    def create_accumulator(self) -> ACC:
        """The accumulator of no rows."""

    @abc.abstractmethod
    def accumulate(self, accumulator: ACC, *args: Any) -> None:
        """Take the arguments of one row in."""

    def retract(self, accumulator: ACC, *args: Any) -> None:
        """Take the arguments of one row out again."""
        raise RuntimeError(f"{type(self).__name__} has no retract(), which a table that changes needs. Write one")

    def merge(self, accumulator: ACC, accumulators: Iterable[ACC]) -> None:
        """Take what other accumulators hold in."""
        raise RuntimeError(f"{type(self).__name__} has no merge(), which session windows need. Write one")

    def get_result_type(self) -> DataType:
        """The type of the result, where the decorator is not told."""
        raise RuntimeError(f"{type(self).__name__} has no get_result_type(), and no result_type= was given")

    def get_accumulator_type(self) -> DataType:
        """The type of the accumulator, where the decorator is not told."""
        raise RuntimeError(f"{type(self).__name__} has no get_accumulator_type(), and no accumulator_type= was given")


class AggregateFunction(ImperativeAggregateFunction[Any, Any]):
    """An aggregate with one value."""

    @abc.abstractmethod
    def get_value(self, accumulator: Any) -> Any:
        """The value of what was taken in."""


class TableAggregateFunction(ImperativeAggregateFunction[Any, Any]):
    """An aggregate with any number of rows."""

    @abc.abstractmethod
    def emit_value(self, accumulator: Any) -> Iterable[Any]:
        """The rows of what was taken in."""
