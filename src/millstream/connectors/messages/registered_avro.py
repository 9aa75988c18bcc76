"""Avro messages with a schema registry: each says by which schema it was written, and is read as that of the rows.

A field that the writer did not know has the default of the reader's schema, one that the reader does not know is left
out, numbers may grow: Avro's rules of schema resolution, as fastavro follows them.
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
    """What a message holds, before it is held against the type. Raises ValueError for one that cannot be read."""
    schema_id = schema_id_of(message)
    writer = registry.schema(schema_id)
    try:
        assert writer.parsed is not None
    except ProgramError as error:
        raise ValueError(f"schema {schema_id} of the registry cannot be used: {error}") from error
    return records.value(message[_HEAD_BYTES:], writer)


class RegisteredAvroDecoder(RowDecoder):
    """Rows from messages that begin with the number of their schema."""

    def __init__(self, records: AvroRecords, registry: SchemaRegistry) -> None:
        self._records, self._registry = records, registry
        self.type_info: TypeInformation = records.type_info
        self.has_columns = has_avro_columns(records.schema.text)

    def columns(self, values: pa.Array) -> ReadColumns | None:
        """Those whose writer had the same schema, at once."""
        heads = pc.binary_slice(values, 0, _HEAD_BYTES)
        is_same = np.zeros(len(values), np.bool_)
        for head in heads.unique().to_pylist():
            if self._is_own(head):
                is_same |= pc.equal(heads, pa.scalar(head, heads.type)).to_numpy(zero_copy_only=False)
        given = values if is_same.all() else values.filter(pa.array(is_same))
        read = avro_columns(given, self._records.schema.text, _HEAD_BYTES)
        if read is None:
            return None
        is_read = is_same.copy()
        is_read[np.flatnonzero(is_same)[~read.is_read]] = False
        return ReadColumns(read.batch, is_read)

    def _is_own(self, head: bytes) -> bool:
        """Whether a message that begins so was written with the schema of the rows."""
        try:
            writer = self._registry.schema(schema_id_of(head))
            return bool(json.loads(writer.text) == json.loads(self._records.schema.text))
        except (ValueError, RecursionError):
            return False

    def rows(self, message: bytes) -> Sequence[Any]:
        return (registered_value(self._records, self._registry, message),)


class RegisteredAvroEncoder(MessageEncoder):
    """Messages that begin with the number of their schema, which is registered when the first is written."""

    def __init__(self, records: AvroRecords, registry: SchemaRegistry, subject: str) -> None:
        self._records, self._registry, self._subject = records, registry, subject

    def encode(self, batch: Batch) -> pa.Array:
        head = registered_head(self._registry.register(self._subject, self._records.schema))
        return AvroEncoder(self._records, head).encode(batch)
