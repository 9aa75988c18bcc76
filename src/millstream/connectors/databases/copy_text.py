"""Writes columns as the CSV text that PostgreSQL's COPY reads, using Arrow.

COPY distinguishes a null (nothing between two commas) from an empty string (two quotes), and Arrow writes them this
way. Numbers are written with round-trip digits, times in UTC, bytes in hexadecimal. The database returns every value as
`sql_values.text_of` would have written it.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.csv as csv

from millstream.common.typeinfo import TypeInformation, Types
from millstream.connectors.databases.sql_values import array_text, column_values, is_array, is_json, json_text, text_of
from millstream.connectors.foreign_columns import outward
from millstream.records.columns import stream_schema
from millstream.records.shapes import is_byte_array, plain_type

__all__ = ["copy_text"]

_OPTIONS = csv.WriteOptions(include_header=False, quoting_style="needed")


def copy_text(columns: list[pa.Array], types: list[TypeInformation]) -> pa.Buffer:
    """These columns as CSV rows.

    >>> copy_text([pa.array([1, None]), pa.array(["a", ""])], [Types.LONG(), Types.STRING()]).to_pybytes()
    b'1,"a"\\n,""\\n'
    """
    texts = [_text_column(column, type_info) for column, type_info in zip(columns, types, strict=True)]
    sink = pa.BufferOutputStream()
    csv.write_csv(pa.RecordBatch.from_arrays(texts, names=[str(i) for i in range(len(texts))]), sink, _OPTIONS)
    return sink.getvalue()


def _text_column(column: pa.Array, type_info: TypeInformation) -> pa.Array:
    """Converts the column so that Arrow's CSV writer produces text that PostgreSQL reads."""
    plain = plain_type(type_info)
    if plain == Types.INSTANT():
        schema = stream_schema(Types.ROW([plain]))
        return outward(pa.RecordBatch.from_arrays([column], schema=schema), Types.ROW([plain])).column(0)
    if is_array(plain):
        return pa.array([None if v is None else array_text(v) for v in column_values(column, plain)], pa.string())
    if is_json(plain):
        return pa.array([None if v is None else json_text(v) for v in column_values(column, plain)], pa.string())
    if is_byte_array(plain) or plain == Types.BIG_INT():
        return pa.array([None if v is None else text_of(v) for v in column_values(column, plain)], pa.string())
    return column.cast(pa.string()) if pa.types.is_decimal(column.type) else column
