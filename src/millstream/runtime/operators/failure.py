"""When the user's code raises: say what, where and on which record, in the user's terms.

Every call into user code goes through a `UserCall`, which costs nothing per record: a batch is run in one
comprehension, and only when it raises is the record found (an iterator knows how many items it has left). The failure
travels to the driver as data, not as a Spark error: it is not retried in vain and arrives without JVM frames.
"""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

from millstream.errors import MillstreamError, ProgramError, TypeMismatchError
from millstream.graph.site import Site
from millstream.runtime.operators.returned_values import explanation_of, hint_of, is_engine_file, said

__all__ = ["FailureReport", "UserCall", "UserFailureError"]

_RECORD_CHARACTERS_MAX = 500


@dataclass(frozen=True)
class FailureReport:
    """Everything a user needs to mend a failing function. `text()` is what is printed."""

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
    output: tuple[tuple[str, ...], ...] = ()  # what user code printed and logged before it failed

    def text(self) -> str:
        """The user's traceback first, then the record, the operator and its line in the program."""
        lines = []
        if self.trace:
            lines += ["Traceback (most recent call last):", self.trace.rstrip("\n")]
        lines.append(f"{self.error}: {self.message}" if self.message else self.error)
        lines.append("")
        if self.record is not None:
            lines.append(f"  record    {self.record}")
        lines.append(f"  operator  '{self.operator}' ({self.role}), uid {self.uid}, subtask {self.subtask}")
        lines.append(f"  program   {self.site}")
        lines.append(f"  epoch     {self.epoch}; nothing of it was committed, the job stays at the epoch before")
        return "\n".join(lines)

    def encode(self) -> bytes:
        """As JSON, the form it travels in."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def decode(cls, data: bytes) -> FailureReport:
        """Read what `encode` wrote."""
        return cls(**json.loads(data))


class UserFailureError(Exception):
    """User code failed in a task. Internal: it becomes a `JobFailedError` on the driver."""

    def __init__(self, report: FailureReport) -> None:
        super().__init__(report.message)
        self.report = report


class UserCall:
    """Runs one operator's user code and turns what it raises into a report."""

    def __init__(self, operator: str, uid: str, site: str) -> None:
        self.operator, self.uid, self.site = operator, uid, site

    def at(self, site: Site | None) -> UserCall:
        """The same for code that another line of the program gave, such as the key selector of `key_by`."""
        return self if site is None else UserCall(self.operator, self.uid, str(site))

    def bind(self, function: Any, method: str, role: str) -> Callable[..., Any]:
        """What to call for `function`: its method (a function class) or itself (a plain callable)."""
        bound = getattr(function, method, None)
        if callable(bound):
            return bound  # type: ignore[no-any-return]
        if callable(function):
            return function  # type: ignore[no-any-return]
        raise ProgramError(f"the {role} of '{self.operator}' is neither callable nor has it {method}()", at=self.site)

    def each(self, function: Callable[[Any], Any], values: list[Any], role: str = "function") -> list[Any]:
        """`function` of every value."""
        remaining = iter(values)
        try:
            # Not `map`: a call from Python to Python needs no detour through C, and takes half the time.
            return [function(value) for value in remaining]
        except Exception as error:
            raise self.failed(error, role, self.current(values, remaining)) from error

    @staticmethod
    def current(values: list[Any], remaining: Iterator[Any]) -> tuple[Any, ...]:
        """The value an iterator over `values` handed out last, as a 1-tuple (or nothing, when it has not begun)."""
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

    def failed(self, error: BaseException, role: str, record: tuple[Any, ...] = ()) -> UserFailureError:
        """The report of `error`."""
        error = explanation_of(error, role)
        records = record or ((error.value,) if isinstance(error, TypeMismatchError) else ())
        is_ours = isinstance(error, MillstreamError)
        return UserFailureError(
            FailureReport(
                operator=self.operator,
                uid=self.uid,
                site=self.site,
                role=role,
                error=type(error).__name__,
                message=error.message if isinstance(error, MillstreamError) else f"{said(error)}{hint_of(error)}",
                # Our own errors already say what to do; a trace through our files would only hide it.
                trace="" if is_ours else _user_trace(error),
                record=_shown(records[0]) if records else None,
            )
        )


def _user_trace(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    outside = [frame for frame in frames if not is_engine_file(frame.filename)]
    return "".join(traceback.format_list(outside))


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception as error:
        text = f"<{type(value).__name__} whose repr() raised {type(error).__name__}>"
    return text if len(text) <= _RECORD_CHARACTERS_MAX else text[:_RECORD_CHARACTERS_MAX] + "…"
