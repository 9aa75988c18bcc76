"""What kind of result a statement has."""

from __future__ import annotations

from enum import Enum

__all__ = ["ResultKind"]


class ResultKind(Enum):
    """Whether there are rows to read, or just success."""

    SUCCESS = 0
    SUCCESS_WITH_CONTENT = 1
