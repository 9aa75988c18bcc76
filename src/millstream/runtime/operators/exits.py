"""A function that ends its process (`sys.exit`), or raises KeyboardInterrupt, asyncio's CancelledError or what else is
no `Exception`, fails like any other function.

No `UserCall` catches these, and they would take the worker, or a test's whole process, along.
It is caught around a task, where the traceback still knows which operator was at work: the innermost frame of ours
whose `self` has a `UserCall`. A real Ctrl-C is left alone: Python raises it in the main thread only, and jobs in this
process run on threads of their own. A worker of Spark runs tasks in its main thread, and there it is told by what was
interrupted: a `raise` is the function's own.
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
    """Around user code: what would end the process becomes the failure of the operator that was at work."""
    try:
        yield
    except Exception:
        raise
    except BaseException as error:
        frames = [] if _is_no_functions(error) else [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
        for frame in reversed(frames):
            call = _call_of(frame)
            if call is not None:
                raise call.failed(error, _role_of(frame)) from error
        raise


def _is_no_functions(error: BaseException) -> bool:
    """Whether no function raised it: Ctrl-C, a task dropped before its end, a crash that a connector's test plays."""
    if type(error).__module__.startswith("millstream."):
        return True
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is not threading.main_thread():
        return False
    return isinstance(error, KeyboardInterrupt | GeneratorExit) and not _is_raised(error.__traceback__)


def _call_of(frame: FrameType) -> UserCall | None:
    """The `UserCall` of the operator whose method runs in a frame of ours; None in any other frame."""
    owner = frame.f_locals.get("self") if is_engine_file(frame.f_code.co_filename) else None
    candidates = (owner, getattr(owner, "call", None), getattr(owner, "_call", None))
    return next((call for call in candidates if isinstance(call, UserCall)), None)


def _role_of(frame: FrameType) -> str:
    """What the code at work is to its operator: as the frame calls it, or else as the operator does."""
    owner, names = frame.f_locals.get("self"), frame.f_locals
    roles = (names.get("role"), names.get("method"), getattr(owner, "method", ""), getattr(owner, "role", ""))
    return next((role for role in roles if isinstance(role, str) and role), "function")


def _is_raised(trace: TracebackType | None) -> bool:
    """Whether a statement raised the error: a signal comes between any two steps of a function."""
    if trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    return dis.opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]] == "RAISE_VARARGS"
