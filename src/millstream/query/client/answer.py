"""What a client gets: a value, and the epoch it belongs to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Answer"]


@dataclass(frozen=True)
class Answer:
    """One value, with the epoch it belongs to. `value` is None where nothing was found."""

    value: Any
    epoch: int
    watermark: int | None
    committed_ms: int
    age_ms: int

    @classmethod
    def of(cls, told: Mapping[str, Any], value: Any) -> Answer:
        """A value out of what a server told.

        >>> Answer.of({"epoch": 7, "watermark": None, "committed_ms": 5, "age_ms": 2, "job": "clicks"}, "seven").epoch
        7
        """
        return cls(value, told["epoch"], told["watermark"], told["committed_ms"], told["age_ms"])
