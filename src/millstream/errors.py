"""Every error a user of Millstream can meet, as one small tree.

    MillstreamError
    ├── ProgramError            the program is wrong; found before anything ran (a ValueError too)
    │   ├── ConfigurationError  a setting is unknown, malformed or out of range
    │   ├── MissingNameError    a stream, or another object of ours, has no such method; says who has
    │   ├── SqlError            a statement cannot be read, or says what cannot be; draws the place
    │   ├── StateSchemaError    state was saved as something that cannot be read as it is declared now
    │   └── TypeMismatchError   a value or an argument is not of the expected type (a TypeError too)
    ├── PickledValueError       a stored value can only be had by running code that is in it; says what to do
    ├── NotYetError             PyFlink has it, Millstream does not have it yet
    ├── NotAvailableError       PyFlink has it, Millstream will not (no JVM object behind it); says what to use
    ├── PlatformError           the machine is not ready (Java, Spark, Python); says the command that helps
    ├── StoreError              the job's store cannot be read or written, or belongs to another job
    │   ├── StoreAwayError      the store does not answer just now; the same call may succeed later
    │   │   ├── StoreFullError  its disk is full; the same call succeeds when there is room
    │   │   └── UnsentFileError another machine has not sent a file yet, or is gone with it
    │   ├── StoreDamagedError   a file in the store is missing, cut or changed
    │   └── FencedError         another driver runs this job, or took it over; this one must stop
    ├── ConnectorError          a system that a source or sink speaks to refuses, or lost what the job needs
    │   └── ConnectorAwayError  it does not answer just now; the same call may succeed later
    └── JobFailedError          a running job failed; carries the failure report

A message names the subject, what was found, what was expected, and the next step. Where an error comes
from a line of the user's program, `at` holds it and the message ends with `(file.py:41)`.
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
    """The root of the tree; catching it catches everything Millstream raises on purpose.

    >>> str(MillstreamError("no sink", at="job.py:3"))
    'no sink (job.py:3)'
    """

    def __init__(self, message: str, *, at: str | None = None) -> None:
        super().__init__(f"{message} ({at})" if at else message)
        self.message = message
        self.at = at


class ProgramError(MillstreamError, ValueError):
    """The program cannot run as written; nothing has been started. PyFlink raises ValueError, so this is one too."""


class ConfigurationError(ProgramError):
    """A configuration key is unknown or its value is out of range."""


class MissingNameError(ProgramError, AttributeError):
    """An object of ours has no attribute of that name. An AttributeError too: so that `hasattr` works."""


class SqlError(ProgramError):
    """A statement of SQL cannot be read, or says what cannot be. `line` and `column` count from 1 (None: no text)."""

    def __init__(
        self, message: str, *, line: int | None = None, column: int | None = None, at: str | None = None
    ) -> None:
        super().__init__(message, at=at)
        self.line = line
        self.column = column


class TypeMismatchError(ProgramError, TypeError):
    """A value does not fit the type that was declared for it, or an argument is not of a type that the call takes.

    PyFlink raises TypeError in both cases, so this is one too.

    `value` is the offending value, `path` the field inside it (empty for the value itself).
    """

    def __init__(self, message: str, *, value: object = None, path: str = "", at: str | None = None) -> None:
        super().__init__(message, at=at)
        self.value = value
        self.path = path


class StateSchemaError(ProgramError):
    """State was saved as something that cannot be read as the program declares it now. Nothing was changed."""


class PickledValueError(MillstreamError):
    """A stored value is a pickle, and the reader is not the job: stored pickles are opened in the job's tasks only."""


LATER = "a later version"
"""The version named in an error if none is known."""


class NotYetError(MillstreamError, NotImplementedError):
    """PyFlink offers this and Millstream will; the message says what is planned and what works today.

    >>> raise NotYetError.of("KeyedStream.sum", "keyed state")
    Traceback (most recent call last):
    millstream.errors.NotYetError: KeyedStream.sum is not built yet: it comes with keyed state.
    """

    @classmethod
    def of(cls, name: str, comes_with: str, instead: str = "") -> NotYetError:
        """The standard sentence for a name that exists in PyFlink and is not built here yet."""
        tail = f" Until then: {instead}." if instead else ""
        return cls(f"{name} is not built yet: it comes with {comes_with}.{tail}")


class NotAvailableError(MillstreamError, NotImplementedError):
    """PyFlink offers this around a JVM object; Millstream has none. The message says what to use instead."""


class PlatformError(MillstreamError):
    """Java, Spark or Python on this machine are not what is needed; the message holds the command that helps."""


class StoreError(MillstreamError):
    """The job's store cannot be read or written, or belongs to another job."""


class StoreAwayError(StoreError):
    """The store does not answer: a time-out, a lost connection, a full disk. The same call may succeed later."""


class StoreFullError(StoreAwayError):
    """The disk of the store is full, or its owner's quota is used up. The same call succeeds when there is room."""


class UnsentFileError(StoreAwayError):
    """A file of an epoch that is not committed yet is not in the store: the machine that wrote it is to send it."""


class StoreDamagedError(StoreError):
    """A file in the store is missing, cut short or altered. Nothing was overwritten."""


class FencedError(StoreError):
    """Another driver runs the job, or took it over, or committed this epoch first: this driver stops."""


class ConnectorError(MillstreamError):
    """A system that a source or sink speaks to refuses, or no longer holds what the job needs. Trying again does not
    help; the message says what does."""


class ConnectorAwayError(ConnectorError):
    """A system that a source or sink speaks to does not answer just now. The same call may succeed later."""


class JobFailedError(MillstreamError):
    """A job failed while running. `report` is the user's traceback, record and operator, as text."""

    def __init__(self, message: str, *, report: str = "", at: str | None = None) -> None:
        super().__init__(message, at=at)
        self.report = report


def nearest(name: str, known: Iterable[str], likeness: float = 0.6) -> str | None:
    """The one of the known names that was perhaps meant. `likeness`: 1 is the same text, 0 any.

    >>> nearest("cuont", ["count", "total"]), nearest("cuont", ["total"])
    ('count', None)
    """
    return next(iter(difflib.get_close_matches(name, list(known), n=1, cutoff=likeness)), None)


def did_you_mean(name: str, known: Iterable[str], likeness: float = 0.6) -> str:
    """The sentence that follows "there is no such name", with a space before it; nothing where none is near.

    >>> did_you_mean("cuont", ["count", "total"])
    " Did you mean 'count'?"
    """
    near = nearest(name, known, likeness)
    return "" if near is None else f" Did you mean {near!r}?"
