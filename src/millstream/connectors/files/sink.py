"""A sink that writes files: each finished file appears once, complete, and holds only records of committed epochs.

A task stages chunks in a hidden folder below the base path; the plan of the epoch (`part_plan`) decides which chunks
become which part and when; the driver, or tasks if that is expensive, give the parts their final names (`publishing`).
A reader that lists the base path and ignores hidden names never sees a partial or a duplicate file.

The base path may be a local or mounted folder, or an address of an object store; there a part is one conditional put.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from millstream.connectors.contracts import CommitId, CommitPlan, Json, RestorePoint, Sink, SinkWriter, WriterContext
from millstream.connectors.files.compaction import Compaction
from millstream.connectors.files.name_lengths import check_length
from millstream.connectors.files.part_plan import (
    Chunk,
    Part,
    PartRules,
    pending_json,
    pending_parts,
    plan_parts,
    token_of,
)
from millstream.connectors.files.part_rules import (
    STAGING,
    BasePathBuckets,
    BucketAssigner,
    OnCheckpoint,
    RollingPolicy,
    checked_bucket,
    chunk_name,
    staging_folder,
)
from millstream.connectors.files.parts import PartFormat
from millstream.connectors.files.places import refuse_credentials
from millstream.connectors.files.publishing import (
    later_parts,
    publish_all,
    restored_sentence,
    waiting_parts,
)
from millstream.connectors.files.staging import ChunkWriter
from millstream.connectors.unavailable_targets import named_target
from millstream.errors import ProgramError, StoreError
from millstream.records.batch import Batch
from millstream.storage.local import UNFINISHED_MS
from millstream.storage.patience import with_patience
from millstream.storage.store import Store, open_store

__all__ = ["FileSink"]

_INDEX_DIGITS = "99999"


class FileSink(Sink):
    """Writes records to part files below `base_path`.

    >>> from millstream.connectors.files.parts import TextParts
    >>> FileSink("memory://doctest-file-sink", TextParts()).describe()
    'files in memory://doctest-file-sink'
    """

    def __init__(
        self,
        base_path: str,
        format: PartFormat,
        buckets: BucketAssigner | None = None,
        rolling: RollingPolicy | None = None,
        prefix: str = "part",
        suffix: str | None = None,
        compaction: Compaction | None = None,
    ) -> None:
        for name, text in (("prefix", prefix), ("suffix", suffix or "")):
            if "/" in text or "\\" in text or (name == "prefix" and text[:1] in (".", "_", "")):
                raise ProgramError(
                    f"FileSink: part {name} is {text!r}. "
                    f"Use text without '/'; a prefix must not start with '.' or '_', which hide a file from readers."
                )
        refuse_credentials(base_path, "FileSink")
        # Absolute from here on: a task may have another working directory.
        self.base_url = open_store(base_path).url
        self.format = format
        self.buckets = buckets or BasePathBuckets()
        self.rolling: RollingPolicy = rolling or OnCheckpoint()
        self.prefix = prefix
        self.suffix = format.suffix if suffix is None else suffix
        self.compaction = compaction
        if compaction is not None and compaction.delimiter and not format.is_bytes:
            raise ProgramError(
                f"FileSink: a {self.format.suffix} file cannot have {compaction.delimiter!r} between its parts. Omit "
                f"the delimiter: parts are joined record by record"
            )
        self._folders: set[str] = set()  # staging folders of this job
        self._session: Any = None

    def __getstate__(self) -> dict[str, Any]:
        # A session cannot leave the driver.
        return {**self.__dict__, "_session": None}

    def writer(self, context: WriterContext) -> SinkWriter:
        return _FileWriter(self, context)

    def plan_commit(self, staged: Sequence[Json], pending: Json, now_ms: int, final: bool) -> CommitPlan:
        return self.plan_with(staged, pending, now_ms, final)

    def plan_with(
        self,
        staged: Sequence[Json],
        pending: Json,
        now_ms: int,
        final: bool,
        due_buckets: frozenset[str] = frozenset(),
    ) -> CommitPlan:
        """The entries that the epoch publishes; of `due_buckets`, all parts."""
        rules = PartRules(self.rolling, self.prefix, self.suffix, self.compaction, due_buckets)
        plan = plan_parts(staged, pending, now_ms, final, rules)
        # With the address, a tool that reads only the job's store can check whether the job's output is complete.
        pending = None if plan.pending is None else [{**part, "target": self.base_url} for part in plan.pending]
        return CommitPlan(
            tuple({**entry, "target": self.base_url} if "part" in entry else entry for entry in plan.publish), pending
        )

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        self._folders.add(staging_folder(commit.job, commit.sink))
        if publish:
            with named_target(self.base_url, store):
                publish_all(with_patience(open_store(self.base_url)), publish, self.format, self._session)

    def due_ms(self, pending: Json) -> int | None:
        """When the rolling policy requires an epoch without input, to publish a pending part."""
        times_ms = [self._due_ms(part) for part in pending_parts(pending)]
        return min((time_ms for time_ms in times_ms if time_ms is not None), default=None)

    def _due_ms(self, part: Part) -> int | None:
        if part.is_gathered:
            # Epochs without records count, too, or the last parts would wait for the next record.
            counts = self.compaction is None or self.compaction.epochs is not None
            return part.touched_ms if counts else None
        return self.rolling.due_ms(part.since_ms, part.touched_ms)

    def after_restore(self, pending: Json, point: RestorePoint) -> tuple[Json, str]:
        target, parts = with_patience(open_store(self.base_url)), pending_parts(pending)
        waiting = waiting_parts(target, parts, point)
        waiting_places = {part.place for part in waiting}
        published_parts = [part for part in parts if part.place not in waiting_places]
        later = later_parts(target, point, self.prefix, self.suffix)
        return pending_json(waiting), restored_sentence(later, published_parts, point)

    def opened(self, session: Any) -> Sink:
        # The probe file is created in the hidden folder: readers of the base path must not see it.
        try:
            staging = with_patience(open_store(f"{self.base_url.rstrip('/')}/{STAGING}"))
            staging.check_writable()
            staging.remove_unfinished(int(time.time() * 1000) - UNFINISHED_MS)  # file times are by the machine's clock
        except StoreError as error:
            # The store's own message gives advice on the job's --store, which is a different address.
            cause = error.__cause__
            if isinstance(cause, (FileExistsError, NotADirectoryError)):
                reason = "it is not a folder: the path, or a parent, is a file"
            else:
                reason = cause.strerror if isinstance(cause, OSError) and cause.strerror else error.message
            raise StoreError(
                f"FileSink cannot write to {self.base_url}: {reason}. Use a folder that this user may write"
            ) from error
        self._session = session
        return self

    def close(self) -> None:
        """Remove this job's empty staging folders. Pending chunks stay, and so do folders of other jobs."""
        staging = open_store(self.base_url).local_path(f"{STAGING}/any")
        if staging is not None:
            for folder in (*(staging.parent / name for name in self._folders), staging.parent):
                with suppress(OSError):
                    os.rmdir(folder)

    def describe(self) -> str:
        return f"files in {self.base_url}"


class _FileWriter(SinkWriter):
    """The chunks of one task attempt."""

    def __init__(self, sink: FileSink, context: WriterContext) -> None:
        self._sink = sink
        self._context = context
        self._target = with_patience(open_store(sink.base_url))
        self._folder = staging_folder(context.job, context.uid)
        self._open: dict[str, ChunkWriter] = {}
        self._chunks: list[Chunk] = []
        self._chunks_begun = 0

    def write(self, batch: Batch) -> None:
        if batch.length == 0:
            return
        bucket = self._sink.buckets.for_epoch(self._context.now_ms)
        if bucket is not None:
            self._add(bucket, batch)
            return
        pieces = self._sink.buckets.divided(batch)
        if pieces is not None:
            for bucket, piece in pieces:
                self._add(checked_bucket(bucket), piece)
            return
        destinations: dict[str, list[int]] = {}
        for at, value in enumerate(batch.values()):
            destinations.setdefault(self._sink.buckets.for_value(value, self._context.now_ms), []).append(at)
        for bucket, indexes in destinations.items():
            self._add(checked_bucket(bucket), _take(batch, indexes))

    def stage(self) -> Sequence[Json]:
        for bucket in list(self._open):
            self._stage_chunk(bucket)
        return [asdict(chunk) for chunk in self._chunks]

    def abort(self) -> None:
        for file in [*(chunk.file for chunk in self._open.values()), *(chunk.file for chunk in self._chunks)]:
            self._target.delete(file)
        self._open = {}

    def _add(self, bucket: str, batch: Batch) -> None:
        chunk = self._open.get(bucket)
        if chunk is None:
            self._check_name(bucket)
            chunk = self._open[bucket] = self._new_chunk()
        with named_target(self._sink.base_url, self._context.store):
            chunk.add(batch)
        limit = self._sink.rolling.chunk_bytes_max
        if limit is not None and chunk.size_bytes >= limit:
            self._stage_chunk(bucket)

    def _check_name(self, bucket: str) -> None:
        """Reject a bucket whose part names would be too long, since they could never be published."""
        sink, context = self._sink, self._context
        longest = f"{sink.prefix}-{token_of('', '')}-{context.subtask}-{context.epoch}-{_INDEX_DIGITS}{sink.suffix}"
        check_length(sink.base_url, f"{bucket}/{longest}".lstrip("/"), f"FileSink to {sink.base_url}")

    def _new_chunk(self) -> ChunkWriter:
        context, index = self._context, self._chunks_begun
        self._chunks_begun += 1
        file = chunk_name(self._folder, context.epoch, context.subtask, context.nonce, index)
        return ChunkWriter(self._target, file, index, self._sink.format.encoder())

    def _stage_chunk(self, bucket: str) -> None:
        context, chunk = self._context, self._open[bucket]
        with named_target(self._sink.base_url, context.store):
            mark = chunk.staged()
        del self._open[bucket]
        self._chunks.append(
            Chunk(
                file=chunk.file,
                bucket=bucket,
                subtask=context.subtask,
                epoch=context.epoch,
                index=chunk.index,
                token=token_of(context.job, context.nonce, context.uid),
                bytes=chunk.bytes,
                crc32=chunk.crc32,
                records=chunk.records,
                mark=mark,
            )
        )


def _take(batch: Batch, indexes: list[int]) -> Batch:
    """The records at `indexes`; the batch itself if they are all of its records."""
    if len(indexes) == batch.length:
        return batch
    import numpy as np

    return batch.take(np.array(indexes, dtype=np.int64))
