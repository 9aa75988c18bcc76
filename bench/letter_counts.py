"""The function of Nexmark's query 14: the number of occurrences of a letter in a text. Per row, and over a column.

Flink has it as a Java class, which is compiled; Python's comparable form is the one over columns.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.table import DataTypes
from millstream.table.udf import udf

__all__ = ["in_columns", "letters_in_column", "letters_in_text", "per_row"]


def letters_in_text(text: str, letter: str) -> int:
    """The number of occurrences of a letter in a text."""
    return text.count(letter)


def letters_in_column(texts: pa.Array, letter: pa.StringScalar) -> pa.Array:
    """The number of occurrences of an ASCII letter in each text: matching bytes of the whole column, summed per
    text.
    """
    _, ends, data = texts.buffers()
    bounds = np.frombuffer(ends, np.int32)[texts.offset : texts.offset + len(texts) + 1]
    letters = np.frombuffer(data or b"", np.uint8)[bounds[0] : bounds[-1]]
    is_letter = np.zeros(len(letters) + 1, np.bool_)  # one more, at which an empty last text starts
    np.equal(letters, ord(letter.as_py()), out=is_letter[:-1])
    counts = np.add.reduceat(is_letter, bounds[:-1] - bounds[0], dtype=np.int64)
    return pa.array(np.where(bounds[1:] > bounds[:-1], counts, 0))


per_row = udf(letters_in_text, result_type=DataTypes.BIGINT())
in_columns = udf(letters_in_column, result_type=DataTypes.BIGINT(), func_type="arrow")
