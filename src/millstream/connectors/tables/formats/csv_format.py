"""The CSV table format: Flink's `csv`, with columnar reads and writes.

A record is split into columns of text (`messages/csv_messages`), which are then converted to values. Files are read
line by line as long as every line is certainly one record; from the first other line on, such as one inside quotes,
Python's parser reads to the end of the range. Both produce the same records and the same positions.

An empty field is NULL unless it is text; `csv.null-literal` is NULL for every type. Quoting follows Jackson.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.typeinfo import RowTypeInfo, Types
from millstream.connectors.contracts import Offset, Read, Split
from millstream.connectors.files.csv_records import CsvDialect, ParsedRecords
from millstream.connectors.files.formats import BadRecords, ByteFormat, FileFormat
from millstream.connectors.files.lines import line_array, read_blocks
from millstream.connectors.files.parts import PartEncoder, PartFormat, PieceEncoder
from millstream.connectors.messages.codecs import Decoded, MessageDecoder, MessageEncoder, Messages
from millstream.connectors.messages.csv_messages import CsvDecoder, CsvMessages
from millstream.connectors.messages.row_kinds import inserted_rows
from millstream.connectors.tables.factory import TableOption
from millstream.connectors.tables.formats.csv_cells import (
    contains_up_to,
    csv_field,
    csv_fields,
    is_csv_type,
    joined_texts,
    text_bytes,
)
from millstream.connectors.tables.formats.decoded_rows import decoded_rows
from millstream.connectors.tables.formats.format import FormatOptions, TableFormat, refuse_types
from millstream.errors import TypeMismatchError
from millstream.expressions import types
from millstream.expressions.nested_types import RowType
from millstream.records.batch import Batch
from millstream.records.table_type import TableRowType

__all__ = ["CsvFormat", "CsvTableDecoder", "CsvTableEncoder", "CsvTableFiles", "line_encoder"]

_UNQUOTED_CHARS_MAX = 24
_SAMPLE_ROWS = 1024
_BATCH_RECORDS = 16_384
_BARE = (types.NumericType, types.BooleanType)
_SPACED = (types.TimestampType, types.LocalZonedTimestampType)


class CsvFormat(TableFormat):
    """Flink's `csv`."""

    name = "csv"
    reads_by_name = False
    options = (
        TableOption("csv.field-delimiter", "the character between fields", default=","),
        TableOption("csv.disable-quote-character", "disable quoting", default="false"),
        TableOption("csv.quote-character", "the character around quoted fields", default='"'),
        TableOption("csv.allow-comments", "skip lines that start with #", default="false"),
        TableOption(
            "csv.ignore-parse-errors", "unreadable fields are NULL, unreadable records skipped", default="false"
        ),
        TableOption("csv.array-element-delimiter", "separates the elements of an ARRAY or ROW", default=";"),
        TableOption("csv.escape-character", "escapes the next character"),
        TableOption("csv.null-literal", "the text for NULL; default: an empty field, unless it is text"),
        TableOption("csv.write-bigdecimal-in-scientific-notation", "write decimals as 1E-7", default="true"),
    )

    def reader(self, options: FormatOptions, row_type: RowType) -> FileFormat:
        return CsvTableFiles(self._decoder(options, row_type))

    def parts(self, options: FormatOptions, row_type: RowType) -> PartFormat:
        return CsvTableParts(self._encoder(options, row_type, "\n"))

    def decoder(self, options: FormatOptions, row_type: RowType) -> MessageDecoder:
        return self._decoder(options, row_type)

    def encoder(self, options: FormatOptions, row_type: RowType) -> MessageEncoder:
        return self._encoder(options, row_type, "")

    def _decoder(self, options: FormatOptions, row_type: RowType) -> CsvTableDecoder:
        refuse_types("csv", options.table, row_type, is_csv_type)
        return CsvTableDecoder(row_type, _dialect(options), options.boolean("csv.ignore-parse-errors"))

    def _encoder(self, options: FormatOptions, row_type: RowType, line_end: str) -> CsvTableEncoder:
        refuse_types("csv", options.table, row_type, is_csv_type)
        is_plain = not options.boolean("csv.write-bigdecimal-in-scientific-notation")
        return CsvTableEncoder(row_type, _dialect(options), line_end, is_plain)


def _dialect(options: FormatOptions) -> CsvDialect:
    return CsvDialect(
        delimiter=options.character("csv.field-delimiter") or ",",
        quote=None if options.boolean("csv.disable-quote-character") else options.character("csv.quote-character"),
        escape=options.character("csv.escape-character"),
        null_text=options.text("csv.null-literal"),
        array_separator=options.text("csv.array-element-delimiter") or ";",
        comments=options.boolean("csv.allow-comments"),
    )


class CsvTableDecoder(MessageDecoder):
    """Decodes rows from messages of one record each."""

    def __init__(self, row_type: RowType, dialect: CsvDialect, ignores_bad: bool = False) -> None:
        self.row_type, self.dialect, self.ignores_bad = row_type, dialect, ignores_bad
        self.type_info = TableRowType(row_type)
        texts: RowTypeInfo = Types.ROW_NAMED(row_type.names, [Types.STRING()] * len(row_type.fields))
        self._texts = CsvDecoder(CsvMessages(texts, dialect), ignores_bad)

    def decode(self, messages: Messages) -> Decoded:
        read = self._texts.decode(messages)
        return self.rows(read.batch.columns().columns, read, len(messages.values))

    def decode_lines(self, lines: pa.Array, has_quotes: bool) -> Decoded | None:
        """The rows of lines; None if a line may not be a record: one inside quotes, or with quotes that need the
        parser."""
        read = self._texts.columns(lines) if len(lines) else None
        if read is not None and read.is_read.all():
            return self.rows(read.batch.columns, Decoded(Batch.of_values([], None)), len(lines))
        return None if has_quotes else self.decode(Messages(lines, str))

    def rows(self, fields: Sequence[pa.Array], read: Decoded, messages: int) -> Decoded:
        """Converts columns of text to rows."""
        columns = [
            csv_fields(texts, field.data_type, self.dialect.array_separator, self.dialect.null_text)
            for texts, field in zip(fields, self.row_type.fields, strict=True)
        ]
        return decoded_rows(
            self.row_type,
            columns,
            read.origins,
            read.bad,
            self.ignores_bad,
            lambda column, row: fields[column][row].as_py(),
            messages,
        )


class CsvTableFiles(ByteFormat):
    """Reads rows from files. Not cut into ranges: only the parser knows where a record starts."""

    name = "CSV"
    cuttable = False

    def __init__(self, decoder: CsvTableDecoder) -> None:
        self._decoder = decoder
        self.type_info = decoder.type_info

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        remedy = ", or set 'csv.ignore-parse-errors' = 'true'"
        bad = BadRecords(split.info["path"], self.name, self._decoder.ignores_bad, remedy)
        reached = yield from read_blocks(
            split,
            start,
            stop,
            lambda position, block: self._lines(position, block, bad),
            lambda file, position, size: self._parsed(file, position, stop, size, bad),
        )
        bad.report()
        return reached

    def _lines(self, position: int, block: bytes, bad: BadRecords) -> pa.RecordBatch | None:
        """The records of whole lines; None if one of them may not be a record."""
        if position == 0 and block.startswith(b"\xef\xbb\xbf"):
            block, position = block[3:], 3
        dialect = self._decoder.dialect
        if dialect.escape is not None:
            return None
        lines, starts = line_array(block)
        retained = np.asarray(pc.binary_length(lines)) > 0
        if dialect.comments:
            retained &= ~np.asarray(pc.starts_with(lines, b"#"))
        if not retained.all():
            lines, starts = lines.filter(pa.array(retained)), starts[retained]
        if b"\r" in block and b"\r" in block.replace(b"\r\n", b"\n"):
            return None
        decoded = self._decoder.decode_lines(lines, dialect.quote is not None and dialect.quote.encode() in block)
        if decoded is None:
            return None
        for each in decoded.bad:
            text = lines[each.index].as_py().decode("utf-8", "replace")
            bad.add(position + int(starts[each.index]), text, each.reason)
        return decoded.batch.columns()

    def _parsed(self, file: Any, start: int, stop: int, size: int | None, bad: BadRecords) -> Any:
        """Parses records one by one: the reference."""
        records = ParsedRecords(file, start, size, self._decoder.dialect, bad)
        rows: list[tuple[int, list[str]]] = []
        while records.position < stop and (row := records.next()) is not None:
            rows.append(row)
            if len(rows) >= _BATCH_RECORDS:
                yield self._batch(rows, bad)
                rows = []
        if rows:
            yield self._batch(rows, bad)
        return records.position, records.has_ended

    def _batch(self, rows: list[tuple[int, list[str]]], bad: BadRecords) -> pa.RecordBatch:
        decoder, width = self._decoder, len(self._decoder.row_type.fields)
        delimiter, null_text = decoder.dialect.delimiter, decoder.dialect.null_text
        good = []
        for position, row in rows:
            if len(row) == width:
                good.append((position, row))
            else:
                bad.add(position, delimiter.join(row), f"it has {len(row)} fields, expected {width}")
        texts = [[None if row[at] == null_text else row[at] for _, row in good] for at in range(width)]
        fields = [pa.array(column, pa.string()) for column in texts]
        decoded = decoder.rows(fields, Decoded(Batch.of_values([], None)), len(good))
        for each in decoded.bad:
            bad.add(good[each.index][0], delimiter.join(good[each.index][1]), each.reason)
        return decoded.batch.columns()


# --- writing ----------------------------------------------------------------------------------------------------------


def _repeats(column: pa.Array) -> bool:
    """Whether values repeat often, judged by the first of them."""
    sample = column.slice(0, _SAMPLE_ROWS)
    return len(column) >= _SAMPLE_ROWS and 2 * pc.count_distinct(sample, mode="all").as_py() <= _SAMPLE_ROWS


@dataclass(frozen=True)
class _Field:
    """The strings of a field; `mark` is written before and after each of them."""

    texts: pa.Array
    mark: str = ""


def _with_marks(texts: pa.Array, mark: str) -> pa.Array:
    return pc.binary_join_element_wise(mark, texts, mark, "")


@dataclass(frozen=True)
class CsvTableEncoder(MessageEncoder):
    """Encodes rows as messages, column by column."""

    row_type: RowType
    dialect: CsvDialect
    line_end: str = ""
    plain_decimals: bool = False

    def encode(self, batch: Batch) -> pa.Array:
        return self.lines(batch).cast(pa.binary())

    def lines(self, batch: Batch) -> pa.Array:
        """The records as strings, each with its line end."""
        columns = inserted_rows(batch, TableRowType(self.row_type), "CSV")
        if not columns.num_rows:
            return pa.array([], pa.string())
        fields = [self._field(column, at) for at, column in enumerate(columns.columns)]
        if len(fields) == 1 and not fields[0].mark:
            # A lone empty field would be a blank line, which readers skip.
            texts = fields[0].texts
            fields = [_Field(pc.if_else(pc.equal(texts, ""), (self.dialect.quote or "") * 2, texts))]
        # Constants between fields are joined once: delimiters, and the quotes of fields that are all quoted.
        pieces: list[Any] = []
        mark = ""
        for number, field in enumerate(fields):
            mark += (self.dialect.delimiter if number else "") + field.mark
            pieces += [mark, field.texts] if mark else [field.texts]
            mark = field.mark
        mark += self.line_end
        pieces += [mark] if mark else []
        return joined_texts(pieces) if len(pieces) > 1 else pieces[0]

    def _field(self, column: pa.Array, at: int) -> _Field:
        """The strings of a field, quoted where necessary; NULL is not quoted. Repeated times are formatted once
        each."""
        if not isinstance(self.row_type.fields[at].data_type, _SPACED) or not _repeats(column):
            return self._texts(column, at)
        encoded = column.dictionary_encode(null_encoding="encode")
        written = self._texts(encoded.dictionary, at)
        return _Field(written.texts.take(encoded.indices), written.mark)

    def _texts(self, column: pa.Array, at: int) -> _Field:
        dialect, data_type = self.dialect, self.row_type.fields[at].data_type
        null_text = dialect.null_text or ""
        written = csv_field(column, data_type, dialect.array_separator, null_text, self.plain_decimals)
        if dialect.quote is None:
            written = self._escaped(written, at)
        elif not isinstance(data_type, _BARE):
            is_spaced = isinstance(data_type, _SPACED) and self._last_quoted >= ord(" ")
            if not written.null_count and (is_spaced or self._are_plain_and_long(written)):
                return _Field(written, dialect.quote)
            written = _with_marks(written, dialect.quote) if is_spaced else self._quoted(written, dialect.quote)
        return _Field(pc.fill_null(written, null_text))

    def _are_plain_and_long(self, written: pa.Array) -> bool:
        """Whether all of these need quotes and no escaping: they are long enough to be quoted, and contain none. False
        where that is not obvious."""
        offsets, letters = text_bytes(written)
        special = {ord(each) for each in (self.dialect.quote, self.dialect.escape) if each is not None}
        return bool(
            np.diff(offsets).min() > _UNQUOTED_CHARS_MAX
            and letters.max() < 128
            and not any((letters == each).any() for each in special)
        )

    @property
    def _last_quoted(self) -> int:
        """The greatest character that requires quotes."""
        dialect = self.dialect
        return ord(max(dialect.delimiter, dialect.quote or "\r", dialect.escape or "\r", "\r"))

    def _quoted(self, written: pa.Array, quote: str) -> pa.Array:
        # Jackson quotes some text without checking whether it must.
        is_special = contains_up_to(written, self._last_quoted)
        is_quoted = pc.or_(is_special, pc.greater(pc.utf8_length(written), _UNQUOTED_CHARS_MAX))
        if not pc.any(is_quoted, min_count=0).as_py():
            return written
        if self.dialect.escape is not None:
            written = pc.replace_substring(written, self.dialect.escape, self.dialect.escape * 2)
        # Searching for quotes is expensive, and no text without a special character has one.
        special = written.filter(pc.fill_null(is_special, False))
        has_quotes = pc.any(pc.match_substring(special, quote), min_count=0).as_py()
        doubled = pc.replace_substring(written, quote, quote * 2) if has_quotes else written
        quoted = _with_marks(doubled, quote)
        return quoted if pc.all(is_quoted).as_py() else pc.if_else(is_quoted, quoted, written)

    def _escaped(self, written: pa.Array, at: int) -> pa.Array:
        """Unquoted fields: delimiters and line ends are escaped, or are an error."""
        escape, ends = self.dialect.escape, re.escape(self.dialect.delimiter)
        special = pc.match_substring_regex(written, rf"[{ends}\r\n]" if escape is None else r"[\r\n]")
        if pc.any(special, min_count=0).as_py():
            text = written.filter(pc.fill_null(special, False))[0].as_py()
            raise TypeMismatchError(
                f"column {self.row_type.fields[at].name!r}: {text!r} cannot be written as CSV without quotes. Enable "
                "the quote character, or set 'csv.escape-character'",
                value=text,
            )
        if escape is None:
            return written
        doubled = pc.replace_substring(written, escape, escape * 2)
        return pc.replace_substring(doubled, self.dialect.delimiter, escape + self.dialect.delimiter)


@dataclass(frozen=True)
class CsvTableParts(PartFormat):
    """Files of records."""

    encoder_of_rows: CsvTableEncoder
    suffix = ".csv"
    is_bytes = True

    def encoder(self) -> PartEncoder:
        return line_encoder(self.encoder_of_rows)


def line_encoder(encoder: Any) -> PartEncoder:
    """A chunk of the lines that a row encoder writes."""

    def joined(batch: Batch) -> pa.Buffer:
        lines = encoder.lines(batch)
        return pa.py_buffer(text_bytes(lines)[1])

    return PieceEncoder(joined)
