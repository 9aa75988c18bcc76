"""Records the input of sources, to replay epochs whose source cannot be read again.

With `millstream.record` on, a task writes the batches it reads to the store, next to the state of its operators, before
any function sees them. The manifest of the epoch names the files (in the account of the source, by split), so they are
retained, collected, copied and protected with it. Only a replay reads them.

A file is an Arrow stream with one column of blocks (`blocks.py`). A file that includes undecodable messages has a
second column, which flags the blocks that hold them.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence

import pyarrow as pa

from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.connectors.messages.dead_letters import DEAD_LETTER_TYPE, DeadLetters
from millstream.errors import StoreDamagedError
from millstream.records.batch import Batch
from millstream.runtime.exchange.blocks import decode_block, encode_block
from millstream.state.stored.accounts import RecordedFile, RecordedSplit
from millstream.state.stored.table_names import RECORDED_INPUT
from millstream.storage.names import segment_name
from millstream.storage.store import Store

__all__ = ["InputRecorder", "RecordedSource"]

_FILE_BYTES = 16 << 20
_SCHEMA = pa.schema([pa.field("block", pa.large_binary())])
_DEAD = "is_dead_letter"


class InputRecorder:
    """Records the input of one attempt of one source subtask in one epoch, split after split."""

    def __init__(self, store: Store, uid: str, epoch: int, subtask: int, nonce: str) -> None:
        self._store, self._uid, self._epoch, self._subtask, self._nonce = store, uid, epoch, subtask, nonce
        self._split_count = self._file_count = 0
        self._begin()

    def _begin(self) -> None:
        self._files: list[RecordedFile] = []
        self._blocks: list[bytes] = []
        self._are_dead: list[bool] = []
        self._bytes = 0

    def add(self, batch: Batch) -> None:
        """Adds a batch of the current split. It is encoded at once: functions may change untyped values."""
        self._add(batch, False)

    def add_dead_letters(self, batch: Batch) -> None:
        """Adds messages that could not be decoded."""
        self._add(batch, True)

    def _add(self, batch: Batch, is_dead: bool) -> None:
        block = encode_block([batch]).to_pybytes()
        self._blocks.append(block)
        self._are_dead.append(is_dead)
        self._bytes += len(block)
        if self._bytes >= _FILE_BYTES:
            self._write()

    def end_split(self, watermark: int | None) -> RecordedSplit:
        """Ends a split at the source's own watermark; returns its entry for the manifest."""
        if self._blocks:
            self._write()
        recorded = RecordedSplit(tuple(self._files), self._subtask, self._split_count, watermark)
        self._split_count += 1
        self._begin()
        return recorded

    def _write(self) -> None:
        sink = pa.BufferOutputStream()
        rows = pa.RecordBatch.from_arrays([pa.array(self._blocks, pa.large_binary())], schema=_SCHEMA)
        if any(self._are_dead):
            rows = rows.append_column(_DEAD, pa.array(self._are_dead, pa.bool_()))
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_batch(rows)
        data = sink.getvalue().to_pybytes()
        # A suffix after the nonce: states of the same operator have files in the same folder.
        nonce = f"{self._nonce}r{self._file_count}"
        name = segment_name(self._uid, RECORDED_INPUT, self._epoch, self._subtask, nonce)
        self._store.put(name, data)
        self._files.append(RecordedFile(name, len(data), zlib.crc32(data)))
        self._file_count += 1
        self._blocks, self._are_dead, self._bytes = [], [], 0


class RecordedSource(Source):
    """Replays the input that `source` read in an epoch. `recorded` holds the manifest's entries, by split."""

    def __init__(self, source: Source, recorded: Mapping[str, RecordedSplit], store: Store) -> None:
        self.bounded, self.type_info, self.single = source.bounded, source.type_info, source.single
        self.carries_timestamps = source.carries_timestamps
        self.dead_letter_tag = source.dead_letter_tag
        self._described = source.describe()
        self._recorded, self._store = dict(recorded), store

    @property
    def subtasks(self) -> dict[str, int]:
        """Which subtask read each split."""
        return {name: split.subtask for name, split in self._recorded.items()}

    def splits(self, context: SourceContext) -> Sequence[Split]:
        """Splits in the order in which each subtask read them."""
        return [Split(name) for name in sorted(self._recorded, key=lambda name: self._recorded[name].number)]

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        return offset  # the whole recording is read

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        for recorded in self._recorded[split.name].files:
            data = self._store.get(recorded.file)
            if len(data) != recorded.bytes or zlib.crc32(data) != recorded.crc32:
                raise StoreDamagedError(
                    f"Store {self._store.url}: {recorded.file!r}, recorded input, was cut or changed after it was "
                    "written. Restore it from a copy"
                )
            with pa.ipc.open_stream(pa.py_buffer(data)) as reader:
                for batch in reader:
                    are_dead = batch.column(1).to_pylist() if batch.num_columns > 1 else [False] * batch.num_rows
                    for block, is_dead in zip(batch.column(0), are_dead, strict=True):
                        if is_dead:
                            yield from map(DeadLetters, decode_block(block.as_buffer(), DEAD_LETTER_TYPE))
                        else:
                            yield from decode_block(block.as_buffer(), self.type_info)
        return stop

    def watermark(self, split: Split, offset: Offset) -> int | None:
        return self._recorded[split.name].watermark

    def describe(self) -> str:
        return f"recorded input of {self._described}"
