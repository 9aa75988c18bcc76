"""The base classes of user functions, which define names and signatures only.

A function is sent to its tasks by pickle, once. The task calls `open` before the first row, with its `FunctionContext`,
and `close` after the last.
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
    """The task's context for a function."""

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
        """The group for the function's counters, meters and gauges."""
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
        """The name with this subtask's number, as in `Calc (3/7)`."""
        return self._task_name_with_subtasks

    def get_number_of_parallel_subtasks(self) -> int:
        """The number of subtasks of the operator."""
        return self._number_of_parallel_subtasks

    def get_max_number_of_parallel_subtasks(self) -> int:
        """The maximum parallelism of the job."""
        return self._max_number_of_parallel_subtasks

    def get_index_of_this_subtask(self) -> int:
        """This subtask's number, from 0."""
        return self._index_of_this_subtask

    def get_attempt_number(self) -> int:
        """The number of previous attempts of this subtask, from 0."""
        return self._attempt_number


class UserDefinedFunction(abc.ABC):  # noqa: B024 - PyFlink has it abstract, with nothing to override
    """The methods of every function: its life cycle in the task."""

    def open(self, function_context: FunctionContext) -> None:
        """Called once in the task before the first row."""

    def close(self) -> None:
        """Called once in the task after the last row, also when the task fails."""

    def is_deterministic(self) -> bool:
        """Whether equal arguments always yield equal results."""
        return True


class ScalarFunction(UserDefinedFunction):
    """Maps the values of one row to one value.

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
    """An asynchronous ScalarFunction: several rows are processed concurrently."""

    @abc.abstractmethod
    async def eval(self, *args: Any) -> Any:
        """The value for the arguments of one row."""


class TableFunction(UserDefinedFunction):
    """Maps the values of one row to any number of rows."""

    @abc.abstractmethod
    def eval(self, *args: Any) -> Iterable[Any]:
        """Returns an iterable of rows for the arguments of one row, or yields them."""


class ImperativeAggregateFunction(UserDefinedFunction, Generic[T, ACC]):
    """Aggregates the values of many rows in an accumulator."""

    @abc.abstractmethod
    def create_accumulator(self) -> ACC:
        """An empty accumulator."""

    @abc.abstractmethod
    def accumulate(self, accumulator: ACC, *args: Any) -> None:
        """Adds the arguments of one row to the accumulator."""

    def retract(self, accumulator: ACC, *args: Any) -> None:
        """Removes the arguments of one row from the accumulator."""
        raise RuntimeError(f"{type(self).__name__} has no retract(), which a table that changes needs. Write one")

    def merge(self, accumulator: ACC, accumulators: Iterable[ACC]) -> None:
        """Merges other accumulators into this one."""
        raise RuntimeError(f"{type(self).__name__} has no merge(), which session windows need. Write one")

    def get_result_type(self) -> DataType:
        """The result type, if the decorator does not declare it."""
        raise RuntimeError(f"{type(self).__name__} has no get_result_type(), and no result_type= was given")

    def get_accumulator_type(self) -> DataType:
        """The accumulator type, if the decorator does not declare it."""
        raise RuntimeError(f"{type(self).__name__} has no get_accumulator_type(), and no accumulator_type= was given")


class AggregateFunction(ImperativeAggregateFunction[Any, Any]):
    """An aggregate that returns one value."""

    @abc.abstractmethod
    def get_value(self, accumulator: Any) -> Any:
        """The aggregate's value for the accumulator."""


class TableAggregateFunction(ImperativeAggregateFunction[Any, Any]):
    """An aggregate that returns any number of rows."""

    @abc.abstractmethod
    def emit_value(self, accumulator: Any) -> Iterable[Any]:
        """Returns the result rows for the accumulator."""
