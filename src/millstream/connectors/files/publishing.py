"""Publishes parts under their final names, each complete and exactly once, also after a restore.

The steps for a part, in this order; after a crash between any two of them all are repeated:

1. If the final name exists, an earlier attempt got this far: skip to 4.
2. Check that every chunk exists and matches the manifest. A chunk that does not is damaged, and nothing is published.
3. Create the final file atomically and only if the name is free: a hard link when one local chunk is the whole
   part, a server-side copy when it is one object, else create-if-absent of the assembled part. It is durable before
   step 4.
4. Remove the chunks.

If the target is remote and large parts must be assembled, tasks perform the steps: the bytes are transferred from the
store to an executor and back, bypassing the driver. The service itself copies a part that is one chunk.

After the parts, leftovers of lost task attempts are swept from the staging folder: only those below the epoch that the
manifest names, so never a file that is still being written or that waits for a later epoch. Temporary files that killed
processes left behind are removed once they are old.

When a job continues from an earlier epoch, chunks that were pending in that epoch are either still staged or
published: a part is published as a whole, so one missing chunk means that its part was published. Parts still staged
stay pending. A *forked* job copies them to its own staging folder: the original job may continue, and needs its files
unchanged. Parts of later epochs have their final names and are never touched here; a message lists them, so that the
user can choose.
"""

from __future__ import annotations

import math
import os
import re
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import accumulate
from typing import Any

from millstream.connectors.contracts import Json, RestorePoint
from millstream.connectors.files.part_plan import (
    Chunk,
    Part,
    PublishedPart,
    epoch_of_part,
    published_parts,
    sweep_limit,
    token_of,
)
from millstream.connectors.files.part_rules import STAGING, staging_folder
from millstream.connectors.files.parts import PartFormat
from millstream.connectors.two_phase import commit_in_tasks
from millstream.errors import StoreDamagedError
from millstream.storage.content import content_of, pieces_of
from millstream.storage.local import LocalStore
from millstream.storage.objects import ObjectStore
from millstream.storage.patience import PatientStore, patiently, with_patience
from millstream.storage.store import Store, open_store

__all__ = [
    "folder_of",
    "later_parts",
    "publish_all",
    "restored_sentence",
    "service_of",
    "waiting_parts",
]

_PUBLISHED_AT_ONCE = 8
# A Spark job takes some tenths of a second; the driver transfers this many bytes in less.
_IN_TASKS_FROM_BYTES = 16 << 20
_SWEPT_FOLDERS: set[tuple[str, str]] = set()
_SWEPT_FOLDERS_MAX = 16_384
_CHUNK = re.compile(r"(\d{12,})-\d{5,}-[A-Za-z0-9]+-\d{5,}")


def publish_all(target: Store, publish: Sequence[Json], format: PartFormat, session: Any = None) -> None:
    """Publish the parts that a manifest lists, then sweep leftovers of lost attempts. `session`: Spark's, or None."""
    listed_parts = published_parts(publish)
    heavy_parts = _heavy_parts(target, listed_parts, format) if session is not None else []
    if heavy_parts:
        commit_in_tasks(session, partial(_publish_in_task, target.url, format), heavy_parts)
    parts = [part for part in listed_parts if part not in heavy_parts]
    if len(parts) < 2 or target.local_path(STAGING) is not None:
        for part in parts:
            _publish(target, part, format)
    else:
        # Requests to a remote store are slow but cheap here. Limited, because each may hold a part in memory.
        with ThreadPoolExecutor(min(len(parts), _PUBLISHED_AT_ONCE)) as threads:
            list(threads.map(lambda part: _publish(target, part, format), parts))
    _sweep_unfinished(target, [part.file for part in listed_parts])
    limit = sweep_limit(publish)
    if limit is not None:
        folder, before = limit
        target.delete_many([name for name in target.list(folder) if _epoch_of_chunk(name) < before])


def _heavy_parts(target: Store, parts: Sequence[PublishedPart], format: PartFormat) -> list[PublishedPart]:
    """The parts of a remote target that must be assembled, if they are large enough in total to use tasks."""
    if target.local_path(STAGING) is not None:
        return []
    heavy_parts = [part for part in parts if len(part.chunks) > 1 or not format.whole_chunks]
    heavy_bytes = sum(chunk.bytes for part in heavy_parts for chunk in part.chunks)
    return heavy_parts if heavy_bytes >= _IN_TASKS_FROM_BYTES else []


def _publish_in_task(url: str, format: PartFormat, part: PublishedPart) -> None:
    _publish(with_patience(open_store(url)), part, format)


def _sweep_unfinished(target: Store, names: Sequence[str]) -> None:
    """Remove files that killed drivers left unfinished next to these parts: once per folder and process, because
    a folder may hold very many parts."""
    store = folder_of(target)
    if store is not None:
        for name in names:
            folder = (store.url, name.rpartition("/")[0])
            if folder not in _SWEPT_FOLDERS:
                if len(_SWEPT_FOLDERS) >= _SWEPT_FOLDERS_MAX:
                    _SWEPT_FOLDERS.clear()
                _SWEPT_FOLDERS.add(folder)
                store.remove_unfinished_siblings(name)


def _epoch_of_chunk(name: str) -> float:
    """The epoch in which a chunk was staged; a number that is never reached for any other file."""
    match = _CHUNK.fullmatch(name.rpartition("/")[2])
    return int(match.group(1)) if match else math.inf


def _publish(target: Store, part: PublishedPart, format: PartFormat) -> None:
    if not target.exists(part.file):
        whole = len(part.chunks) == 1 and format.whole_chunks
        if not (whole and (_link(target, part.chunks[0], part.file) or _copied(target, part.chunks[0], part.file))):
            _create(target, part, format)
    else:
        # An earlier attempt may have died between the link and its sync.
        target.settle(part.file)
    target.delete_many([chunk.file for chunk in part.chunks])


def _create(target: Store, part: PublishedPart, format: PartFormat) -> None:
    """Write the part assembled from these chunks; in a folder piece by piece, if they are only concatenated."""
    folder = folder_of(target)
    if folder is None or not format.is_bytes:
        chunks = [_read(target, chunk, part.file) for chunk in part.chunks]
        target.create(part.file, _assembled(part, chunks, format))
    elif not patiently(lambda: folder.create_of(part.file, _pieces(folder, part))):
        # The file exists: an earlier attempt created it, and may have ended before its sync.
        target.settle(part.file)


def _pieces(folder: LocalStore, part: PublishedPart) -> Iterator[bytes]:
    """The bytes of a part in a byte format. Raises at the end of a chunk that does not match the manifest."""
    ends = set(accumulate(part.gathered))
    for number, chunk in enumerate(part.chunks):
        if number in ends and part.delimiter:
            yield part.delimiter
        if not folder.exists(chunk.file):
            raise _missing_error(folder, chunk, part.file)
        length = checksum = 0
        for piece in pieces_of(folder, chunk.file):
            length, checksum = length + len(piece), zlib.crc32(piece, checksum)
            yield piece
        _check(folder, chunk, length, checksum)


def _assembled(part: PublishedPart, chunks: list[bytes], format: PartFormat) -> bytes:
    """The bytes of the part. Gathered parts without a delimiter are assembled as one."""
    if not part.delimiter:
        return format.assemble(chunks)
    at, pieces = 0, []
    for count in part.gathered:
        pieces.append(format.assemble(chunks[at : at + count]))
        at += count
    return part.delimiter.join(pieces)


def service_of(target: Store) -> ObjectStore | None:
    """The object store of the target, or None. It copies server-side, without a transfer."""
    store = _without_retries(target)
    return store if isinstance(store, ObjectStore) else None


def folder_of(target: Store) -> LocalStore | None:
    """The local folder of the target, or None."""
    store = _without_retries(target)
    return store if isinstance(store, LocalStore) else None


def _without_retries(target: Store) -> Store:
    return target.below if isinstance(target, PatientStore) else target


def _copied(target: Store, chunk: Chunk, final: str) -> bool:
    """Copy the chunk to its final name within the service; False when the target does not support it.

    The bytes do not pass through the driver, so the service's size and mark are checked."""
    service = service_of(target)
    if not chunk.mark or service is None:
        return False
    size_and_mark = patiently(partial(service.size_and_mark, chunk.file))
    if size_and_mark is None:
        raise _missing_error(target, chunk, final)
    if size_and_mark != (chunk.bytes, chunk.mark):
        problem = f"has {size_and_mark[0]} bytes and the mark {size_and_mark[1]}, expected {chunk.bytes}"
        raise _damage_error(target, chunk, problem)
    # If a copy was made but its response was lost, the repeat finds the same content.
    return patiently(partial(service.create_copy, final, chunk.file)) is not None


def _link(target: Store, chunk: Chunk, final: str) -> bool:
    """Hard-link the chunk to its final name; False when the target does not support it."""
    source, destination = target.local_path(chunk.file), target.local_path(final)
    if source is None or destination is None:
        return False
    if not source.is_file():
        raise _missing_error(target, chunk, final)
    # Read the whole chunk once more: a link would publish damage that occurred since it was written.
    _check(target, chunk, *content_of(target, chunk.file))
    try:
        os.link(source, destination)
    except FileExistsError:
        pass
    except OSError:
        # No hard links here: the fallback reports its own error if it fails too.
        return False
    target.settle(final)
    return True


def _read(target: Store, chunk: Chunk, final: str) -> bytes:
    if not target.exists(chunk.file):
        raise _missing_error(target, chunk, final)
    data = target.get(chunk.file)
    _check(target, chunk, len(data), zlib.crc32(data))
    return data


def _check(target: Store, chunk: Chunk, length: int, checksum: int) -> None:
    """Reject a chunk that does not match the manifest."""
    if (length, checksum) != (chunk.bytes, chunk.crc32):
        problem = f"has {length} bytes with checksum {checksum}, expected {chunk.bytes} with {chunk.crc32}"
        raise _damage_error(target, chunk, problem)


def _missing_error(target: Store, chunk: Chunk, final: str) -> StoreDamagedError:
    return StoreDamagedError(
        f"File sink {target.url}: neither {final!r} nor its staged chunk {chunk.file!r} exists. "
        f"{chunk.records} records of epoch {chunk.epoch} were removed before they were published. "
        f"Put the file back, or start from an earlier savepoint."
    )


def _damage_error(target: Store, chunk: Chunk, problem: str) -> StoreDamagedError:
    return StoreDamagedError(
        f"File sink {target.url}: staged file {chunk.file!r} {problem}. "
        f"It was changed after it was written; none of it was published. Put the original back."
    )


def waiting_parts(target: Store, parts: list[Part], point: RestorePoint) -> list[Part]:
    """The parts that this job must still publish."""
    whole = {id(part): all(target.exists(chunk.file) for chunk in part.chunks) for part in parts}
    # Parts gathered in one bucket are published in one file: if one of them is missing, none is pending.
    published_buckets = {part.destination[0] for part in parts if part.is_gathered and not whole[id(part)]}
    staged_parts = [
        part
        for part in parts
        if whole[id(part)] and not (part.is_gathered and part.destination[0] in published_buckets)
    ]
    if not point.forked:
        return staged_parts
    folder = staging_folder(point.job, point.uid)
    return [
        replace(part, chunks=tuple(_copy(target, chunk, folder, point.job) for chunk in part.chunks))
        for part in staged_parts
    ]


def _copy(target: Store, chunk: Chunk, folder: str, job: str) -> Chunk:
    """The chunk in another staging folder; copying it again, after a crash, changes nothing.

    Its token changes: parts are named after their first chunk, and the names of the two jobs must not collide.
    """
    name = f"{STAGING}/{folder}/{chunk.file.rpartition('/')[2]}"
    target.put(name, target.get(chunk.file))
    # The copy may have another mark (an encrypted one has), so it is identified by its checksum alone.
    return replace(chunk, file=name, token=token_of(job, chunk.token), mark="")


def later_parts(target: Store, point: RestorePoint, prefix: str, suffix: str) -> list[str]:
    """The part files of the job that hold records of later epochs, in the order of their epochs."""
    published_before = {entry["part"] for entry in point.published if "part" in entry}
    files = [file for file in target.list("") if file not in published_before]
    epochs = {file: epoch_of_part(file, prefix, suffix, point.past_job) for file in files}
    parts = [(epoch, file) for file, epoch in epochs.items() if epoch is not None]
    return [file for epoch, file in sorted(parts) if epoch > point.epoch]


def restored_sentence(later: list[str], published_parts: list[Part], point: RestorePoint) -> str:
    """The message for the user; "" when nothing was published after that epoch.

    >>> restored_sentence(["part-a-0-8", "part-a-1-8", "part-a-0-9"], [], RestorePoint(7, "out", None, "3f9a", "3f9a"))
    '3 part files there hold records of later epochs (part-a-0-8 to part-a-0-9), which will be repeated: delete them, \
or let the job write to another folder'
    """
    sentences = []
    records = sum(chunk.records for part in published_parts for chunk in part.chunks)
    if later:
        span = later[0] if len(later) == 1 else f"{later[0]} to {later[-1]}"
        files = "1 part file there holds" if len(later) == 1 else f"{len(later)} part files there hold"
        # Parts pending then may have been published in one file with later records, and are not read again.
        choice = _NO_CHOICE if records else _CHOICE
        advice = "let this job write to another folder" if point.forked else choice
        sentences.append(f"{files} records of later epochs ({span}), which will be repeated: {advice}")
    if records:
        outcome = "are left to the job it was forked from" if point.forked else "have been published since"
        sentences.append(f"the {records} records pending in that epoch {outcome}")
    return "; ".join(sentences)


_CHOICE = "delete them, or let the job write to another folder"
_NO_CHOICE = (
    "let the job write to another folder, and do not delete them, for records pending in that epoch may be in them, "
    "and these are not repeated"
)
