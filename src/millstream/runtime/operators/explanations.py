"""Explains errors of user code in the user's terms.

If a function returns a number instead of records, or a trigger lacks its `return`, the engine fails later, in its own
code, with an error that names neither. Results are not checked in advance, since that would cost time for every record.
But an error whose traceback has no user line must be about a value that user code returned, and `explanation_of`
replaces it. An error of a user line retains Python's message, and `message_of` adds a hint: the effect of exit() in a
task, why a value is None, which methods an engine object has.
"""

from __future__ import annotations

import linecache
import re
import traceback

from millstream.errors import ProgramError, TypeMismatchError
from millstream.graph.site import PACKAGE_FOLDER

__all__ = ["causes_of", "explanation_of", "is_engine_file", "message_of", "user_trace"]

_NOT_ITERABLE = re.compile(r"'(.+)' object is not (?:iterable|an iterator)")
_RECORDS = "records, one by one: yield them, or return a list of them (None when there are none)"
_EXPECTED = {"window assigner": "a collection of windows"}


def is_engine_file(filename: str) -> bool:
    """Whether a traceback line is the engine's own."""
    return filename.startswith(PACKAGE_FOLDER)


def explanation_of(error: BaseException, role: str) -> BaseException:
    """`error`, or an explanation if it is about a returned value. `role`: the function's role in its operator."""
    if not all(is_engine_file(frame.filename) for frame in traceback.extract_tb(error.__traceback__)):
        return error
    if isinstance(error, AttributeError) and error.name in ("is_fire", "is_purge"):
        return ProgramError(
            f"the trigger returned {error.obj!r} ({type(error.obj).__name__}), expected a TriggerResult: CONTINUE, "
            "FIRE, PURGE or FIRE_AND_PURGE. Does every path through it end with a return?"
        )
    if isinstance(error, AttributeError) and role == "window assigner":
        return ProgramError(
            f"the {role} returned a window {error.obj!r} ({type(error.obj).__name__}), which has no {error.name!r}: "
            "expected windows that its get_window_serializer() can write"
        )
    match = _NOT_ITERABLE.fullmatch(str(error)) if isinstance(error, TypeError) else None
    if match is not None:
        subject = role if role in _EXPECTED or role.endswith("function") else f"{role} function"
        return ProgramError(f"the {subject} returned {_a(match.group(1))}, expected {_EXPECTED.get(role, _RECORDS)}")
    return error


def message_of(error: BaseException) -> str:
    """The message of an error; for an exit, its effect on a task.

    >>> message_of(SystemExit(3))
    'the function called sys.exit(3). A task ends when its input does: raise an error to fail the job'
    """
    if isinstance(error, SystemExit):
        code = "" if error.code is None else repr(error.code)
        return f"the function called sys.exit({code}). A task ends when its input does: raise an error to fail the job"
    if isinstance(error, KeyboardInterrupt):
        return "the function raised it. A task ends when its input does: raise another error to fail the job"
    if isinstance(error, AttributeError) and type(error.obj).__module__.startswith("millstream.runtime."):
        return _missing(error.obj, error.name)
    if isinstance(error, BaseExceptionGroup):
        return f"{error}: {'; '.join(_in_one_line(part) for part in error.exceptions)}"
    return f"{error}{_hint_of(error)}"


def user_trace(error: BaseException) -> str:
    """The user frames of the error's traceback."""
    frames = traceback.extract_tb(error.__traceback__)
    return "".join(traceback.format_list([frame for frame in frames if not is_engine_file(frame.filename)]))


def causes_of(error: BaseException) -> str:
    """The errors that led to this one (`raise … from …`, or raised while another was handled), formatted as by Python,
    or an empty string. Errors raised and handled within the engine are omitted."""
    parts: list[str] = []
    seen = {id(error)}
    while True:
        is_direct = error.__cause__ is not None
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if cause is None or id(cause) in seen:
            return "\n".join(parts)
        seen.add(id(cause))
        trace = user_trace(cause)
        if trace or cause.__traceback__ is None:
            how = "was the direct cause of this one:" if is_direct else "was being handled when this one was raised:"
            head = "Traceback (most recent call last):\n" if trace else ""
            parts.insert(0, f"{head}{trace}{_in_one_line(cause)}\n\nThe error above {how}\n")
        error = cause


def _in_one_line(error: BaseException) -> str:
    """
    >>> _in_one_line(KeyError("ad")), _in_one_line(KeyError())
    ("KeyError: 'ad'", 'KeyError')
    """
    message = message_of(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


# Engine objects in user code: PyFlink's name of each, and the methods a program may call.
_PUBLIC = {
    "ValueHandle": "ValueState: value update clear",
    "ListHandle": "ListState: get add add_all update clear",
    "MapHandle": "MapState: get put put_all remove contains keys values items is_empty clear",
    "ReducingHandle": "ReducingState: get add clear",
    "AggregatingHandle": "AggregatingState: get add clear",
    "BroadcastMap": "BroadcastState: get put put_all remove contains keys values items is_empty clear",
    "BroadcastView": "ReadOnlyBroadcastState: get contains keys values items is_empty",
}
# Flink names that newcomers try, and the replacement.
_WRITTEN_INSTEAD = {
    "output": "Write `yield tag, value` for a side output",
    "collect": "Write `yield value`",
    "get_state": "Get states in open(), as by runtime_context.get_state(descriptor)",
    "get_runtime_context": "Use the runtime_context argument of open(runtime_context)",
}


def _missing(owner: object, name: str | None) -> str:
    """The message for a missing attribute of an engine object: the attributes it has, or a replacement."""
    kind = type(owner).__name__
    names = [known for known in dir(type(owner)) if not known.startswith("_") and callable(getattr(owner, known))]
    alias = "runtime_context" if kind == "TaskContext" else "ctx" if kind.endswith("Context") else kind
    shown, _, public = _PUBLIC.get(kind, f"{alias}: {' '.join(names)}").partition(": ")
    instead = _WRITTEN_INSTEAD.get(str(name), f"It has {', '.join(f'{known}()' for known in public.split())}")
    return f"{shown} has no {name!r}. {instead}"


# Calls that return None for a reason newcomers often miss, and the reason.
_NONE_HINTS = (
    (
        re.compile(r"\.timestamp\(\)"),
        "timestamp() is None: no operator upstream assigns timestamps. Call "
        "assign_timestamps_and_watermarks() with a strategy that has with_timestamp_assigner(...)",
    ),
    (re.compile(r"\.value\(\)"), "value() of a state is None until the key's first update()"),
)


def _hint_of(error: BaseException) -> str:
    """A hint for an error about None, if the user's line shows its origin, and for an attribute that a function object
    does not have yet; else an empty string."""
    if isinstance(error, AttributeError) and _is_function(type(error.obj)):
        return ". Set it in open(self, runtime_context), or in __init__"
    if isinstance(error, TypeMismatchError):  # its message includes the next step
        return ""
    if not isinstance(error, TypeError | AttributeError) or "NoneType" not in str(error):
        return ""
    lines = _lines_up_to(error)
    return next((f". Perhaps {hint}" for line in lines for call, hint in _NONE_HINTS if call.search(line)), "")


def _is_function(kind: type) -> bool:
    """Whether a user class derives from one of the function classes."""
    return any(base.__module__.startswith("millstream.datastream.functions.") for base in kind.__mro__)


def _lines_up_to(error: BaseException) -> list[str]:
    """The lines of the user's function, backwards from the line that raised."""
    steps = [step for step in traceback.walk_tb(error.__traceback__) if not is_engine_file(step[0].f_code.co_filename)]
    if not steps:
        return []
    code, line = steps[-1][0].f_code, steps[-1][1]
    return [linecache.getline(code.co_filename, number) for number in range(line, code.co_firstlineno - 1, -1)]


def _a(type_name: str) -> str:
    """A type name with its article.

    >>> _a("int"), _a("NoneType")
    ('an int', 'None')
    """
    if type_name == "NoneType":
        return "None"
    return f"{'an' if type_name[0].lower() in 'aeiou' else 'a'} {type_name}"
