"""Calls user code: binds functions, provides their context, and reports their failures.

Every call into user code goes through a `UserCall`, which costs nothing per record: a batch runs in one comprehension,
and the failing record is determined only after an error (an iterator knows how many items remain). A failure is
reported in the user's terms (error, location and record) and is sent to the driver as data, not as a Spark error, so it
is not retried in vain and has no JVM frames.

`explanations` rephrases Python's errors in the user's terms.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from millstream.errors import MillstreamError, ProgramError, TypeMismatchError
from millstream.graph.site import Site
from millstream.metrics import MetricGroup
from millstream.records.watermarks import MIN_WATERMARK
from millstream.runtime.operators.explanations import (
    causes_of,
    explanation_of,
    is_engine_file,
    message_of,
    user_trace,
)

__all__ = [
    "Described",
    "ElementContext",
    "FailureReport",
    "TaskContext",
    "TaskTimerService",
    "UserCall",
    "UserFailureError",
]

_RECORD_CHARACTERS_MAX = 500


@dataclass(frozen=True)
class FailureReport:
    """Everything a user needs to fix a failing function. `text()` is the printed report. Many fields: each is a part of
    it or identifies the location."""

    operator: str
    uid: str
    site: str
    role: str
    error: str
    message: str
    trace: str
    record: str | None = None
    subtask: int = -1
    epoch: int = -1
    output: tuple[tuple[str, ...], ...] = ()  # lines that user code printed and logged before it failed
    causes: str = ""  # the errors that led to this one, formatted as by Python
    place: str = ""  # the cluster process in which it occurred, if known

    def text(self) -> str:
        """The user's traceback first, then the record, the operator and its line in the program."""
        lines = [self.causes] if self.causes else []
        if self.trace:
            lines += ["Traceback (most recent call last):", self.trace.rstrip("\n")]
        lines.append(f"{self.error}: {self.message}" if self.message else self.error)
        lines.append("")
        if self.record is not None:
            lines.append(f"  record    {self.record}")
        lines.append(f"  operator  '{self.operator}' ({self.role}), uid {self.uid}, subtask {self.subtask}")
        lines.append(f"  program   {self.site}")
        epoch = self.epoch if self.epoch >= 0 else "the running one"
        lines.append(f"  epoch     {epoch}; nothing of it was committed, the job stays at the epoch before")
        return "\n".join(lines)

    def encode(self) -> bytes:
        """Encodes it as JSON."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> FailureReport:
        """Decodes the result of `encode`."""
        return cls(**json.loads(data))


class UserFailureError(Exception):
    """User code failed in a task. Internal: it becomes a `JobFailedError` on the driver."""

    def __init__(self, report: FailureReport) -> None:
        super().__init__(report.message)
        self.report = report


class UserCall:
    """Runs one operator's user code and converts errors to reports."""

    def __init__(self, operator: str, uid: str, site: str) -> None:
        self.operator, self.uid, self.site = operator, uid, site

    def at(self, site: Site | None) -> UserCall:
        """A copy for code passed in another line of the program, such as the key selector of `key_by`."""
        return self if site is None else UserCall(self.operator, self.uid, str(site))

    def bind(self, function: Any, method: str, role: str) -> Callable[..., Any]:
        """The callable of `function`: its method (a function class) or itself (a plain callable)."""
        bound = getattr(function, method, None)
        if callable(bound):
            return bound  # type: ignore[no-any-return]
        if callable(function):
            return function  # type: ignore[no-any-return]
        raise ProgramError(f"the {role} of '{self.operator}' is neither callable nor has a {method}()", at=self.site)

    def each(self, function: Callable[[Any], Any], values: list[Any], role: str = "function") -> list[Any]:
        """Calls `function` for every value."""
        remaining = iter(values)
        try:
            # Not `map`: a direct call from Python to Python avoids C code and takes half the time.
            return [function(value) for value in remaining]
        except Exception as error:
            raise self.failed(error, role, self.current(values, remaining)) from error

    @staticmethod
    def current(values: list[Any], remaining: Iterator[Any]) -> tuple[Any, ...]:
        """The last value an iterator over `values` returned, as a 1-tuple (or an empty one before the first)."""
        count = len(values) - remaining.__length_hint__()  # type: ignore[attr-defined]
        return (values[count - 1],) if count else ()

    @contextmanager
    def running(self, role: str) -> Iterator[None]:
        """Around a call that is not about one record (`open`, `close`, a columnar function)."""
        try:
            yield
        except UserFailureError:
            raise
        except Exception as error:
            raise self.failed(error, role) from error

    def failed(self, error: BaseException, role: str, record: tuple[Any, ...] = (), call: str = "") -> UserFailureError:
        """The report of `error`. `call`: the call that raised it, if the operator's name does not imply it."""
        raised, error = error, explanation_of(error, role)
        misfit = (error.value,) if isinstance(error, TypeMismatchError) else ()
        records = record or misfit or _record_of(raised)
        # The engine's own errors state the next step; a trace through its files would only hide it.
        trace = "" if isinstance(error, MillstreamError) else user_trace(error)
        return UserFailureError(
            FailureReport(
                operator=self.operator,
                uid=self.uid,
                site=self.site,
                role=role,
                error=type(error).__name__,
                message=_message(error) + (f", raised by {call}" if call else ""),
                trace=trace,
                causes=causes_of(error) if trace else "",
                record=_shown(records[0]) if records else None,
            )
        )


def _message(error: BaseException) -> str:
    return error.message if isinstance(error, MillstreamError) else message_of(error)


class Described(str):
    """A description that replaces the record in a report, if a function was called for a timer or a window."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def _record_of(error: BaseException) -> tuple[Any, ...]:
    """The current record of the engine's innermost loop over records, identified by the names of its locals."""
    for frame in reversed([frame for frame, _ in traceback.walk_tb(error.__traceback__)]):
        names = frame.f_locals if is_engine_file(frame.f_code.co_filename) else {}
        values, remaining = names.get("values"), names.get("remaining")
        if isinstance(values, list) and isinstance(remaining, Iterator) and hasattr(remaining, "__length_hint__"):
            return UserCall.current(values, remaining)
    return ()


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr() raised {type(error).__name__}>"
    return text if len(text) <= _RECORD_CHARACTERS_MAX else text[:_RECORD_CHARACTERS_MAX] + "…"


@dataclass(frozen=True)
class TaskContext:
    """The runtime context passed to `open()`: PyFlink's `RuntimeContext` for one subtask of one operator."""

    task_name: str
    parallelism: int
    max_parallelism: int
    subtask: int
    attempt: int
    parameters: Mapping[str, str]
    metrics: MetricGroup
    states: Any = None  # the keyed backend; None if the stream has no key

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

    def get_metric_group(self) -> MetricGroup:
        """The same, under the name used by table functions."""
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
    """Time as a function sees it: processing time and the watermark are constant within an epoch."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.watermark = MIN_WATERMARK

    def current_processing_time(self) -> int:
        return self.now_ms

    def current_watermark(self) -> int:
        return self.watermark

    def _reject(self, timestamp: int) -> None:
        raise ProgramError("timers can only be set on a keyed stream: call key_by(...) before process(...)")

    register_processing_time_timer = _reject
    register_event_time_timer = _reject
    delete_processing_time_timer = _reject
    delete_event_time_timer = _reject


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
