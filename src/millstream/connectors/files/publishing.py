"""Giving parts their names, so that a reader sees each one whole and once.

The steps for a part, in this order; a crash between any two of them is mended by doing them all again:

1. The final name exists: an earlier attempt got this far, skip to 4.
2. Every chunk must be there and be what the manifest says. One that is not is damage, and nothing is published.
3. Give the bytes their final name, atomically and only if it is free: a hard link when one local chunk is the whole
   part, else create-if-absent of the assembled part. Durable before going on.
4. Remove the chunks.

After the parts, leftovers of lost task attempts are swept from the staging folder: only below the epoch the manifest
names, so never a file that somebody may still be writing or that waits for a later epoch.
"""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Sequence

from millstream.connectors.contracts import Json
from millstream.connectors.files.part_plan import Chunk, PublishedPart, published_parts, sweep_limit
from millstream.connectors.files.parts import PartFormat
from millstream.errors import StoreDamagedError
from millstream.storage.content import content_of
from millstream.storage.path_parts import safe
from millstream.storage.store import Store

__all__ = ["STAGING", "chunk_name", "publish_all", "staging_folder"]

STAGING = ".millstream-staging"
"""The hidden folder below a sink's base path; on the same file system as the parts, so that a link reaches them."""

_CHUNK = re.compile(r"(\d{12,})-\d{5,}-[A-Za-z0-9]+-\d{5,}")


def staging_folder(job: str, uid: str) -> str:
    """Where below STAGING the sink `uid` of the job with this id stages.

    The id tells jobs apart that write to one folder, whatever they call their stores and on whatever machine: one must
    never sweep the other's chunks.
    """
    return f"{safe(job)}-{safe(uid)}"


def chunk_name(folder: str, epoch: int, subtask: int, nonce: str, index: int) -> str:
    """The staged name of a chunk below the base path.

    >>> chunk_name("3f-sink", 7, 0, "a1", 2)
    '.millstream-staging/3f-sink/000000000007-00000-a1-00002'
    """
    return f"{STAGING}/{folder}/{epoch:012d}-{subtask:05d}-{nonce}-{index:05d}"


def publish_all(target: Store, publish: Sequence[Json], format: PartFormat) -> None:
    """Publish the parts a manifest lists, then sweep what is left of lost attempts."""
    for part in published_parts(publish):
        _publish(target, part, format)
    limit = sweep_limit(publish)
    if limit is not None:
        folder, before = limit
        for name in target.list(folder):
            match = _CHUNK.fullmatch(name.rpartition("/")[2])
            if match is not None and int(match.group(1)) < before:
                target.delete(name)


def _publish(target: Store, part: PublishedPart, format: PartFormat) -> None:
    if not target.exists(part.file):
        if not (len(part.chunks) == 1 and format.whole_chunks and _link(target, part.chunks[0], part.file)):
            target.create(part.file, format.assemble([_read(target, chunk, part.file) for chunk in part.chunks]))
    else:
        # An earlier attempt may have died between the link and its sync.
        target.settle(part.file)
    for chunk in part.chunks:
        target.delete(chunk.file)


def _link(target: Store, chunk: Chunk, final: str) -> bool:
    """Give the chunk its final name by a hard link; False when this target has no such thing."""
    source, goal = target.local_path(chunk.file), target.local_path(final)
    if source is None or goal is None:
        return False
    if not source.is_file():
        raise _missing_error(target, chunk, final)
    # All of it is read once more: a link would make public whatever the chunk has become since it was written.
    _check(target, chunk, *content_of(target, chunk.file))
    try:
        os.link(source, goal)
    except FileExistsError:
        pass
    except OSError:
        # No hard links here: the slower way explains itself if it cannot work either.
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
    """Refuse a chunk that is not what the manifest says."""
    if (length, checksum) != (chunk.bytes, chunk.crc32):
        problem = f"has {length} bytes with checksum {checksum}, expected {chunk.bytes} with {chunk.crc32}"
        raise _damage_error(target, chunk, problem)


def _missing_error(target: Store, chunk: Chunk, final: str) -> StoreDamagedError:
    return StoreDamagedError(
        f"File sink {target.url}: neither {final!r} nor the staged {chunk.file!r} it is made of is there. "
        f"Something removed {chunk.records} records of epoch {chunk.epoch} before they were published. "
        f"Put the file back, or start from an earlier savepoint."
    )


def _damage_error(target: Store, chunk: Chunk, problem: str) -> StoreDamagedError:
    return StoreDamagedError(
        f"File sink {target.url}: staged file {chunk.file!r} {problem}. "
        f"It was changed after it was written; nothing of it was published. Put the original back."
    )
