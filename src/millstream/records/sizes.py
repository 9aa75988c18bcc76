"""How much memory records take, about: exactly for columns, by a sample for Python values without a type.

Records are no measure of memory. What holds many of them (an epoch, a visit, a block) is bounded by bytes, and asks
here. A sample of a few values and of a few elements of each is enough for that, and costs nothing next to the records.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

__all__ = ["about_bytes", "values_bytes"]

_SAMPLED_VALUES = 16
_SAMPLED_ELEMENTS = 8
_DEPTH_MAX = 4


def values_bytes(values: Sequence[Any]) -> int:
    """About the bytes of all `values`, by some of them, evenly spread.

    >>> values_bytes([b"x" * 1000] * 100) >= 100_000
    True
    """
    if not values:
        return 0
    sample = values[:: -(-len(values) // _SAMPLED_VALUES)]
    return sum(map(about_bytes, sample)) * len(values) // len(sample)


def about_bytes(value: Any, depth: int = 0) -> int:
    """About the bytes of a value with what it holds: of long collections by their first elements, to some depth."""
    size = sys.getsizeof(value)
    if isinstance(value, (str, bytes, bytearray, memoryview, int, float, bool, type(None))) or depth == _DEPTH_MAX:
        return size
    sample: Any = None
    if isinstance(value, Mapping):
        sample, length = islice(value.items(), _SAMPLED_ELEMENTS), len(value)
    elif isinstance(value, (list, tuple, set, frozenset)):
        sample, length = islice(value, _SAMPLED_ELEMENTS), len(value)
    elif hasattr(value, "__dict__"):
        sample, length = vars(value).values(), len(vars(value))
    parts = [about_bytes(part, depth + 1) for part in sample] if sample is not None else []
    return size + (sum(parts) * length // len(parts) if parts else 0)
