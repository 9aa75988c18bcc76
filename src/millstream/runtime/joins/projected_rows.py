"""Join results that are chosen fields of both records: the stored fields of each side, and the output rows of pairs.

Only chosen fields are stored, under their names: rows stored for other fields do not fit, even if the types agree. A
side without chosen fields still stores its first field.
"""

from __future__ import annotations

import pyarrow as pa

from millstream.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from millstream.records.batch import Batch
from millstream.records.columns import stream_schema
from millstream.records.shapes import plain_type
from millstream.runtime.joins.buffer import SideRows
from millstream.state.keys.hashing import Int64s

__all__ = ["ProjectedRows"]


class ProjectedRows:
    """The chosen `fields` of records of `types`, as rows of `output_type`."""

    def __init__(
        self,
        fields: tuple[tuple[int, ...], tuple[int, ...]],
        types: tuple[TypeInformation | None, TypeInformation | None],
        output_type: TypeInformation | None,
    ) -> None:
        assert output_type is not None and None not in types
        schema = stream_schema(output_type)
        assert schema is not None
        self._fields, self._types, self._type, self._schema = fields, types, output_type, schema

    def stored_fields(self, number: int) -> tuple[TypeInformation, tuple[int, ...]]:
        """The stored part of an input's records: its type, and its fields."""
        fields = self._fields[number - 1] or (0,)
        type_info = self._types[number - 1]
        assert type_info is not None
        plain = plain_type(type_info)
        assert isinstance(plain, RowTypeInfo | TupleTypeInfo)
        types = plain.get_field_types()
        all_names = (
            plain.get_field_names() if isinstance(plain, RowTypeInfo) else [f"f{at}" for at in range(len(types))]
        )
        # A field may be chosen twice, but names in a row are unique.
        names = [
            all_names[field] if field not in fields[:at] else f"{all_names[field]} {at}"
            for at, field in enumerate(fields)
        ]
        return Types.ROW_NAMED(names, [types[field] for field in fields]), fields

    def batch(
        self, left: SideRows, left_rows: Int64s, right: SideRows, right_rows: Int64s, timestamps: Int64s
    ) -> Batch:
        """The results of these pairs."""
        columns: list[pa.Array] = []
        for side, rows, fields in ((left, left_rows, self._fields[0]), (right, right_rows, self._fields[1])):
            at = pa.array(rows)
            columns += [side.contents.field(number).take(at) for number in range(len(fields))]
        return Batch.of_columns(pa.RecordBatch.from_arrays(columns, schema=self._schema), self._type, timestamps)
