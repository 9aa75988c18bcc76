"""Avro messages with a schema registry: each message identifies its writer's schema, and is read with the schema of the
rows.

Follows Avro's schema resolution, as implemented by fastavro: a field that the writer lacks gets the default of the
reader's schema, a field that the reader lacks is dropped, and numbers may be widened.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.messages.avro import AvroEncoder, AvroRecords
from millstream.connectors.messages.avro_columns import avro_columns, has_avro_columns
from millstream.connectors.messages.codecs import MessageEncoder
from millstream.connectors.messages.registry import SchemaRegistry, registered_head, schema_id_of
from millstream.connectors.messages.row_decoder import ReadColumns, RowDecoder
from millstream.errors import ProgramError
from millstream.records.batch import Batch

__all__ = ["RegisteredAvroDecoder", "RegisteredAvroEncoder", "registered_value"]

_HEAD_BYTES = 5


def registered_value(records: AvroRecords, registry: SchemaRegistry, message: bytes) -> Any:
    """The content of a message, before its type check. Raises ValueError for one that cannot be read."""
    schema_id = schema_id_of(message)
    writer = registry.schema(schema_id)
    try:
        assert writer.parsed is not None
    except ProgramError as error:
        raise ValueError(f"schema {schema_id} of the registry is not usable: {error}") from error
    return records.value(message[_HEAD_BYTES:], writer)


class RegisteredAvroDecoder(RowDecoder):
    """Decodes rows from messages that start with the number of their schema."""

    def __init__(self, records: AvroRecords, registry: SchemaRegistry) -> None:
        self._records, self._registry = records, registry
        self.type_info: TypeInformation = records.type_info
        self.has_columns = has_avro_columns(records.schema.text)

    def columns(self, values: pa.Array) -> ReadColumns | None:
        """The messages written with the reader's schema, all at once."""
        heads = pc.binary_slice(values, 0, _HEAD_BYTES)
        is_same = np.zeros(len(values), np.bool_)
        for head in heads.unique().to_pylist():
            if self._is_own(head):
                is_same |= pc.equal(heads, pa.scalar(head, heads.type)).to_numpy(zero_copy_only=False)
        own_messages = values if is_same.all() else values.filter(pa.array(is_same))
        read = avro_columns(own_messages, self._records.schema.text, _HEAD_BYTES)
        if read is None:
            return None
        is_read = is_same.copy()
        is_read[np.flatnonzero(is_same)[~read.is_read]] = False
        return ReadColumns(read.batch, is_read)

    def _is_own(self, head: bytes) -> bool:
        """Whether a message with this start was written with the schema of the rows."""
        try:
            writer = self._registry.schema(schema_id_of(head))
            return bool(json.loads(writer.text) == json.loads(self._records.schema.text))
        except (ValueError, RecursionError):
            return False

    def rows(self, message: bytes) -> Sequence[Any]:
        return (registered_value(self._records, self._registry, message),)


class RegisteredAvroEncoder(MessageEncoder):
    """Encodes messages that start with the number of their schema, which is registered before the first is written."""

    def __init__(self, records: AvroRecords, registry: SchemaRegistry, subject: str) -> None:
        self._records, self._registry, self._subject = records, registry, subject

    def encode(self, batch: Batch) -> pa.Array:
        head = registered_head(self._registry.register(self._subject, self._records.schema))
        return AvroEncoder(self._records, head).encode(batch)
