"""Every error that Millstream raises for users, as one small tree.

    MillstreamError
    ├── ProgramError            the program is wrong; found before anything ran (a ValueError too)
    │   ├── ConfigurationError  a setting is unknown, malformed or out of range
    │   ├── MissingNameError    a stream, or another of our objects, has no such method; names those that have
    │   ├── SqlError            a statement cannot be parsed or is invalid; marks the position
    │   ├── StateSchemaError    saved state cannot be read with its current declaration
    │   └── TypeMismatchError   a value or an argument is not of the expected type (a TypeError too)
    ├── PickledValueError       a stored value can only be read by running code in it; gives advice
    ├── NotYetError             PyFlink has it, Millstream does not yet
    ├── NotAvailableError       PyFlink has it, Millstream will not (it needs the JVM); names an alternative
    ├── PlatformError           the machine is not ready (Java, Spark, Python); has the command that helps
    ├── StoreError              the job's store cannot be read or written, or belongs to another job
    │   ├── StoreAwayError      the store does not answer at present; a retry may succeed
    │   │   ├── StoreFullError  its disk is full; a retry succeeds once space is free
    │   │   └── UnsentFileError another machine has not uploaded a file yet, or is lost
    │   ├── StoreDamagedError   a file in the store is missing, truncated or altered
    │   └── FencedError         another driver runs this job, or took it over; this one must stop
    ├── ConnectorError          an external system refuses, or has lost data that the job needs
    │   └── ConnectorAwayError  the external system does not answer at present; a retry may succeed
    └── JobFailedError          a running job failed; carries the failure report

A message names the subject, what was found, what was expected, and the next step. If a line of the user's program
caused the error, `at` holds it and the message ends with `(file.py:41)`.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "LATER",
    "ConfigurationError",
    "ConnectorAwayError",
    "ConnectorError",
    "FencedError",
    "JobFailedError",
    "MillstreamError",
    "MissingNameError",
    "NotAvailableError",
    "NotYetError",
    "PickledValueError",
    "PlatformError",
    "ProgramError",
    "SqlError",
    "StateSchemaError",
    "StoreAwayError",
    "StoreDamagedError",
    "StoreError",
    "StoreFullError",
    "TypeMismatchError",
    "UnsentFileError",
    "did_you_mean",
    "nearest",
]


class MillstreamError(Exception):
    """The root of the tree; catching it catches every error that Millstream raises deliberately.

    >>> str(MillstreamError("no sink", at="job.py:3"))
    'no sink (job.py:3)'
    """

    def __init__(self, message: str, *, at: str | None = None) -> None:
        super().__init__(f"{message} ({at})" if at else message)
        self.message = message
        self.at = at


class ProgramError(MillstreamError, ValueError):
    """The program cannot run as written; nothing has been started. It is a ValueError too, as in PyFlink."""


class ConfigurationError(ProgramError):
    """A configuration key is unknown or its value is out of range."""


class MissingNameError(ProgramError, AttributeError):
    """One of our objects has no attribute of that name. It is an AttributeError too, so that `hasattr` works."""


class SqlError(ProgramError):
    """A SQL statement cannot be parsed, or is invalid. `line` and `column` count from 1 (None: no text)."""

    def __init__(
        self, message: str, *, line: int | None = None, column: int | None = None, at: str | None = None
    ) -> None:
        super().__init__(message, at=at)
        self.line = line
        self.column = column


class TypeMismatchError(ProgramError, TypeError):
    """A value does not match its declared type, or an argument has a type that the call does not accept.

    It is a TypeError too, as in PyFlink.

    `value` is the offending value, `path` the field inside it (empty for the value itself).
    """

    def __init__(self, message: str, *, value: object = None, path: str = "", at: str | None = None) -> None:
        super().__init__(message, at=at)
        self.value = value
        self.path = path


class StateSchemaError(ProgramError):
    """Saved state cannot be read as the program now declares it. Nothing was changed."""


class PickledValueError(MillstreamError):
    """A stored value is a pickle, and the reader is not the job: stored pickles are unpickled only in the job's
    tasks."""


LATER = "a later version"
"""The version named in an error if none is known."""


class NotYetError(MillstreamError, NotImplementedError):
    """PyFlink offers this and Millstream will; the message states what is planned and what works today.

    >>> raise NotYetError.of("KeyedStream.sum", "keyed state")
    Traceback (most recent call last):
    millstream.errors.NotYetError: KeyedStream.sum is not built yet: it comes with keyed state.
    """

    @classmethod
    def of(cls, name: str, comes_with: str, instead: str = "") -> NotYetError:
        """The standard error for a PyFlink name that is not implemented yet."""
        tail = f" Until then: {instead}." if instead else ""
        return cls(f"{name} is not built yet: it comes with {comes_with}.{tail}")


class NotAvailableError(MillstreamError, NotImplementedError):
    """PyFlink's version wraps a JVM object, which Millstream lacks. The message names an alternative."""


class PlatformError(MillstreamError):
    """Java, Spark or Python on this machine is unsuitable; the message contains the command that helps."""


class StoreError(MillstreamError):
    """The job's store cannot be read or written, or belongs to another job."""


class StoreAwayError(StoreError):
    """The store does not answer: a time-out, a lost connection, a full disk. The same call may succeed later."""


class StoreFullError(StoreAwayError):
    """The disk of the store is full, or its owner's quota is used up. The same call succeeds once space is free."""


class UnsentFileError(StoreAwayError):
    """A file of an uncommitted epoch is not in the store yet: the machine that wrote it must upload it."""


class StoreDamagedError(StoreError):
    """A file in the store is missing, truncated or altered. Nothing was overwritten."""


class FencedError(StoreError):
    """Another driver runs the job, has taken it over, or committed this epoch first: this driver stops."""


class ConnectorError(MillstreamError):
    """The external system of a source or sink refuses, or has lost data that the job needs. A retry does not help; the
    message states what does."""


class ConnectorAwayError(ConnectorError):
    """The external system of a source or sink does not answer at present. The same call may succeed later."""


class JobFailedError(MillstreamError):
    """A job failed while running. `report` is the user's traceback, record and operator, as text."""

    def __init__(self, message: str, *, report: str = "", at: str | None = None) -> None:
        super().__init__(message, at=at)
        self.report = report


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The known name nearest to the given one, if any. `likeness`: minimum similarity, 1 for equal strings, 0 for any.

    >>> nearest("cuont", ["count", "total"]), nearest("cuont", ["total"])
    ('count', None)
    """
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=likeness)), None)


def did_you_mean(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """A suggestion to append to "there is no such name", with a leading space; empty if no name is near.

    >>> did_you_mean("cuont", ["count", "total"])
    " Did you mean 'count'?"
    """
    near = nearest(name, known, likeness)
    return "" if near is None else f" Did you mean {near!r}?"
