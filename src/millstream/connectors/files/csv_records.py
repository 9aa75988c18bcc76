"""CSV files, read from the front: a quoted field may contain line breaks, so only the parser determines where a record
starts.

The offset is the byte position of a record's start. The parser is fed line by line; after each record, the number of
bytes consumed defines where the next record starts.
"""

from __future__ import annotations

import csv
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO, Literal

from millstream.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation
from millstream.connectors.contracts import Offset, Read, Split
from millstream.connectors.files.formats import BadRecords, ByteFormat, opened_bytes
from millstream.connectors.files.unpacking import is_compressed
from millstream.connectors.files.values import Converter, text_converter
from millstream.errors import JobFailedError, ProgramError, TypeMismatchError
from millstream.records.columns import to_record_batch

__all__ = ["CsvDialect", "CsvRecords", "ParsedRecords"]

_LOG = logging.getLogger(__name__)
_BATCH_RECORDS = 16_384
_FIELD_CHARS_MAX = 256 * 1024 * 1024


@dataclass(frozen=True)
class CsvDialect:
    """The syntax of fields. `header`: 'skip' the first record, or read the columns' 'names' from it; 'position' works
    like 'names' if the header names all columns, and otherwise skips it, as Flink does. `column_separators` are the
    separators inside lists and rows of single columns, by position; other columns use `array_separator`."""

    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None
    null_text: str | None = None
    array_separator: str = ";"
    header: Literal["none", "skip", "names", "position"] = "none"
    comments: bool = False
    column_separators: tuple[tuple[int, str], ...] = ()

    def __post_init__(self) -> None:
        for name in ("delimiter", "quote", "escape"):
            letter = getattr(self, name)
            if letter is not None and (len(letter) != 1 or letter in "\r\n"):
                raise ProgramError(f"CSV {name} is {letter!r}. Use one character other than a line end.")

    def separator(self, position: int) -> str:
        """The separator between the elements of a list or row in the column at this position."""
        return dict(self.column_separators).get(position, self.array_separator)


class CsvRecords(ByteFormat):
    """Records of a ROW or TUPLE type, a field per column in the type's order (by name with `header='names'`)."""

    name = "CSV"
    cuttable = False

    def __init__(
        self, type_info: TypeInformation, dialect: CsvDialect | None = None, ignore_parse_errors: bool = False
    ) -> None:
        if not isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
            raise ProgramError(f"CSV files hold records of several fields, not {type_info}. Use a ROW or TUPLE type.")
        self.type_info: TypeInformation = type_info
        self.dialect = dialect or CsvDialect()
        self.ignore_parse_errors = ignore_parse_errors
        self._width = len(type_info.get_field_types())
        self._names = type_info.get_field_names() if isinstance(type_info, RowTypeInfo) else []
        # Checked here, so that a type that CSV cannot hold is reported where the program declares it.
        self._converters()

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        if isinstance(start, dict):
            return start
        path = split.info["path"]
        bad = BadRecords(path, self.name, self.ignore_parse_errors)
        # The csv module's limit is global to this process; it is only ever raised here.
        csv.field_size_limit(max(csv.field_size_limit(), _FIELD_CHARS_MAX))
        size = None if is_compressed(path) else split.info["size"]
        with opened_bytes(split) as file:
            order = None
            if self.dialect.header in ("names", "position"):
                order = self._order(file, size, path, is_logged=start == 0)
            file.seek(start)
            records = ParsedRecords(file, start, size, self.dialect, bad)
            if start == 0 and self.dialect.header != "none":
                records.next()
            rows: list[tuple[int, list[str]]] = []
            while records.position < stop and (row := records.next()) is not None:
                rows.append(row)
                if len(rows) >= _BATCH_RECORDS:
                    yield self._batch(rows, order, bad)
                    rows = []
            if rows:
                yield self._batch(rows, order, bad)
        bad.report()
        return {"end": records.position} if size is None and records.has_ended else records.position

    def _order(self, file: BinaryIO, size: int | None, path: str, is_logged: bool) -> list[int] | None:
        """The position in this file of each field of the type, by the names in its first record; None: the type's
        order, logged once per file."""
        file.seek(0)
        first = ParsedRecords(file, 0, size, self.dialect, BadRecords(path, self.name, False)).next()
        header = [] if first is None else [name.strip() for name in first[1]]
        missing = [name for name in self._names if name not in header]
        if missing and self.dialect.header == "position":
            if is_logged and first is not None:
                _LOG.warning(
                    "%s: its first line %s does not name all columns %s, so it is skipped and columns are matched by "
                    "position. "
                    "Use set_use_header() for files with a header only; set_strict_headers() makes this an error",
                    path,
                    header,
                    list(self._names),
                )
            return None
        if missing:
            raise JobFailedError(
                f"File {path} has the columns {header}, and {missing} of the declared type is missing. "
                f"Correct the header, or the names of the type."
            )
        return [header.index(name) for name in self._names]

    def _batch(self, rows: list[tuple[int, list[str]]], order: list[int] | None, bad: BadRecords) -> Any:
        try:
            return to_record_batch(self._values([row for _, row in rows], order), self.type_info)
        except (ValueError, TypeMismatchError):
            good = []
            for position, row in rows:
                try:
                    [value] = self._values([row], order)
                    to_record_batch([value], self.type_info)
                    good.append(value)
                except (ValueError, TypeMismatchError) as error:
                    bad.add(position, self.dialect.delimiter.join(row), str(error).rstrip("."))
            return to_record_batch(good, self.type_info)

    def _values(self, rows: list[list[str]], order: list[int] | None) -> list[tuple[Any, ...]]:
        """Converts the records, one column at a time."""
        for row in rows:
            if len(row) != self._width and (order is None or len(row) <= max(order)):
                raise ValueError(f"it has {len(row)} fields, expected {self._width}")
        columns = list(zip(*rows, strict=order is None))
        selected_columns = columns if order is None else [columns[at] for at in order]
        converted_columns = [
            self._column(position, column, converter)
            for position, (column, converter) in enumerate(zip(selected_columns, self._converters(), strict=True))
        ]
        return list(zip(*converted_columns, strict=True))

    def _column(self, position: int, texts: tuple[str, ...], convert: Converter | None) -> Any:
        null_text = self.dialect.null_text
        if convert is None:
            return texts if null_text is None else [None if text == null_text else text for text in texts]
        try:
            # An empty field is NULL for numbers and dates, and the empty text for text.
            return [None if text == null_text or not text else convert(text) for text in texts]
        except ValueError as error:
            name = repr(self._names[position]) if self._names else position + 1
            raise ValueError(f"column {name}: {error}") from error

    def _converters(self) -> list[Converter | None]:
        assert isinstance(self.type_info, (RowTypeInfo, TupleTypeInfo))
        types = self.type_info.get_field_types()
        return [text_converter(field, self.dialect.separator(at)) for at, field in enumerate(types)]


class ParsedRecords:
    """Reads parsed records one at a time, each with the byte position of the next one."""

    def __init__(self, file: BinaryIO, start: int, size: int | None, dialect: CsvDialect, bad: BadRecords) -> None:
        self.position = start
        self.has_ended = False
        self._file = file
        self._size = size
        self._dialect = dialect
        self._bad = bad
        self._raw: list[str] = []
        self._reader = self._parser()

    def next(self) -> tuple[int, list[str]] | None:
        """The next record with its position; None at the end of the file."""
        while True:
            start, self._raw = self.position, []
            try:
                row = next(self._reader)
            except StopIteration:
                self.has_ended = True
                return None
            except csv.Error as error:
                self._bad.add(start, "".join(self._raw), str(error))
                self._reader = self._parser()
                continue
            if row and not (self._dialect.comments and self._raw[0].startswith("#")):
                return start, row

    def _parser(self) -> Iterator[list[str]]:
        dialect = self._dialect
        return csv.reader(
            self._lines(),
            delimiter=dialect.delimiter,
            quotechar=dialect.quote,
            quoting=csv.QUOTE_NONE if dialect.quote is None else csv.QUOTE_MINIMAL,
            escapechar=dialect.escape,
            strict=True,
        )

    def _lines(self) -> Iterator[str]:
        while line := self._file.readline(-1 if self._size is None else self._size - self.position):
            text = line.decode("utf-8", "replace")
            if self.position == 0:
                text = text.removeprefix("\ufeff")
            self.position += len(line)
            self._raw.append(text)
            yield text
