"""The interface between a function and the task it runs in.

The task (`millstream.runtime`) implements the context; a program uses only this interface. Keyed state requires a keyed
stream; elsewhere access is rejected.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from millstream.metrics import MetricGroup

if TYPE_CHECKING:
    from millstream.datastream.state import (
        AggregatingState,
        AggregatingStateDescriptor,
        ListState,
        ListStateDescriptor,
        MapState,
        MapStateDescriptor,
        ReducingState,
        ReducingStateDescriptor,
        ValueState,
        ValueStateDescriptor,
    )

__all__ = ["KeyedStateStore", "RuntimeContext"]


class KeyedStateStore(ABC):
    """Access to the state of the current key, by descriptor."""

    @abstractmethod
    def get_state(self, state_descriptor: ValueStateDescriptor) -> ValueState[Any]:
        """A single value."""

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list."""

    @abstractmethod
    def get_map_state(self, state_descriptor: MapStateDescriptor) -> MapState[Any, Any]:
        """A map."""

    @abstractmethod
    def get_reducing_state(self, state_descriptor: ReducingStateDescriptor) -> ReducingState[Any]:
        """A value that combines the values added to it."""

    @abstractmethod
    def get_aggregating_state(self, state_descriptor: AggregatingStateDescriptor) -> AggregatingState[Any, Any]:
        """An accumulator that folds the values added to it."""


class RuntimeContext(KeyedStateStore):
    """The task as a function sees it: names, indexes, job parameters, metrics, and the state of the current key."""

    @abstractmethod
    def get_task_name(self) -> str:
        """The name of the operator."""

    @abstractmethod
    def get_number_of_parallel_subtasks(self) -> int:
        """The number of subtasks of the operator."""

    @abstractmethod
    def get_max_number_of_parallel_subtasks(self) -> int:
        """The number of key groups: the maximum parallelism of the job."""

    @abstractmethod
    def get_index_of_this_subtask(self) -> int:
        """This subtask's number, from 0."""

    @abstractmethod
    def get_attempt_number(self) -> int:
        """The number of earlier attempts of this subtask, from 0."""

    @abstractmethod
    def get_task_name_with_subtasks(self) -> str:
        """The name with this subtask's number, as in `Map (3/7)`."""

    @abstractmethod
    def get_job_parameter(self, key: str, default_value: str) -> str:
        """The global job parameter `key`, or `default_value`."""

    @abstractmethod
    def get_metrics_group(self) -> MetricGroup:
        """The group for this function's counters, gauges, meters and distributions."""
