"""The errors of queries. Each has its own type, so that a server can map it to a status.

StoreError ── UnknownJobError    there is no job at that address
           ├─ NoEpochError       the job has committed nothing yet, or not the requested epoch in time
           └─ EpochGoneError     the epoch is not retained (any more)
ProgramError ── UnknownStateError   no state of that name; the message lists the existing ones
             ├─ StateKindError      the state does not support the request: windows are not values
             └─ KeyTypeError        the key does not have the type of the state's keys
"""

from __future__ import annotations

from millstream.checkpoint.leases import EpochGoneError
from millstream.errors import ProgramError, StoreError, TypeMismatchError

__all__ = [
    "EpochGoneError",
    "KeyTypeError",
    "NoEpochError",
    "StateKindError",
    "UnknownJobError",
    "UnknownStateError",
]


class UnknownJobError(StoreError):
    """There is no job at that address or of that name."""


class NoEpochError(StoreError):
    """There is no such epoch yet."""


class UnknownStateError(ProgramError):
    """The job has no queryable state of that name."""


class StateKindError(ProgramError):
    """The state does not support this kind of request, or only the program could answer it."""


class KeyTypeError(TypeMismatchError):
    """The key does not fit the type of the state's keys."""
