"""Treats functions that end their process (`sys.exit`), or raise KeyboardInterrupt, asyncio's CancelledError or another
BaseException, as failed functions.

No `UserCall` catches these, and they would end the worker, or a test's whole process. They are caught around a task,
where the traceback still identifies the operator: the innermost engine frame whose `self` has a `UserCall`. A real
Ctrl-C is not affected: Python raises it only in the main thread, and jobs in this process run on threads of their own.
A Spark worker runs tasks in its main thread; there the interrupted instruction decides: a `raise` is the function's
own.
"""

from __future__ import annotations

import dis
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType

from millstream.runtime.operators.explanations import is_engine_file
from millstream.runtime.operators.user_code import UserCall

__all__ = ["exits_as_failures"]


@contextmanager
def exits_as_failures() -> Iterator[None]:
    """Around user code: converts an error that would end the process to a failure of the current operator."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        frames = [] if _is_external(error) else [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        for frame in reversed(frames):
            call = _call_of(frame)
            if call is not None:
                raise call.failed(error, _role_of(frame)) from error
        raise


def _is_external(error: BaseException) -> bool:
    """Whether the error was not raised by a user function: Ctrl-C, a cancelled task, a crash simulated by a connector's
    test."""
    if type(error).__module__.startswith("millstream."):
        return True
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is not threading.main_thread():
        return False
    return isinstance(error, KeyboardInterrupt | GeneratorExit) and not _is_raised(error.__traceback__)


def _call_of(frame: FrameType) -> UserCall | None:
    """The `UserCall` of the operator whose method runs in an engine frame; None for any other frame."""
    owner = frame.f_locals.get("self") if is_engine_file(frame.f_code.co_filename) else None
    candidates = (owner, getattr(owner, "call", None), getattr(owner, "_call", None))
    return next((call for call in candidates if isinstance(call, UserCall)), None)


def _role_of(frame: FrameType) -> str:
    """The role of the failing code in its operator: as named by the frame, or else by the operator."""
    owner, names = frame.f_locals.get("self"), frame.f_locals
    roles = (names.get("role"), names.get("method"), getattr(owner, "method", ""), getattr(owner, "role", ""))
    return next((role for role in roles if isinstance(role, str) and role), "function")


def _is_raised(trace: TracebackType | None) -> bool:
    """Whether a `raise` statement raised the error: a signal arrives between any two instructions."""
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"
