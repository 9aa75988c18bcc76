"""Unreadable messages and their side output.

Without a tag a bad message stops the job, with an error that shows its position and bytes. With a tag
(`schema.with_dead_letters(tag)`) a source yields `DeadLetters` in addition to its records, and
`stream.get_side_output(tag)` is a stream of them. They belong to their epoch like any record: they are reread after a
crash, and published once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from millstream.common.typeinfo import RowTypeInfo, Types
from millstream.connectors.messages.codecs import Decoded, Messages, bad_message_error
from millstream.records.batch import Batch
from millstream.records.columns import stream_schema

__all__ = ["DEAD_LETTER_TYPE", "DeadLetters", "dead_letters"]

_BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
DEAD_LETTER_TYPE: RowTypeInfo = Types.ROW_NAMED(
    ["place", "reason", "key", "value"], [Types.STRING(), Types.STRING(), _BYTES, _BYTES]
)
"""An unreadable message: its place, the reason, and its original bytes."""


@dataclass(frozen=True)
class DeadLetters:
    """A source's output for unreadable messages: rows of `DEAD_LETTER_TYPE`."""

    batch: Batch


def dead_letters(decoded: Decoded, messages: Messages, tag: Any) -> DeadLetters | None:
    """Handles a connector's unreadable messages: None without any; without a `tag` (the schema's), an error for the
    first; else the item to yield in addition to the records.

    >>> from millstream.connectors.messages.codecs import BadMessage
    >>> messages = Messages(pa.array([b"a", b"x"]), lambda i: f"offset {i}")
    >>> decoded = Decoded(Batch.of_values([1], Types.INT()), None, (BadMessage(1, "no number"),))
    >>> dead_letters(decoded, messages, "bad").batch.values()
    [Row(place='offset 1', reason='no number', key=None, value=b'x')]
    """
    if not decoded.bad:
        return None
    if tag is None:
        raise bad_message_error(decoded.bad[0], messages) from decoded.bad[0].error
    at = [bad.index for bad in decoded.bad]
    keys = pa.nulls(len(at), pa.binary()) if messages.keys is None else messages.keys.take(at).cast(pa.binary())
    columns = [
        pa.array([messages.place(index) for index in at], pa.string()),
        pa.array([bad.reason for bad in decoded.bad], pa.string()),
        keys,
        messages.values.take(at).cast(pa.binary()),
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=stream_schema(DEAD_LETTER_TYPE))
    return DeadLetters(Batch.of_columns(batch, DEAD_LETTER_TYPE))
