"""What kind of result a statement has."""

from __future__ import annotations

from enum import IntEnum

from millstream.pyflink_names import add_pyflink_names

__all__ = ["ResultKind"]


class ResultKind(IntEnum):
    """Whether there are rows to read, or just success."""

    SUCCESS = 0
    SUCCESS_WITH_CONTENT = 1


add_pyflink_names(globals())
