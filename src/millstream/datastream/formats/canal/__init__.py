"""Canal's JSON messages: changes of MySQL rows, as rows with a kind (in Flink's Table API `canal-json`)."""

from __future__ import annotations

import re

from millstream.common.typeinfo import RowTypeInfo
from millstream.connectors.files.values import text_converter
from millstream.connectors.messages.changelog import CanalDecoder
from millstream.datastream.formats.changelog import ChangelogDeserializationSchema, ChangelogSerializationSchema
from millstream.datastream.streams.argument_checks import refuse
from millstream.errors import ProgramError

__all__ = ["CanalJsonDeserializationSchema", "CanalJsonSerializationSchema"]


class CanalJsonDeserializationSchema(ChangelogDeserializationSchema):
    """Decodes messages to rows of the changed table, with row kinds. A message may hold several rows; an update is two.

    `database_include` and `table_include` are regular expressions; messages of other tables are skipped.
    """

    format_name = "Canal"

    def __init__(
        self,
        row_type: RowTypeInfo,
        database_include: str | None = None,
        table_include: str | None = None,
        ignore_parse_errors: bool = False,
    ) -> None:
        super().__init__(row_type, ignore_parse_errors)
        for name, field in zip(row_type.get_field_names(), row_type.get_field_types(), strict=True):
            try:
                text_converter(field)
            except ProgramError:
                raise refuse(
                    f"CanalJsonDeserializationSchema: field {name!r} is {field}, and Canal's values are text. Read it "
                    "as STRING"
                ) from None
        for pattern in (database_include, table_include):
            try:
                re.compile(pattern or "")
            except (re.error, TypeError) as error:
                raise refuse(f"CanalJsonDeserializationSchema: {pattern!r} is not a pattern: {error}") from error
        self._patterns = database_include, table_include

    def column_decoder(self) -> CanalDecoder:
        return CanalDecoder(self._row_type, *self._patterns, self._ignore_parse_errors)


class CanalJsonSerializationSchema(ChangelogSerializationSchema):
    """Encodes rows as Canal messages: INSERT for an insert or update-after, DELETE for a delete or update-before.

    >>> from millstream.common import Row, Types
    >>> CanalJsonSerializationSchema(Types.ROW_NAMED(["id"], [Types.INT()])).serialize(Row(1))
    b'{"data":[{"id":1}],"type":"INSERT"}'
    """

    format_name = "Canal"
