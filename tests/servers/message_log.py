"""An in-memory log of messages, decoded by a schema like any connector's: for tests of formats and dead letters."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from millstream.common.serialization import DeserializationSchema
from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.connectors.messages.codecs import Messages, decoder_of
from millstream.connectors.messages.dead_letters import dead_letters


class MessageLog(Source):
    """One split for each list of messages."""

    bounded = True

    def __init__(self, schema: DeserializationSchema, *partitions: Sequence[bytes | None]) -> None:
        self._schema, self._partitions = schema, partitions
        self.type_info = decoder_of(schema).type_info
        self.dead_letter_tag = schema.dead_letter_tag

    def splits(self, context: SourceContext) -> Sequence[Split]:
        return [Split(str(number)) for number in range(len(self._partitions))]

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        return min(len(self._partitions[int(split.name)]), offset + budget)

    def finished(self, split: Split, offset: Offset) -> bool:
        return bool(offset >= len(self._partitions[int(split.name)]))

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        values = pa.array(self._partitions[int(split.name)][start:stop], pa.binary())
        messages = Messages(values, lambda at: f"topic t, partition {split.name}, offset {start + at}")
        decoded = decoder_of(self._schema).decode(messages)
        letters = dead_letters(decoded, messages, self.dead_letter_tag)
        if letters is not None:
            yield letters
        yield decoded.batch
        return stop
