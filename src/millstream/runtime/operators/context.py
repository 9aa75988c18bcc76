"""What user code may ask of the task it runs in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from millstream.errors import ProgramError
from millstream.metrics import MetricGroup
from millstream.records.watermarks import MIN_WATERMARK

__all__ = ["ElementContext", "TaskContext", "TaskTimerService"]


@dataclass(frozen=True)
class TaskContext:
    """The runtime context handed to `open()`: PyFlink's `RuntimeContext` for one subtask of one operator."""

    task_name: str
    parallelism: int
    max_parallelism: int
    subtask: int
    attempt: int
    parameters: Mapping[str, str]
    metrics: MetricGroup
    states: Any = None  # the keyed backend; None where the stream has no key

    def get_task_name(self) -> str:
        return self.task_name

    def get_number_of_parallel_subtasks(self) -> int:
        return self.parallelism

    def get_max_number_of_parallel_subtasks(self) -> int:
        return self.max_parallelism

    def get_index_of_this_subtask(self) -> int:
        return self.subtask

    def get_attempt_number(self) -> int:
        return self.attempt

    def get_task_name_with_subtasks(self) -> str:
        return f"{self.task_name} ({self.subtask + 1}/{self.parallelism})"

    def get_job_parameter(self, key: str, default_value: str) -> str:
        return self.parameters.get(key, default_value)

    def get_metrics_group(self) -> MetricGroup:
        return self.metrics

    def _keyed(self, name: str) -> Any:
        if self.states is None:
            raise ProgramError(
                f"RuntimeContext.{name}: state belongs to a key. Call key_by(...) before '{self.task_name}'"
            )
        return self.states

    def get_state(self, state_descriptor: Any) -> Any:
        return self._keyed("get_state").get_state(state_descriptor)

    def get_list_state(self, state_descriptor: Any) -> Any:
        return self._keyed("get_list_state").get_list_state(state_descriptor)

    def get_map_state(self, state_descriptor: Any) -> Any:
        return self._keyed("get_map_state").get_map_state(state_descriptor)

    def get_reducing_state(self, state_descriptor: Any) -> Any:
        return self._keyed("get_reducing_state").get_reducing_state(state_descriptor)

    def get_aggregating_state(self, state_descriptor: Any) -> Any:
        return self._keyed("get_aggregating_state").get_aggregating_state(state_descriptor)


class TaskTimerService:
    """Time as a function sees it: processing time and the watermark stand still within an epoch."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.watermark = MIN_WATERMARK

    def current_processing_time(self) -> int:
        return self.now_ms

    def current_watermark(self) -> int:
        return self.watermark

    def _refuse(self, timestamp: int) -> None:
        raise ProgramError("timers can only be set on a keyed stream: call key_by(...) before process(...)")

    register_processing_time_timer = _refuse
    register_event_time_timer = _refuse
    delete_processing_time_timer = _refuse
    delete_event_time_timer = _refuse


class ElementContext:
    """The `ctx` of `ProcessFunction.process_element`."""

    __slots__ = ("_service", "_timestamp")

    def __init__(self, service: TaskTimerService) -> None:
        self._service = service
        self._timestamp: int | None = None

    def timer_service(self) -> TaskTimerService:
        return self._service

    def timestamp(self) -> int | None:
        return self._timestamp
