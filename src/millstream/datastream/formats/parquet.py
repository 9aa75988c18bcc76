"""Reads and writes Parquet files as columns. An Avro schema may replace the row type.

A row type is one of the Table API's `DataTypes`, as in PyFlink, or of `Types`.
"""

from __future__ import annotations

from typing import Any

from millstream.common.configuration import Configuration
from millstream.common.typeinfo import RowTypeInfo
from millstream.connectors.files.parquet_rows import ParquetRows
from millstream.connectors.files.parts import ParquetParts
from millstream.datastream.connectors.file_system.sink import PartsWriterFactory
from millstream.datastream.connectors.file_system.source import BulkFormat, StreamFormat
from millstream.datastream.formats.avro import AvroSchema
from millstream.datastream.streams.argument_checks import at_users_line, checked_count, checked_file_row
from millstream.errors import NotAvailableError
from millstream.expressions.data_type import DataType
from millstream.graph.site import refuse_type
from millstream.pyflink_names import add_pyflink_names

__all__ = ["AvroParquetReaders", "AvroParquetWriters", "ParquetBulkWriters", "ParquetColumnarRowInputFormat"]


class AvroParquetReaders:
    """Reads Parquet written from Avro records, for `FileSource.for_record_stream_format`."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> StreamFormat:
        """A reader of rows of the schema's type; columns are matched by name."""
        with at_users_line():
            return StreamFormat(engine=ParquetRows(_row_type_of("AvroParquetReaders", schema)))


class AvroParquetWriters:
    """Writes records of an Avro schema as Parquet, for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_generic_record(schema: AvroSchema) -> PartsWriterFactory:
        """A writer of rows of the schema's type."""
        return PartsWriterFactory(ParquetParts(_row_type_of("AvroParquetWriters", schema)))


def _row_type_of(name: str, schema: Any) -> RowTypeInfo:
    if not isinstance(schema, AvroSchema):
        raise refuse_type(f"{name}.for_generic_record: found {schema!r}, expected AvroSchema.parse_string(text)")
    return schema.get_row_type()


class ParquetColumnarRowInputFormat(BulkFormat):
    """Rows of `row_type` from Parquet files, for `FileSource.for_bulk_file_format`. Columns are matched by name.

    >>> from millstream.common.typeinfo import Types
    >>> format = ParquetColumnarRowInputFormat(Types.ROW_NAMED(["ad", "price"], [Types.STRING(), Types.DOUBLE()]))
    """

    def __init__(
        self,
        row_type: RowTypeInfo | DataType,
        hadoop_config: Configuration | None = None,
        batch_size: int = 2048,
        is_utc_timestamp: bool = False,
        is_case_sensitive: bool = True,
    ) -> None:
        row = checked_file_row("ParquetColumnarRowInputFormat", row_type, hadoop_config)
        checked_count("ParquetColumnarRowInputFormat, batch_size", batch_size)
        if not is_case_sensitive:
            raise NotAvailableError(
                "ParquetColumnarRowInputFormat: columns are matched by their exact names. Name them accordingly"
            )
        with at_users_line():
            super().__init__(engine=ParquetRows(row))


class ParquetBulkWriters:
    """Writes rows as Parquet, for `FileSink.for_bulk_format`."""

    @staticmethod
    def for_row_type(
        row_type: RowTypeInfo | DataType, hadoop_config: Configuration | None = None, utc_timestamp: bool = False
    ) -> PartsWriterFactory:
        """The writer of rows of `row_type`."""
        return PartsWriterFactory(
            ParquetParts(checked_file_row("ParquetBulkWriters.for_row_type", row_type, hadoop_config))
        )


add_pyflink_names(globals())
