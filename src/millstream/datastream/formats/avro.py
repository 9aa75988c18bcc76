"""Avro records, in files and messages.

Comes with connectors. The names and signatures are PyFlink's, so that programs can be written against them; making
or calling any of them says that it is not built yet, and what does the job meanwhile.
"""

from __future__ import annotations

from typing import Any

from millstream.common.io import InputFormat
from millstream.common.serialization import DeserializationSchema, SerializationSchema
from millstream.common.typeinfo import TypeInformation
from millstream.datastream.utils import ResultTypeQueryable
from millstream.errors import NotYetError

__all__ = [
    "AvroBulkWriters",
    "AvroInputFormat",
    "AvroRowDeserializationSchema",
    "AvroRowSerializationSchema",
    "AvroSchema",
    "GenericRecordAvroTypeInfo",
]

_INSTEAD = "Parquet, JSON or CSV"


def _not_yet(name: str) -> NotYetError:
    return NotYetError.of(name, "connectors", _INSTEAD)


class AvroSchema:
    """PyFlink's `AvroSchema`; not built yet."""

    def __init__(self, j_schema: Any = None) -> None:
        raise _not_yet("AvroSchema")

    @staticmethod
    def parse_string(json_schema: Any = None) -> Any:
        raise _not_yet("AvroSchema.parse_string")

    @staticmethod
    def parse_file(file_path: Any = None) -> Any:
        raise _not_yet("AvroSchema.parse_file")


class GenericRecordAvroTypeInfo(TypeInformation):
    """PyFlink's `GenericRecordAvroTypeInfo`; not built yet."""

    def __init__(self, schema: Any = None) -> None:
        raise _not_yet("GenericRecordAvroTypeInfo")

    def get_java_type_info(self) -> Any:
        raise _not_yet("GenericRecordAvroTypeInfo.get_java_type_info")


class AvroInputFormat(InputFormat, ResultTypeQueryable):
    """PyFlink's `AvroInputFormat`; not built yet."""

    def __init__(self, path: Any = None, schema: Any = None) -> None:
        raise _not_yet("AvroInputFormat")

    def get_produced_type(self) -> Any:
        raise _not_yet("AvroInputFormat.get_produced_type")


class AvroBulkWriters:
    """PyFlink's `AvroBulkWriters`; not built yet."""

    @staticmethod
    def for_generic_record(schema: Any = None) -> Any:
        raise _not_yet("AvroBulkWriters.for_generic_record")


class AvroRowDeserializationSchema(DeserializationSchema):
    """PyFlink's `AvroRowDeserializationSchema`; not built yet."""

    def __init__(self, record_class: Any = None, avro_schema_string: Any = None) -> None:
        raise _not_yet("AvroRowDeserializationSchema")


class AvroRowSerializationSchema(SerializationSchema):
    """PyFlink's `AvroRowSerializationSchema`; not built yet."""

    def __init__(self, record_class: Any = None, avro_schema_string: Any = None) -> None:
        raise _not_yet("AvroRowSerializationSchema")
