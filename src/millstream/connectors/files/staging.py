"""Writes a chunk, the output of one task attempt for one bucket of a file sink, into the staging folder.

In a local folder a chunk of a concatenable format is written piece by piece as records arrive, under
its own name: memory holds one piece, which is still in the CPU cache when it is written. The name contains the
attempt and is unknown to readers until the epoch's manifest lists it, and `staged` syncs the file before
that. An attempt that fails leaves a partial chunk that no manifest lists, which is swept like any chunk of a lost
attempt. Elsewhere, and in formats that are written as a whole, a chunk is buffered in memory and written by one put.
"""

from __future__ import annotations

import zlib
from functools import partial

from millstream.connectors.files.parts import PartEncoder
from millstream.connectors.files.publishing import folder_of, service_of
from millstream.records.batch import Batch
from millstream.storage.local import LocalStore
from millstream.storage.patience import patiently
from millstream.storage.store import Store

__all__ = ["PIECE_BYTES", "ChunkWriter"]

PIECE_BYTES = 1 << 20
"""Size at which a piece is written."""


class ChunkWriter:
    """Writes one chunk as the file `file` of the target. `bytes` and `crc32` describe the bytes written."""

    def __init__(self, target: Store, file: str, index: int, encoder: PartEncoder) -> None:
        self.file, self.index, self.records = file, index, 0
        self.bytes = self.crc32 = 0
        self._target, self._folder, self._encoder = target, folder_of(target), encoder

    @property
    def size_bytes(self) -> int:
        """Approximate current size."""
        return self._encoder.size_bytes()

    def add(self, batch: Batch) -> None:
        """Encode a batch, and write complete pieces."""
        self._encoder.add(batch)
        self.records += batch.length
        if self._folder is not None and (piece := self._encoder.drain(PIECE_BYTES)):
            self._append(self._folder, piece)

    def staged(self) -> str:
        """Complete the chunk and make it durable. Returns the entity tag assigned by an object store, else ""."""
        rest, service, mark = self._encoder.finish(), service_of(self._target), ""
        if self._folder is not None and self.bytes:
            self._append(self._folder, rest)
            self._target.settle(self.file)
            return mark
        if service is not None:
            mark = patiently(partial(service.put_marked, self.file, rest))
        else:
            self._target.put(self.file, rest)
        self._count(rest)
        return mark

    def _append(self, folder: LocalStore, piece: bytes | memoryview) -> None:
        patiently(partial(folder.write_at, self.file, self.bytes, piece))
        self._count(piece)

    def _count(self, piece: bytes | memoryview) -> None:
        self.bytes, self.crc32 = self.bytes + len(piece), zlib.crc32(piece, self.crc32)
