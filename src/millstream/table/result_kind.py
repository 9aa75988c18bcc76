"""The kinds of statement results."""

from __future__ import annotations

from enum import IntEnum

from millstream.pyflink_names import add_pyflink_names

__all__ = ["ResultKind"]


class ResultKind(IntEnum):
    """Whether a result has rows, or only reports success."""

    SUCCESS = 0
    SUCCESS_WITH_CONTENT = 1


add_pyflink_names(globals())
