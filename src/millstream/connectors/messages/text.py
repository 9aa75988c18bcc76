"""Text and bytes, which need no parsing: a message is a record, and a batch of messages directly forms a column.

Text that is invalid in its charset is not an error: invalid bytes become U+FFFD, as in Java, which PyFlink programs
expect. Columns hold UTF-8, so it is only validated; other charsets (UTF-16, Latin-1) are decoded string by string.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from millstream.common.serialization import RowFieldExtractorSchema, SerializationSchema
from millstream.common.typeinfo import RowTypeInfo, TupleTypeInfo, TypeInformation, Types
from millstream.connectors.messages.codecs import Decoded, MessageDecoder, MessageEncoder, Messages, PerMessageEncoder
from millstream.records.batch import Batch
from millstream.records.shapes import is_byte_array, plain_type

__all__ = ["BytesDecoder", "BytesEncoder", "FieldEncoder", "TextDecoder", "TextEncoder"]

_UTF_8 = "utf-8"


def _single_column(column: pa.Array, type_info: TypeInformation) -> Batch:
    return Batch.of_columns(pa.RecordBatch.from_arrays([column], names=["value"]), type_info)


class _ValueDecoder(MessageDecoder):
    """Decodes a record from every message that has a value."""

    type_info: TypeInformation

    def column(self, values: pa.Array) -> pa.Array:
        """The column of messages without nulls."""
        raise NotImplementedError

    def decode(self, messages: Messages) -> Decoded:
        values = messages.values
        origins = np.flatnonzero(np.asarray(values.is_valid())) if values.null_count else None
        present_values = values if origins is None else values.drop_null()
        return Decoded(_single_column(self.column(present_values.cast(pa.binary())), self.type_info), origins)


class TextDecoder(_ValueDecoder):
    """Messages as text of a charset.

    >>> messages = Messages(pa.array(["grüße".encode(), None, b"\\xff"]), str)
    >>> decoded = TextDecoder("utf-8").decode(messages)
    >>> decoded.batch.values(), decoded.origins.tolist()
    (['grüße', '�'], [0, 2])
    """

    def __init__(self, charset: str) -> None:
        self._charset = charset
        self.type_info = Types.STRING()

    def column(self, values: pa.Array) -> pa.Array:
        if self._charset == _UTF_8:
            try:
                return values.cast(pa.string())
            except pa.ArrowInvalid:
                pass  # some of it is not UTF-8
        charset = self._charset
        return pa.array([message.decode(charset, "replace") for message in values.to_pylist()], pa.string())


class BytesDecoder(_ValueDecoder):
    """Messages unchanged."""

    def __init__(self) -> None:
        self.type_info = Types.PRIMITIVE_ARRAY(Types.BYTE())

    def column(self, values: pa.Array) -> pa.Array:
        return values


class _ValueEncoder(MessageEncoder):
    """Encodes every record as a message; None is an error, raised by the schema."""

    def __init__(self, schema: SerializationSchema) -> None:
        self._schema = schema

    def present(self, batch: Batch) -> pa.Array:
        """The records' column, without nulls."""
        column = batch.columns().column(0)
        if column.null_count:
            self._schema.serialize(None)
        return column


class TextEncoder(_ValueEncoder):
    """Encodes text in a charset, for streams of STRING."""

    def __init__(self, schema: SerializationSchema, charset: str) -> None:
        super().__init__(schema)
        self._charset = charset

    def encode(self, batch: Batch) -> pa.Array:
        column = self.present(batch)
        if self._charset == _UTF_8:
            return column.cast(pa.binary())
        charset = self._charset
        return pa.array([text.encode(charset) for text in column.to_pylist()], pa.binary())


class BytesEncoder(_ValueEncoder):
    """Bytes unchanged, for streams of bytes."""

    def encode(self, batch: Batch) -> pa.Array:
        return self.present(batch)


class FieldEncoder(MessageEncoder):
    """One field of rows or tuples: text, bytes, or a whole number as text. None is empty."""

    def __init__(self, schema: RowFieldExtractorSchema, fields: int) -> None:
        self._schema, self._fields = schema, fields

    @classmethod
    def of(cls, schema: RowFieldExtractorSchema, type_info: TypeInformation) -> FieldEncoder | None:
        """The encoder for streams of this type; None if it is not columnar."""
        if not isinstance(type_info, (RowTypeInfo, TupleTypeInfo)):
            return None
        types = [plain_type(field) for field in type_info.get_field_types()]
        if schema.field_index >= len(types):
            return None
        field = types[schema.field_index]
        return cls(schema, len(types)) if field in _WRITTEN_IN_COLUMNS or is_byte_array(field) else None

    def encode(self, batch: Batch) -> pa.Array:
        columns = batch.columns()
        if columns.num_columns != self._fields:  # with row kinds: some rows may be None
            return PerMessageEncoder(self._schema).encode(batch)
        column = columns.column(self._schema.field_index)
        if pa.types.is_integer(column.type):
            column = column.cast(pa.string())
        return column.cast(pa.binary()).fill_null(b"")


_WRITTEN_IN_COLUMNS = (Types.STRING(), Types.LONG(), Types.INT(), Types.SHORT())
