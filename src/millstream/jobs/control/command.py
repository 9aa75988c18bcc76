"""A command that other processes may send to a job, and the arguments that it takes.

Arguments are read from a file that anybody may have written. They are checked against the command's parameters before
it is called: a missing or unknown argument, or one of the wrong type, is rejected with an explanation.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from millstream.errors import JobFailedError

__all__ = ["Command", "Parameter"]

_KINDS = {int: "a whole number", bool: "true or false", str: "a string"}


@dataclass(frozen=True)
class Parameter:
    """An argument that a command takes; one that is not `required` may be omitted or null."""

    type: type[int] | type[bool] | type[str]
    required: bool = False


@dataclass(frozen=True)
class Command:
    """A command and the arguments that it takes. `is_question`: it is read-only, so a request made before the job ran
    is answered as well; any other command may be obsolete.

    >>> Command(lambda n: f"at {n}", {"n": Parameter(int, required=True)}).obey({"n": 2.5})
    Traceback (most recent call last):
    millstream.errors.JobFailedError: found 2.5 for 'n', expected a whole number
    """

    call: Callable[..., str]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    is_question: bool = False

    def obey(self, arguments: Mapping[str, Any]) -> str:
        """Execute it; raises JobFailedError if the arguments do not match."""
        unknown = sorted(arguments.keys() - self.parameters.keys())
        if unknown:
            takes = ", ".join(sorted(self.parameters)) or "none"
            raise JobFailedError(f"found the argument {unknown[0]!r}, which is unknown; it takes {takes}")
        values = {name: value for name, value in arguments.items() if value is not None}
        for name, parameter in self.parameters.items():
            if name not in values and parameter.required:
                raise JobFailedError(f"found no {name!r}, expected {_KINDS[parameter.type]}")
            if name in values and type(values[name]) is not parameter.type:
                raise JobFailedError(f"found {values[name]!r} for {name!r}, expected {_KINDS[parameter.type]}")
        return self.call(**values)
