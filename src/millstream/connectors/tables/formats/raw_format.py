"""The raw table format: Flink's `raw`. The table has one column; a message, or a line of a file, is its value."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.connectors.files.formats import FileFormat
from millstream.connectors.files.parts import PartEncoder, PartFormat
from millstream.connectors.messages.codecs import BadMessage, Decoded, MessageDecoder, MessageEncoder, Messages
from millstream.connectors.messages.row_kinds import inserted_rows
from millstream.connectors.tables.factory import TableOption
from millstream.connectors.tables.formats.csv_format import line_encoder
from millstream.connectors.tables.formats.decoded_rows import MessageLines
from millstream.connectors.tables.formats.format import FormatOptions, TableFormat
from millstream.errors import ProgramError
from millstream.expressions import types
from millstream.expressions.nested_types import RowType
from millstream.expressions.types import is_text
from millstream.records.batch import Batch
from millstream.records.table_type import TableRowType

__all__ = ["RawFormat"]

_NUMBERS: dict[type, str] = {
    types.TinyIntType: "i1",
    types.SmallIntType: "i2",
    types.IntType: "i4",
    types.BigIntType: "i8",
    types.FloatType: "f4",
    types.DoubleType: "f8",
}


class RawFormat(TableFormat):
    """Flink's `raw`."""

    name = "raw"
    reads_by_name = False
    options = (
        TableOption("raw.charset", "the charset of text", default="UTF-8"),
        TableOption("raw.endianness", "big-endian or little-endian, of numbers", default="big-endian"),
    )

    def reader(self, options: FormatOptions, row_type: RowType) -> FileFormat:
        self._refuse_numbers(options, row_type)
        return MessageLines(self.decoder(options, row_type), "raw", skips_empty=False)

    def parts(self, options: FormatOptions, row_type: RowType) -> PartFormat:
        self._refuse_numbers(options, row_type)
        return RawParts(self._layout(options, row_type))

    def decoder(self, options: FormatOptions, row_type: RowType) -> MessageDecoder:
        return RawDecoder(self._layout(options, row_type))

    def encoder(self, options: FormatOptions, row_type: RowType) -> MessageEncoder:
        return RawEncoder(self._layout(options, row_type))

    def _layout(self, options: FormatOptions, row_type: RowType) -> RawLayout:
        if len(row_type.fields) != 1:
            raise ProgramError(
                f"table {options.table!r}: the format 'raw' has one column, but the table has {len(row_type.fields)}: "
                f"{', '.join(row_type.names)}. Declare one, or use another format"
            )
        column = row_type.fields[0].data_type
        if not (
            is_text(column) or type(column) in _NUMBERS or _is_bytes(column) or isinstance(column, types.BooleanType)
        ):
            raise ProgramError(f"table {options.table!r}: the format 'raw' supports text, bytes, numbers, not {column}")
        charset = str(options.text("raw.charset"))
        try:
            codecs.lookup(charset)
        except LookupError:
            raise options.wrong("raw.charset", "the name of a charset, such as UTF-8") from None
        order = options.choice("raw.endianness", ("big-endian", "little-endian"))
        return RawLayout(row_type, charset, ">" if order == "big-endian" else "<")

    def _refuse_numbers(self, options: FormatOptions, row_type: RowType) -> None:
        if len(row_type.fields) == 1 and not (is_text(row_type.types[0]) or _is_bytes(row_type.types[0])):
            raise ProgramError(
                f"table {options.table!r}: 'raw' files hold lines of text or bytes, not {row_type.types[0]}"
            )


def _is_bytes(data_type: Any) -> bool:
    return isinstance(data_type, (types.BinaryType, types.VarBinaryType))


@dataclass(frozen=True)
class RawLayout:
    """The byte layout of a value."""

    row_type: RowType
    charset: str
    order: str

    def column(self, values: pa.Array) -> tuple[pa.Array, list[BadMessage]]:
        """The values of messages without NULLs."""
        data_type = self.row_type.fields[0].data_type
        if _is_bytes(data_type):
            return values.cast(pa.binary()), []
        if is_text(data_type):
            return self._texts(values), []
        is_boolean = isinstance(data_type, types.BooleanType)
        kind = np.dtype("u1" if is_boolean else self.order + _NUMBERS[type(data_type)])
        decoded: list[Any] = []
        bad = []
        for at, value in enumerate(values.to_pylist()):
            if len(value) != kind.itemsize:
                bad.append(BadMessage(at, f"it has {len(value)} bytes, expected {kind.itemsize}"))
                decoded.append(None)
            else:
                number = np.frombuffer(value, kind)[0].item()
                decoded.append(number != 0 if is_boolean else number)
        return pa.array(decoded, data_type.arrow), bad

    def _texts(self, values: pa.Array) -> pa.Array:
        if codecs.lookup(self.charset).name == "utf-8":
            try:
                return values.cast(pa.string())
            except pa.ArrowInvalid:
                pass  # some of it is not UTF-8
        return pa.array([value.decode(self.charset, "replace") for value in values.to_pylist()], pa.string())

    def bytes_of(self, batch: Batch) -> pa.Array:
        """The messages of rows; NULL for NULL."""
        column = inserted_rows(batch, TableRowType(self.row_type), "Raw").column(0)
        data_type = self.row_type.fields[0].data_type
        if _is_bytes(data_type):
            return column
        if is_text(data_type):
            if codecs.lookup(self.charset).name == "utf-8":
                return column.cast(pa.binary())
            texts = column.to_pylist()
            return pa.array([None if text is None else text.encode(self.charset) for text in texts], pa.binary())
        is_boolean = isinstance(data_type, types.BooleanType)
        kind = np.dtype("u1" if is_boolean else self.order + _NUMBERS[type(data_type)])
        values = column.to_pylist()
        return pa.array([None if value is None else np.array([value], kind).tobytes() for value in values])


class RawDecoder(MessageDecoder):
    """Decodes rows from messages. A message without a value has no row."""

    def __init__(self, layout: RawLayout) -> None:
        self._layout = layout
        self.type_info = TableRowType(layout.row_type)

    def decode(self, messages: Messages) -> Decoded:
        present = messages.values.drop_null()
        origins = np.flatnonzero(np.asarray(messages.values.is_valid()))
        column, bad = self._layout.column(present)
        bad = [BadMessage(int(origins[each.index]), each.reason) for each in bad]
        if bad:
            refused = {each.index for each in bad}
            valid = np.array([at not in refused for at in origins.tolist()])
            column, origins = column.filter(pa.array(valid)), origins[valid]
        batch = pa.RecordBatch.from_arrays([column], schema=self._layout.row_type.schema)
        is_whole = len(origins) == len(messages.values)
        return Decoded(
            Batch.of_columns(batch, TableRowType(self._layout.row_type)), None if is_whole else origins, tuple(bad)
        )


@dataclass(frozen=True)
class RawEncoder(MessageEncoder):
    """Encodes rows as messages."""

    layout: RawLayout

    def encode(self, batch: Batch) -> pa.Array:
        return self.layout.bytes_of(batch)

    def lines(self, batch: Batch) -> pa.Array:
        """The values as lines; NULL is an empty line."""
        values = pc.fill_null(self.layout.bytes_of(batch).cast(pa.binary()), b"")
        return pc.binary_join_element_wise(values, b"\n", b"")


@dataclass(frozen=True)
class RawParts(PartFormat):
    """Files of lines."""

    layout: RawLayout
    is_bytes = True

    def encoder(self) -> PartEncoder:
        return line_encoder(RawEncoder(self.layout))
