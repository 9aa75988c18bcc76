"""What can be wrong with a question. Each has a kind of its own, so that a server can give each a status of its own.

StoreError ── UnknownJobError    there is no job at that address
           ├─ NoEpochError       the job has committed nothing yet, or not the epoch that was waited for
           └─ EpochGoneError     the epoch is not retained (any more)
ProgramError ── UnknownStateError   no state of that name; says which there are
             ├─ StateKindError      the state cannot be asked that way: windows are not values
             └─ KeyTypeError        the key is none of the type that the state's keys have
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
    """There is no job at that address, or none of that name."""


class NoEpochError(StoreError):
    """There is no such epoch yet."""


class UnknownStateError(ProgramError):
    """The job has no state that can be asked for by that name."""


class StateKindError(ProgramError):
    """The state has no answer to that kind of question, or only the program could give it."""


class KeyTypeError(TypeMismatchError):
    """The key does not fit the type of the state's keys."""
