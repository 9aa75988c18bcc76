"""Writes pickles of untyped values.

Writing a pickle runs no stored code, so every module may do it. Reading one runs any code that its writer put into it;
only `records.unpickling` does that, which only the job itself may import. Invariant: nothing in this module opens a
pickle, and no other module of stored values imports `pickle` (contracts in pyproject.toml enforce both).
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from pickle import PicklingError
from typing import Any

__all__ = ["PicklingError", "pickled", "pickled_each"]


def pickled(value: Any) -> bytes:
    """The value as a pickle.

    >>> pickled(1)[:2]
    b'\\x80\\x05'
    """
    return pickle.dumps(value, protocol=5)


def pickled_each(values: Iterable[Any]) -> list[bytes]:
    """A separate pickle for each value."""
    return [pickle.dumps(value, protocol=5) for value in values]
