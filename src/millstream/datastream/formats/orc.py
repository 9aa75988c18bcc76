"""Writing ORC files of rows, for `FileSink.for_bulk_format`. To read them: `BulkFormat.orc_format`.

PyFlink describes rows by the Table API's `DataTypes`; here a row type is one of `Types`.
"""

from __future__ import annotations

from typing import Any

from millstream.common.configuration import Configuration
from millstream.common.typeinfo import RowTypeInfo
from millstream.connectors.files.orc_files import OrcParts
from millstream.datastream.connectors.file_system.sink import PartsWriterFactory
from millstream.datastream.streams.argument_checks import refuse
from millstream.errors import NotAvailableError

__all__ = ["OrcBulkWriters"]

_PACKINGS = {"NONE": "uncompressed", "ZLIB": "zlib", "SNAPPY": "snappy", "LZ4": "lz4", "ZSTD": "zstd"}


class OrcBulkWriters:
    """Writes rows as ORC.

    >>> from millstream.common.typeinfo import Types
    >>> writers = OrcBulkWriters.for_row_type(Types.ROW_NAMED(["n"], [Types.LONG()]), {"orc.compress": "ZLIB"})
    """

    @staticmethod
    def for_row_type(
        row_type: RowTypeInfo,
        writer_properties: dict[str, str] | None = None,
        hadoop_config: Configuration | None = None,
    ) -> PartsWriterFactory:
        """Of rows of `row_type`. Of ORC's properties `orc.compress` is known: NONE, ZLIB, SNAPPY, LZ4 or ZSTD."""
        if hadoop_config is not None:
            raise NotAvailableError("OrcBulkWriters: there is no Hadoop behind it. Leave hadoop_config= out")
        if not isinstance(row_type, RowTypeInfo):
            raise refuse(f"OrcBulkWriters: found {row_type!r} as the row type, expected Types.ROW_NAMED([…], […])")
        properties: dict[str, Any] = dict(writer_properties or {})
        packing = str(properties.pop("orc.compress", "ZSTD")).upper()
        if properties or packing not in _PACKINGS:
            found = next(iter(properties), f"orc.compress={packing}")
            raise NotAvailableError(
                f"OrcBulkWriters: found the property {found!r}; known is 'orc.compress' with one of {list(_PACKINGS)}"
            )
        return PartsWriterFactory(OrcParts(row_type, _PACKINGS[packing]))
