"""Encodes records into part files, and assembles the chunks of several epochs into one part.

A writer encodes an epoch's records into chunks. Chunks of line formats are concatenated; the row groups of Parquet
chunks are rewritten into one file. Either way a part holds its records in the order in which the chunks were written.
"""

from __future__ import annotations

import codecs
import json
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from decimal import Decimal
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millstream.common.serialization import Encoder
from millstream.common.typeinfo import TypeInformation
from millstream.common.typeinfo.number_text import number_text
from millstream.common.types import Row
from millstream.connectors.files.csv_text import CsvLines
from millstream.connectors.files.short_floats import with_short_floats
from millstream.connectors.foreign_columns import outward
from millstream.errors import ProgramError
from millstream.records.batch import Batch
from millstream.records.columns import as_declared, stream_schema, to_record_batch
from millstream.records.text import texts

__all__ = [
    "ColumnParts",
    "CsvParts",
    "EncodedParts",
    "JsonParts",
    "ParquetParts",
    "PartEncoder",
    "PartFormat",
    "PieceEncoder",
    "TextParts",
    "parts_of_encoder",
    "plain_json",
]


class PartEncoder(ABC):
    """Encodes the records of one chunk."""

    @abstractmethod
    def add(self, batch: Batch) -> None:
        """Encode a batch."""

    @abstractmethod
    def size_bytes(self) -> int:
        """Approximate current size of the chunk."""

    def drain(self, bytes_min: int) -> memoryview:
        """Remove and return the next bytes of the chunk; empty while there are fewer than `bytes_min`, and for a format
        that is final only at its end."""
        return memoryview(b"")

    @abstractmethod
    def finish(self) -> bytes:
        """The remaining bytes of the chunk."""


class PartFormat(ABC):
    """The file format of a part."""

    suffix: str = ""
    """The default file ending."""
    whole_chunks: bool = True
    """True when a single chunk is a complete part, so that publishing it only means renaming it."""

    is_bytes: bool = False
    """True when concatenated parts, with any separator between them, are a file of this format."""

    @abstractmethod
    def encoder(self) -> PartEncoder:
        """An encoder for one chunk. Called in the task."""

    def assemble(self, chunks: Sequence[bytes]) -> bytes:
        """The part made of these chunks. Called on the driver."""
        return b"".join(chunks)


class PieceEncoder(PartEncoder):
    """Encodes a chunk of a row format: the concatenated bytes of its records. `encode` returns the bytes of a batch."""

    def __init__(self, encode: Callable[[Batch], Any]) -> None:
        self._encode = encode
        self._pieces: list[Any] = []
        self._size_bytes = self._drained_bytes = 0

    def add(self, batch: Batch) -> None:
        piece = self._encode(batch)
        self._pieces.append(piece)
        self._size_bytes += len(piece)

    def size_bytes(self) -> int:
        return self._size_bytes

    def drain(self, bytes_min: int) -> memoryview:
        if self._size_bytes - self._drained_bytes < bytes_min:
            return memoryview(b"")
        pieces, self._pieces, self._drained_bytes = self._pieces, [], self._size_bytes
        # A single piece may be an Arrow buffer, which need not be copied to be written.
        return memoryview(pieces[0] if len(pieces) == 1 else b"".join(pieces))

    def finish(self) -> bytes:
        return b"".join(self._pieces)


class _RowFormat(PartFormat):
    is_bytes = True

    def encoder(self) -> PartEncoder:
        return PieceEncoder(lambda batch: self.encode(batch.values(), batch.type_info))

    @abstractmethod
    def encode(self, values: list[Any], type_info: TypeInformation | None = None) -> bytes:
        """The concatenated bytes of these records, for a stream of this type."""


@dataclass(frozen=True)
class TextParts(_RowFormat):
    r"""Each record as a line of text, in Flink's text form of the stream's type (`records/text`).

    >>> TextParts().encode(["a", 1])
    b'a\n1\n'
    """

    charset: str = "UTF-8"

    def __post_init__(self) -> None:
        _check_charset(self.charset)

    def encode(self, values: list[Any], type_info: TypeInformation | None = None) -> bytes:
        try:
            return self._lines(values, type_info)
        except UnicodeEncodeError as error:
            letter = error.object[error.start]
            raise ProgramError(
                f"The charset {self.charset} has no {letter!r}, which is in {_line_at(error)!r}. Write UTF-8: "
                "Encoder.simple_string_encoder()"
            ) from error

    def _lines(self, values: list[Any], type_info: TypeInformation | None) -> bytes:
        try:
            # Most text streams are str already; the join itself detects other values.
            lines = values
            text = "\n".join(lines)
        except TypeError:
            lines = texts(values, type_info)
            text = "\n".join(lines)
        if "\n".encode(self.charset) != b"\n":
            # In this charset each string starts with a byte order mark, as in UTF-16: Flink encodes record by record.
            return b"".join([f"{line}\n".encode(self.charset) for line in lines])
        return (text + "\n").encode(self.charset) if values else b""


@dataclass(frozen=True)
class EncodedParts(_RowFormat):
    """Records encoded by the user's encoder: an object with `encode(value) -> bytes`."""

    encode_value: Any

    def encode(self, values: list[Any], type_info: TypeInformation | None = None) -> bytes:
        pieces = list(map(self.encode_value.encode, values))
        try:
            return b"".join(pieces)
        except TypeError:
            invalid = next(piece for piece in pieces if not isinstance(piece, (bytes, bytearray, memoryview)))
            raise ProgramError(
                f"{type(self.encode_value).__name__}.encode returned {invalid!r} ({type(invalid).__name__}), expected "
                "bytes: the record as written to the file, with its line end"
            ) from None


def parts_of_encoder(encoder: Encoder) -> PartFormat:
    """The part format of `encoder`; the built-in string encoder uses the type of the stream.

    >>> parts_of_encoder(Encoder.simple_string_encoder())
    TextParts(charset='utf-8')
    """
    usual = Encoder.simple_string_encoder()
    if type(encoder) is type(usual):
        return TextParts(vars(encoder)["_charset"])
    return EncodedParts(encoder)


@dataclass(frozen=True)
class JsonParts(_RowFormat):
    r"""One JSON document per line; rows become objects. FLOATs have the digits of 32-bit precision. NaN and
    infinities, which are not JSON numbers, are text, as in Flink.

    >>> JsonParts().encode([Row(a=1, b="x"), {"c": [None]}])
    b'{"a":1,"b":"x"}\n{"c":[null]}\n'
    """

    suffix = ".json"

    def encode(self, values: list[Any], type_info: TypeInformation | None = None) -> bytes:
        write = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=plain_json).encode
        documents = with_short_floats(values, type_info)
        try:
            lines = [write(value) + "\n" for value in documents]
        except ValueError:
            lines = [write(_without_odd_numbers(value)) + "\n" for value in documents]
        return "".join(lines).encode("utf-8")


@dataclass(frozen=True)
class CsvParts(_RowFormat):
    r"""Rows as CSV records, quoted as Flink does (`csv_text`); `header` writes the column names once per file. With a
    `row_type`, records of other types are converted to it: fields by name; a value that does not fit is an error.

    >>> CsvParts(("name", "note")).encode([Row("a", 'say "hi", twice'), ("b", None)])
    b'a,"say ""hi"", twice"\nb,\n'
    """

    columns: tuple[str, ...] = ()
    delimiter: str = ","
    quote: str = '"'
    null_text: str = ""
    header: bool = False
    array_separator: str = ";"
    separators: tuple[tuple[int, str], ...] = ()
    row_type: TypeInformation | None = None
    suffix = ".csv"

    def __post_init__(self) -> None:
        if self.header and not self.columns:
            raise ProgramError("CsvParts: a header needs the names of the columns. Pass columns=(…).")

    @property
    def whole_chunks(self) -> bool:  # type: ignore[override]
        return not self.header

    @property
    def is_bytes(self) -> bool:  # type: ignore[override]
        return not self.header

    def encode(self, values: list[Any], type_info: TypeInformation | None = None) -> bytes:
        if self.row_type is not None and type_info != self.row_type:
            values, type_info = as_declared(values, self.row_type), self.row_type
        return self._lines(values, type_info)

    def _lines(self, values: list[Any], type_info: TypeInformation | None) -> bytes:
        lines = CsvLines(self.delimiter, self.quote, self.null_text, self.array_separator, self.separators)
        return "".join([f"{line}\n" for line in lines.write(values, type_info)]).encode("utf-8")

    def assemble(self, chunks: Sequence[bytes]) -> bytes:
        head = self._lines([self.columns], None) if self.header else b""
        return head + b"".join(chunks)


@dataclass(frozen=True)
class ColumnParts(PartFormat):
    """A columnar format: of the stream's type, or of `type_info` when the stream itself is untyped."""

    type_info: TypeInformation | None = None
    format_name = ""

    def encoder(self) -> PartEncoder:
        return _Columns(self)

    def assemble(self, chunks: Sequence[bytes]) -> bytes:
        return self.written(table for chunk in chunks for table in self.tables(chunk))

    @abstractmethod
    def written(self, tables: Iterable[pa.Table]) -> bytes:
        """A file that holds these tables, in order."""

    @abstractmethod
    def tables(self, chunk: bytes) -> Iterator[pa.Table]:
        """The tables of a chunk, one piece at a time."""


@dataclass(frozen=True)
class ParquetParts(ColumnParts):
    """Parquet of the stream's type, or of `type_info` when the stream itself is untyped."""

    compression: str = "snappy"
    suffix = ".parquet"
    format_name = "Parquet"

    def written(self, tables: Iterable[pa.Table]) -> bytes:
        sink = pa.BufferOutputStream()
        pieces = iter(tables)
        first = next(pieces)
        with pq.ParquetWriter(sink, first.schema, compression=self.compression) as writer:
            for table in chain([first], pieces):
                writer.write_table(table)
        return bytes(sink.getvalue())

    def tables(self, chunk: bytes) -> Iterator[pa.Table]:
        file = pq.ParquetFile(pa.BufferReader(chunk))
        return (file.read_row_group(group) for group in range(file.num_row_groups))


class _Columns(PartEncoder):
    def __init__(self, format: ColumnParts) -> None:
        self._format = format
        self._batches: list[pa.RecordBatch] = []

    def add(self, batch: Batch) -> None:
        name, type_info = self._format.format_name, self._format.type_info or batch.type_info
        schema = None if type_info is None else stream_schema(type_info)
        if type_info is None or schema is None:
            raise ProgramError(
                f"A file sink of {name} needs to know the type of its records, and this stream is untyped. "
                "Pass output_type= to the operator before it, or a row type to the sink."
            )
        same = batch.typed and batch.type_info == type_info
        columns = batch.columns() if same else to_record_batch(batch.values(), type_info)
        if len(columns.schema) != len(schema):
            raise ProgramError(
                f"A file sink of {name} takes new rows only, and this batch holds updates or deletions. "
                "Filter the rows by their kind before the sink."
            )
        self._batches.append(outward(columns, type_info))

    def size_bytes(self) -> int:
        return sum(batch.nbytes for batch in self._batches)

    def finish(self) -> bytes:
        return self._format.written([pa.Table.from_batches(self._batches)])


def _line_at(error: UnicodeEncodeError) -> str:
    """The line that contains the failing character."""
    text = error.object
    end = text.find("\n", error.start)
    return text[text.rfind("\n", 0, error.start) + 1 : len(text) if end < 0 else end]


def _without_odd_numbers(value: Any) -> Any:
    """The value with non-finite numbers replaced by text.

    >>> _without_odd_numbers({"a": [float("nan"), 1.5]})
    {'a': ['NaN', 1.5]}
    """
    if isinstance(value, float) and not math.isfinite(value):
        return number_text(value)
    if isinstance(value, Row):
        value = value.as_dict()
    if isinstance(value, dict):
        return {key: _without_odd_numbers(item) for key, item in value.items()}
    is_list = isinstance(value, list | tuple | set | frozenset)
    return [_without_odd_numbers(item) for item in value] if is_list else value


def _check_charset(charset: str) -> None:
    try:
        codecs.lookup(charset)
    except LookupError as error:
        raise ProgramError(f"Charset {charset!r} is not known. Use a name such as 'UTF-8'.") from error


def plain_json(value: Any) -> Any:
    """Converts a value that JSON cannot represent to text or an object."""
    if isinstance(value, Row):
        return value.as_dict()
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, (set, frozenset)):
        return list(value)
    raise ProgramError(f"JSON cannot hold {value!r} ({type(value).__name__}). Map it to text or numbers first.")
