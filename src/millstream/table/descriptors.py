"""PyFlink's older descriptors of a schema: they give the properties of a table. `schema.Schema` is the newer way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.errors import NotAvailableError
from millstream.expressions.data_type import DataType
from millstream.graph.site import refuse
from millstream.pyflink_names import add_pyflink_names
from millstream.table.schemas.type_arguments import checked_type
from millstream.table.table_schema import TableSchema

__all__ = ["Rowtime", "Schema"]


class Descriptor:
    """Something that is described by properties."""

    def __init__(self, j_descriptor: Any = None) -> None:
        self._properties: dict[str, str] = {}

    def to_properties(self) -> dict[str, str]:
        """The properties."""
        return dict(self._properties)


class Rowtime(Descriptor):
    """Where the time of events comes from, and how late they may be.

    >>> Rowtime().watermarks_periodic_ascending().to_properties()
    {'rowtime.watermarks.type': 'periodic-ascending'}
    """

    def __init__(self) -> None:
        super().__init__()

    def _said(self, **properties: str) -> Rowtime:
        self._properties |= {f"rowtime.{key.replace('_', '.')}": value for key, value in properties.items()}
        return self

    def timestamps_from_field(self, field_name: str) -> Rowtime:
        """A field is the time."""
        return self._said(timestamps_type="from-field", timestamps_from=field_name)

    def timestamps_from_source(self) -> Rowtime:
        """The source knows the time."""
        return self._said(timestamps_type="from-source")

    def timestamps_from_extractor(self, extractor: str) -> Rowtime:
        """A class of Java knows the time."""
        raise NotAvailableError("timestamps_from_extractor is not available: it names a Java class. Compute a column")

    def watermarks_periodic_ascending(self) -> Rowtime:
        """Times never go back."""
        return self._said(watermarks_type="periodic-ascending")

    def watermarks_periodic_bounded(self, delay: int) -> Rowtime:
        """Events are at most so many milliseconds late."""
        return self._said(watermarks_type="periodic-bounded", watermarks_delay=str(delay))

    def watermarks_from_source(self) -> Rowtime:
        """The source knows the watermarks."""
        return self._said(watermarks_type="from-source")

    def watermarks_from_strategy(self, strategy: str) -> Rowtime:
        """A class of Java knows the watermarks."""
        raise NotAvailableError("watermarks_from_strategy is not available: it names a Java class. Write WATERMARK FOR")


class Schema(Descriptor):
    """Columns as properties: `schema.0.name`, `schema.0.data-type`, …"""

    def __init__(
        self,
        schema: TableSchema | None = None,
        fields: Mapping[str, Any] | None = None,
        rowtime: Rowtime | None = None,
    ) -> None:
        super().__init__()
        self._count = 0
        if schema is not None:
            self.schema(schema)
        if fields is not None:
            self.fields(fields)
        if rowtime is not None:
            self.rowtime(rowtime)

    def schema(self, table_schema: TableSchema) -> Schema:
        """All columns of a table's schema."""
        for name, type_ in zip(table_schema.get_field_names(), table_schema.get_field_data_types(), strict=True):
            self.field(name, type_)
        return self

    def field(self, field_name: str, field_type: DataType | str) -> Schema:
        """A column."""
        data_type = checked_type(f"field {field_name!r}", field_type)
        self._properties[f"schema.{self._count}.name"] = field_name
        self._properties[f"schema.{self._count}.data-type"] = str(data_type)
        self._count += 1
        return self

    def fields(self, fields: Mapping[str, Any]) -> Schema:
        """Several columns."""
        for name, type_ in fields.items():
            self.field(name, type_)
        return self

    def from_origin_field(self, origin_field_name: str) -> Schema:
        """The last column has another name in the input."""
        return self._last("from", origin_field_name)

    def proctime(self) -> Schema:
        """The last column is the time of the clock."""
        return self._last("proctime", "true")

    def rowtime(self, rowtime: Rowtime) -> Schema:
        """The last column is the time of events."""
        for key, value in rowtime.to_properties().items():
            self._last(key, value)
        return self

    def _last(self, key: str, value: str) -> Schema:
        if self._count == 0:
            raise refuse("Schema: there is no column yet that this could be said of. Begin with field(name, type)")
        self._properties[f"schema.{self._count - 1}.{key}"] = value
        return self


add_pyflink_names(globals())
