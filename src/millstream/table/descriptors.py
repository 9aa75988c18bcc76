"""PyFlink's legacy schema descriptors, which produce a table's properties. `schema.Schema` replaces them."""

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
    """An object described by properties."""

    def __init__(self, j_descriptor: Any = None) -> None:
        self._properties: dict[str, str] = {}

    def to_properties(self) -> dict[str, str]:
        """The properties."""
        return dict(self._properties)


class Rowtime(Descriptor):
    """The origin of event time, and the maximum lateness.

    >>> Rowtime().watermarks_periodic_ascending().to_properties()
    {'rowtime.watermarks.type': 'periodic-ascending'}
    """

    def __init__(self) -> None:
        super().__init__()

    def _with(self, **properties: str) -> Rowtime:
        self._properties |= {f"rowtime.{key.replace('_', '.')}": value for key, value in properties.items()}
        return self

    def timestamps_from_field(self, field_name: str) -> Rowtime:
        """Reads timestamps from a field."""
        return self._with(timestamps_type="from-field", timestamps_from=field_name)

    def timestamps_from_source(self) -> Rowtime:
        """Uses the source's timestamps."""
        return self._with(timestamps_type="from-source")

    def timestamps_from_extractor(self, extractor: str) -> Rowtime:
        """Reads timestamps with a Java class."""
        raise NotAvailableError("timestamps_from_extractor is not available: it names a Java class. Compute a column")

    def watermarks_periodic_ascending(self) -> Rowtime:
        """Timestamps never decrease."""
        return self._with(watermarks_type="periodic-ascending")

    def watermarks_periodic_bounded(self, delay: int) -> Rowtime:
        """Events are at most `delay` milliseconds late."""
        return self._with(watermarks_type="periodic-bounded", watermarks_delay=str(delay))

    def watermarks_from_source(self) -> Rowtime:
        """Uses the source's watermarks."""
        return self._with(watermarks_type="from-source")

    def watermarks_from_strategy(self, strategy: str) -> Rowtime:
        """Computes watermarks with a Java class."""
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
        """Adds all columns of a table's schema."""
        for name, type_ in zip(table_schema.get_field_names(), table_schema.get_field_data_types(), strict=True):
            self.field(name, type_)
        return self

    def field(self, field_name: str, field_type: DataType | str) -> Schema:
        """Adds a column."""
        data_type = checked_type(f"field {field_name!r}", field_type)
        self._properties[f"schema.{self._count}.name"] = field_name
        self._properties[f"schema.{self._count}.data-type"] = str(data_type)
        self._count += 1
        return self

    def fields(self, fields: Mapping[str, Any]) -> Schema:
        """Adds several columns."""
        for name, type_ in fields.items():
            self.field(name, type_)
        return self

    def from_origin_field(self, origin_field_name: str) -> Schema:
        """Sets the last column's name in the input."""
        return self._last("from", origin_field_name)

    def proctime(self) -> Schema:
        """Makes the last column the processing time."""
        return self._last("proctime", "true")

    def rowtime(self, rowtime: Rowtime) -> Schema:
        """Makes the last column the event time."""
        for key, value in rowtime.to_properties().items():
            self._last(key, value)
        return self

    def _last(self, key: str, value: str) -> Schema:
        if self._count == 0:
            raise refuse("Schema: there is no column to apply this to. Start with field(name, type)")
        self._properties[f"schema.{self._count - 1}.{key}"] = value
        return self


add_pyflink_names(globals())
