"""Writes rows as ORC files, for `FileSink.for_bulk_format`. To read them, use `BulkFormat.orc_format`.

A row type is one of the Table API's `DataTypes`, as in PyFlink, or of `Types`.
"""

from __future__ import annotations

from typing import Any

from millstream.common.configuration import Configuration
from millstream.common.typeinfo import RowTypeInfo
from millstream.connectors.files.orc_files import OrcParts
from millstream.datastream.connectors.file_system.sink import PartsWriterFactory
from millstream.datastream.streams.argument_checks import checked_file_row
from millstream.errors import NotAvailableError
from millstream.expressions.data_type import DataType
from millstream.pyflink_names import add_pyflink_names

__all__ = ["OrcBulkWriters"]

_PACKINGS = {"NONE": "uncompressed", "ZLIB": "zlib", "SNAPPY": "snappy", "LZ4": "lz4", "ZSTD": "zstd"}


class OrcBulkWriters:
    """Writes rows as ORC.

    >>> from millstream.common.typeinfo import Types
    >>> writers = OrcBulkWriters.for_row_type(Types.ROW_NAMED(["n"], [Types.LONG()]), {"orc.compress": "ZLIB"})
    """

    @staticmethod
    def for_row_type(
        row_type: RowTypeInfo | DataType,
        writer_properties: dict[str, str] | None = None,
        hadoop_config: Configuration | None = None,
    ) -> PartsWriterFactory:
        """Writers of rows of `row_type`. The only ORC property is `orc.compress`: NONE, ZLIB, SNAPPY, LZ4 or ZSTD."""
        row_type = checked_file_row("OrcBulkWriters", row_type, hadoop_config)
        properties: dict[str, Any] = dict(writer_properties or {})
        packing = str(properties.pop("orc.compress", "ZSTD")).upper()
        if properties or packing not in _PACKINGS:
            unknown = next(iter(properties), f"orc.compress={packing}")
            raise NotAvailableError(
                f"OrcBulkWriters: found the property {unknown!r}; known is 'orc.compress' with one of {list(_PACKINGS)}"
            )
        return PartsWriterFactory(OrcParts(row_type, _PACKINGS[packing]))


add_pyflink_names(globals())
