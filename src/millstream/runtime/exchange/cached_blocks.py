"""The records of a cached stream: one job writes them while it runs, later jobs of the environment read them.

A cache is a folder of block files (`blocks.py`) and one marker file per epoch of the writing job. A marker lists its
epoch's files; the last marker has a flag. Tasks write blocks under names unique to their attempt; the driver writes the
marker when the epoch is committed, like any sink's output.

    blocks/{epoch}-{subtask}-{nonce}-{part}
    epochs/000000000001.json    {"blocks": [{"file": …, "bytes": …, "crc32": …, "records": …, "subtask": …}], "last": …}

Invariant: a cache is valid only if the markers of all epochs exist, from the first to the last. A job that failed, was
stopped, or resumed from an epoch of another folder leaves no valid cache. Records retain their timestamps and their
order within a subtask.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass

import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.contracts import (
    CommitId,
    CommitPlan,
    Json,
    Offset,
    Read,
    Sink,
    SinkWriter,
    Source,
    SourceContext,
    Split,
    WriterContext,
)
from millstream.errors import StoreDamagedError
from millstream.records.batch import Batch
from millstream.runtime.exchange.blocks import BlockPacker, decode_block
from millstream.storage.store import Store, open_store

__all__ = ["CacheSink", "CachedSource", "cached_source"]

_BLOCK_BYTES = 16 << 20
_BLOCK_RECORDS = 1 << 16
_LAST = "last"


@dataclass(frozen=True)
class _Block:
    file: str
    bytes: int
    crc32: int
    records: int
    subtask: int


class CacheSink(Sink):
    """Fills the cache in the folder at `url`. `name` is the name of the operator whose records it stores."""

    def __init__(self, url: str, name: str) -> None:
        self.url, self.name = url, name

    def writer(self, context: WriterContext) -> SinkWriter:
        return _CacheWriter(_opened(self.url), context)

    def plan_commit(self, staged: Sequence[Json], pending: Json, now_ms: int, final: bool) -> CommitPlan:
        # One item more than was staged: every epoch has a marker, so that a missing marker is detected.
        return CommitPlan((*staged, {_LAST: final}))

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        blocks = [item for item in publish if _LAST not in item]
        marker = {"blocks": blocks, _LAST: any(item.get(_LAST) for item in publish)}
        _opened(self.url).put(_marker(commit.epoch), json.dumps(marker).encode())

    def describe(self) -> str:
        return f"the records of '{self.name}' for later jobs"


class _CacheWriter(SinkWriter):
    def __init__(self, store: Store, context: WriterContext) -> None:
        self._store, self._context = store, context
        self._packer = BlockPacker(_BLOCK_BYTES, _BLOCK_RECORDS, _BLOCK_RECORDS)
        self._blocks: list[_Block] = []

    def write(self, batch: Batch) -> None:
        self._put(self._packer.add(batch))

    def stage(self) -> Sequence[Json]:
        self._put(self._packer.rest())
        return [asdict(block) for block in self._blocks]

    def _put(self, packed: Iterator[tuple[pa.Buffer, int]]) -> None:
        context = self._context
        for payload, records in packed:
            data = payload.to_pybytes()
            name = f"blocks/{context.epoch}-{context.subtask}-{context.nonce}-{len(self._blocks)}"
            self._store.put(name, data)
            self._blocks.append(_Block(name, len(data), zlib.crc32(data), records, context.subtask))


def cached_source(url: str, name: str, type_info: TypeInformation | None) -> CachedSource | None:
    """A source that reads the cache in the folder at `url`; None if the cache is incomplete."""
    store = _opened(url)
    markers = [json.loads(store.get(marker)) for marker in store.list("epochs")]
    is_complete = bool(markers) and markers[-1][_LAST] and store.exists(_marker(len(markers)))
    if not is_complete:
        return None
    by_subtask: dict[int, list[_Block]] = {}
    present = set(store.list("blocks"))
    for entry in (entry for marker in markers for entry in marker["blocks"]):
        if entry["file"] not in present:  # staged by an earlier driver that used another folder
            return None
        by_subtask.setdefault(entry["subtask"], []).append(_Block(**entry))
    blocks = {f"{subtask:05d}": tuple(by_subtask[subtask]) for subtask in sorted(by_subtask)}
    return CachedSource(url, name, type_info, blocks)


class CachedSource(Source):
    """Reads a cache. There is a split per subtask that wrote it; offsets are block numbers."""

    bounded = True
    carries_timestamps = True

    def __init__(
        self, url: str, name: str, type_info: TypeInformation | None, blocks: Mapping[str, tuple[_Block, ...]]
    ) -> None:
        self.url, self.name, self.type_info = url, name, type_info
        self._blocks = dict(blocks)

    def splits(self, context: SourceContext) -> Sequence[Split]:
        return [Split(name, 0) for name in self._blocks]

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        blocks, until, records = self._blocks[split.name], offset, 0
        while until < len(blocks) and (records == 0 or records + blocks[until].records <= budget):
            records += blocks[until].records
            until += 1
        return until

    def finished(self, split: Split, offset: Offset) -> bool:
        return bool(offset >= len(self._blocks[split.name]))

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        store = _opened(self.url)
        for block in self._blocks[split.name][start:stop]:
            data = store.get(block.file)
            if len(data) != block.bytes or zlib.crc32(data) != block.crc32:
                raise StoreDamagedError(
                    f"'{self.name}': {block.file!r} in {self.url} was cut or changed after it was written. Call "
                    "invalidate() on the cached stream, and it is computed again"
                )
            yield from decode_block(pa.py_buffer(data), self.type_info)
        return stop

    def describe(self) -> str:
        return f"the records of '{self.name}'"


def _opened(url: str) -> Store:
    # No fsync: after a power failure the cache is computed again.
    return open_store(url, fsync=False)


def _marker(epoch: int) -> str:
    return f"epochs/{epoch:012d}.json"
