"""Schemas and encoders: convert values to bytes and back at the edge of a job.

PyFlink's schemas are handles on Java objects. Here they are ordinary Python: `serialize`, `deserialize` and
`produced_type` do the work, and a program may subclass and override them. A schema holds only settings, never an open
file or connection, so it can be sent to tasks.
"""

from __future__ import annotations

import codecs
import copy
from typing import TYPE_CHECKING, Any

from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.types import Row
from millstream.common.utils import JavaObjectWrapper, refuse_java
from millstream.errors import NotAvailableError, ProgramError, TypeMismatchError
from millstream.pyflink_names import add_pyflink_names

if TYPE_CHECKING:
    from typing import Self

    from millstream.connectors.messages.codecs import MessageDecoder, MessageEncoder

__all__ = [
    "BulkWriterFactory",
    "ByteArraySchema",
    "DeserializationSchema",
    "Encoder",
    "RowDataBulkWriterFactory",
    "RowFieldExtractorSchema",
    "SerializationSchema",
    "SimpleStringSchema",
]


class SerializationSchema:
    """Converts a value to bytes.

    >>> class Upper(SerializationSchema):
    ...     def serialize(self, value):
    ...         return value.upper().encode()
    >>> Upper().serialize("a")
    b'A'
    """

    def __init__(self, j_serialization_schema: Any = None) -> None:
        refuse_java(j_serialization_schema, "SerializationSchema", "subclass it and override serialize(value)")

    def serialize(self, value: Any) -> bytes:
        """The value's bytes; subclasses implement it."""
        raise ProgramError(
            f"{type(self).__name__} does not say how to write. Override serialize(self, value) -> bytes."
        )

    def column_encoder(self, input_type: TypeInformation | None) -> MessageEncoder | None:
        """The columnar encoder of rows of `input_type`; None (the default): `serialize` is called for each row."""
        return None


class DeserializationSchema:
    """Converts bytes to a value."""

    dead_letter_tag: Any = None
    """The side output of unreadable messages; None: the first of them stops the job."""

    def __init__(self, j_deserialization_schema: Any = None) -> None:
        refuse_java(j_deserialization_schema, "DeserializationSchema", "subclass it and override deserialize(message)")

    def deserialize(self, message: bytes) -> Any:
        """The value of the bytes; None skips the message. Subclasses implement it."""
        raise ProgramError(f"{type(self).__name__} does not say how to read. Override deserialize(self, message).")

    def produced_type(self) -> TypeInformation:
        """The type of the values; untyped unless a subclass overrides it."""
        return Types.PICKLED_BYTE_ARRAY()

    @property
    def leaves_out_bad_messages(self) -> bool:
        """Whether unreadable messages are skipped silently, because the program requested it."""
        return False

    def with_dead_letters(self, tag: Any) -> Self:
        """This schema, with unreadable messages sent to a side output of the source (beyond PyFlink).

        `stream.get_side_output(tag)` is then a stream of rows (place, reason, key, value), in which `value` holds the
        message's bytes.
        """
        if not isinstance(getattr(tag, "tag_id", None), str):
            raise ProgramError(f"with_dead_letters: found {tag!r}, expected an OutputTag, such as OutputTag('bad').")
        if self.leaves_out_bad_messages:
            raise ProgramError("with_dead_letters: this schema leaves out messages that cannot be read. Keep one.")
        schema = copy.copy(self)
        schema.dead_letter_tag = tag
        return schema

    def column_decoder(self) -> MessageDecoder | None:
        """The columnar decoder of messages; None (the default): `deserialize` is called for each message."""
        return None


def _charset(name: str) -> str:
    try:
        return codecs.lookup(name).name
    except (LookupError, TypeError):
        raise ProgramError(f"charset {name!r} is unknown to Python. Use a name such as 'UTF-8'.") from None


class SimpleStringSchema(SerializationSchema, DeserializationSchema):
    """Text in a charset.

    >>> SimpleStringSchema().deserialize(SimpleStringSchema().serialize("grüße"))
    'grüße'
    """

    def __init__(self, charset: str = "UTF-8") -> None:
        super().__init__()
        self._charset = _charset(charset)

    @property
    def charset(self) -> str:
        """The charset, under Python's name for it."""
        return self._charset

    def serialize(self, value: str) -> bytes:
        if not isinstance(value, str):
            raise TypeMismatchError(
                f"SimpleStringSchema got {value!r} ({type(value).__name__}), expected a str. Map values to text first.",
                value=value,
            )
        return value.encode(self._charset)

    def deserialize(self, message: bytes) -> str:
        # Java's String replaces unreadable bytes rather than fail, and PyFlink programs expect that.
        return message.decode(self._charset, errors="replace")

    def produced_type(self) -> TypeInformation:
        return Types.STRING()


class ByteArraySchema(SerializationSchema, DeserializationSchema):
    """Bytes, unchanged.

    >>> ByteArraySchema().serialize(b"ab")
    b'ab'
    """

    def __init__(self) -> None:
        super().__init__()

    def serialize(self, value: bytes) -> bytes:
        if not isinstance(value, (bytes, bytearray)):
            raise TypeMismatchError(
                f"ByteArraySchema got {value!r} ({type(value).__name__}), expected bytes. Map values to bytes first.",
                value=value,
            )
        return bytes(value)

    def deserialize(self, message: bytes) -> bytes:
        return bytes(message)

    def produced_type(self) -> TypeInformation:
        return Types.PRIMITIVE_ARRAY(Types.BYTE())


class RowFieldExtractorSchema(SerializationSchema):
    """Writes one field of a row, by position: for example a key for Kafka. Bytes stay bytes, other values are text.

    >>> RowFieldExtractorSchema(0).serialize(Row("user-1", 7))
    b'user-1'
    """

    def __init__(self, field_index: int) -> None:
        super().__init__()
        if isinstance(field_index, bool) or not isinstance(field_index, int) or field_index < 0:
            raise ProgramError(f"field_index is {field_index!r}, expected a position: 0, 1, 2 and so on.")
        self.field_index = field_index

    def serialize(self, value: Any) -> bytes:
        if not isinstance(value, (Row, tuple)) or len(value) <= self.field_index:
            raise TypeMismatchError(
                f"RowFieldExtractorSchema got {value!r} ({type(value).__name__}), "
                f"expected a row with a field {self.field_index}. Declare the stream as Types.ROW.",
                value=value,
            )
        field = value[self.field_index]
        if field is None:
            return b""
        if isinstance(field, (bytes, bytearray)):
            return bytes(field)
        return (str(field).lower() if isinstance(field, bool) else str(field)).encode()


class Encoder:
    """Writes a record into a file of records.

    >>> Encoder.simple_string_encoder().encode("a")
    b'a\\n'
    """

    def __init__(self, j_encoder: Any = None) -> None:
        refuse_java(j_encoder, "Encoder(j_encoder)", "use Encoder.simple_string_encoder() or override encode(value)")

    @staticmethod
    def simple_string_encoder(charset_name: str = "UTF-8") -> Encoder:
        """Each value's text on a separate line. In a file sink the text follows the declared type of the stream, as in
        Flink: `(hi,1)` for a TUPLE, `+I[a, null]` for a ROW. A value without a type has Python's text."""
        return _SimpleStringEncoder(charset_name)

    def encode(self, value: Any) -> bytes:
        """The record's bytes, including the separator after it; subclasses implement it."""
        raise ProgramError(f"{type(self).__name__} does not say how to write. Override encode(self, value) -> bytes.")


class _SimpleStringEncoder(Encoder):
    def __init__(self, charset_name: str) -> None:
        super().__init__()
        self._charset = _charset(charset_name)

    def encode(self, value: Any) -> bytes:
        return f"{value}\n".encode(self._charset)


class BulkWriterFactory(JavaObjectWrapper):
    """Makes writers of whole files. The formats (Parquet, CSV) have their own in Python."""

    def __init__(self, j_bulk_writer_factory: Any = None) -> None:
        refuse_java(j_bulk_writer_factory, type(self).__name__, "use ParquetBulkWriters.for_row_type(...) and such")
        super().__init__()


class RowDataBulkWriterFactory(BulkWriterFactory):
    """Makes writers of whole files of rows.

    >>> RowDataBulkWriterFactory(None, Types.ROW([Types.INT()])).get_row_type()
    Types.ROW([Types.INT()])
    """

    def __init__(self, j_bulk_writer_factory: Any = None, row_type: Any = None) -> None:
        super().__init__(j_bulk_writer_factory)
        self._row_type = row_type

    def get_row_type(self) -> Any:
        """The type of the rows written."""
        if self._row_type is None:
            raise NotAvailableError(f"this {type(self).__name__} was made without a row type. Pass row_type=.")
        return self._row_type


add_pyflink_names(globals())
