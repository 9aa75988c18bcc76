"""The contract of a table format: options, and a reader and a writer of rows, for files and messages.

`'format' = '…'` selects a format, or `'key.format'` and `'value.format'` for messages with both. Its options
start with its name (`csv.field-delimiter`, for a key `key.csv.field-delimiter`) and are checked when the table is used.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Mapping, Sequence

from millstream.connectors.files.formats import FileFormat
from millstream.connectors.files.parts import PartFormat
from millstream.connectors.messages.codecs import MessageDecoder, MessageEncoder
from millstream.connectors.tables.factory import GROWS, TableOption
from millstream.connectors.tables.options import TableOptions
from millstream.errors import ProgramError
from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import RowType, types_within
from millstream.expressions.types import BitmapType, VariantType

__all__ = ["FormatOptions", "TableFormat", "conversion_advice", "refuse_types"]


class FormatOptions:
    """The options of a table by the names that a format uses, without the format's prefix."""

    def __init__(self, options: TableOptions, prefix: str) -> None:
        self.options, self.prefix = options, prefix

    @property
    def table(self) -> str:
        return self.options.table

    def text(self, name: str) -> str | None:
        """An option as written."""
        return self.options.text(self.prefix + name)

    def boolean(self, name: str) -> bool:
        return bool(self.options.boolean(self.prefix + name))

    def choice(self, name: str, choices: Sequence[str]) -> str:
        """One of several words."""
        return str(self.options.choice(self.prefix + name, choices))

    def character(self, name: str) -> str | None:
        r"""One character; may be written as in Java: `\t`."""
        text = self.text(name)
        if text is None:
            return None
        plain = _ESCAPED.get(text, text)
        if len(plain) != 1:
            raise self.options.wrong(self.prefix + name, "one character")
        return plain

    def wrong(self, name: str, expected: str) -> ProgramError:
        """The error for a malformed value."""
        return self.options.wrong(self.prefix + name, expected)


_ESCAPED = {r"\t": "\t", r"\n": "\n", r"\r": "\r", r"\\": "\\"}


class TableFormat(ABC):
    """A format. A format only for files, or only for messages, overrides only their methods."""

    name: str
    options: Sequence[TableOption] = ()
    is_for_files: bool = True
    is_for_messages: bool = True
    reads_by_name: bool = True
    """Whether a file can be read for some of its columns; otherwise columns are matched by position, and all are
    read."""

    changes: tuple[str, ...] = GROWS
    """The row kinds in its messages."""

    metadata: Mapping[str, DataType] = {}
    """The metadata in its messages."""

    def reader(self, options: FormatOptions, row_type: RowType) -> FileFormat:
        """Reads files."""
        raise NotImplementedError

    def parts(self, options: FormatOptions, row_type: RowType) -> PartFormat:
        """Writes files."""
        raise NotImplementedError

    def decoder(self, options: FormatOptions, row_type: RowType) -> MessageDecoder:
        """Reads messages."""
        raise NotImplementedError

    def decoder_with(self, options: FormatOptions, row_type: RowType, metadata: Sequence[str]) -> MessageDecoder:
        """Reads messages; the columns of a row are followed by its `metadata`, in the order of the keys."""
        assert not metadata, f"{self.name} has no metadata"
        return self.decoder(options, row_type)

    def encoder(self, options: FormatOptions, row_type: RowType) -> MessageEncoder:
        """Writes messages."""
        raise NotImplementedError


def refuse_types(name: str, table: str, row_type: RowType, is_known: object) -> None:
    """Raises for a column of a type that the format `name` cannot hold; `is_known` tests a type."""
    assert callable(is_known)
    for field in row_type.fields:
        for inner in types_within(field.data_type):
            if not is_known(inner):
                raise ProgramError(
                    f"table {table!r}: column {field.name!r} is of type {field.data_type}, and {name} has no type for "
                    f"{inner.nullable()}. {conversion_advice(inner)}, or use another format"
                )


def conversion_advice(data_type: DataType) -> str:
    """Advice for a column that a format cannot hold."""
    if isinstance(data_type, VariantType):
        return "Write it as STRING with JSON_STRING, read it with PARSE_JSON"
    if isinstance(data_type, BitmapType):
        return "Write it as BYTES with BITMAP_TO_BYTES, read it with BITMAP_FROM_BYTES"
    return "CAST it to STRING"
