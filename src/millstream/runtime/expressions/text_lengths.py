"""Bounds the lengths of strings that functions produce from a number, as in REPEAT('a', 2000000000).

`check_length` bounds one string, `check_lengths` also the total of a batch, before any string is produced.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from millstream.runtime.expressions.kernel import EvaluationError, Value

__all__ = ["TEXT_CHARS_MAX", "check_length", "check_lengths"]

TEXT_CHARS_MAX = 1 << 24
_BATCH_CHARS_MAX = (1 << 31) - 1  # total length of the strings in one Arrow array


def check_length(function: str, chars: int, row: int = 0) -> None:
    """Raises an EvaluationError if a string would be too long."""
    if chars > TEXT_CHARS_MAX:
        raise EvaluationError(
            f"{function} would produce a string of {chars:,} characters, expected at most {TEXT_CHARS_MAX:,}", row
        )


def check_lengths(function: str, chars: Value, rows: int) -> None:
    """Checks the lengths in a column (or of a repeated scalar), and their total."""
    longest = pc.max(chars).as_py() if isinstance(chars, pa.Array) else chars.as_py()
    if longest is None:
        return
    if longest > TEXT_CHARS_MAX:
        at = pc.index(chars, pa.scalar(longest, chars.type)).as_py() if isinstance(chars, pa.Array) else 0
        check_length(function, longest, at)
    if longest * rows > _BATCH_CHARS_MAX:
        present = pc.fill_null(chars, 0) if isinstance(chars, pa.Array) else pa.repeat(chars, rows)
        total = pc.sum(pc.max_element_wise(present.cast(pa.int64()), 0)).as_py()
        if total > _BATCH_CHARS_MAX:
            raise EvaluationError(
                f"{function} would produce {total:,} characters of text for {rows:,} rows: shorten them"
            )
