"""Blocks that tasks of one machine share through files in memory; only a reference crosses Spark's shuffle.

The shuffle copies a block a dozen times: through two sockets, to and from Java rows and Arrow vectors, and to shuffle
files. If all tasks run on one machine, the sender writes the block to a file in a folder of the epoch, in the memory
file system that also holds the shuffle files. The envelope holds the file's name and size (`SharedBlocks.share`), and
the receiver maps the file (`resolve_block`). A block relayed to a later stage stays a reference.

A file is written once, by one attempt of a task, under a unique name, and exists as long as a shuffle file would: until
the end of the epoch, when the driver removes the folder (`shared_block_folder`). So a task that Spark runs again reads
the files its first attempt read. Small blocks and pickled records are sent inline, and so is a block that does not fit
in the file system. A missing or truncated file breaks the exchange and the epoch is run again; no data is skipped.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path

import pyarrow as pa

from millstream.records.columns import zero_padded

__all__ = ["SHARED_BYTES_MIN", "BrokenExchangeError", "SharedBlocks", "resolve_block", "shared_block_folder"]

SHARED_BYTES_MIN = 64 << 10
"""Smaller blocks are not worth a file."""

# A process can hold only some ten thousand mappings, so smaller files are read.
_MAPPED_BYTES_MIN = 1 << 20
# Each failed removal means that a task created one more file; a folder that cannot be removed is left.
_REMOVALS_MAX = 1_000
# A block that crosses an exchange begins with seven zeros and its format byte; no format uses this byte.
_MARK = bytes(7) + b"@"
_REFERENCE = struct.Struct("<8sqi")  # mark, size of the block, size of the path that follows


class BrokenExchangeError(RuntimeError):
    """Blocks or barriers are missing, duplicated or out of order: the epoch must be run again."""


@contextmanager
def shared_block_folder(folder: str) -> Iterator[None]:
    """Creates a folder for one epoch and removes it afterwards. If that fails, tasks send blocks through the
    shuffle."""
    with suppress(OSError):
        os.mkdir(folder, 0o700)
    try:
        yield
    finally:
        # Tasks of an epoch that failed or was cancelled may still run. The rename prevents them from creating a file
        # between the removal of the files and that of the folder: the folder would then remain and fill until they end.
        retired = f"{folder}-gone"
        with suppress(OSError):
            os.rename(folder, retired)
        # A task that resolved the path before the rename may still create one file in the folder, between the removal
        # of the files and that of the folder. The removal then fails, so it is tried again.
        for _ in range(_REMOVALS_MAX):
            shutil.rmtree(retired, ignore_errors=True)
            if not os.path.exists(retired):
                break


class SharedBlocks:
    """Writes the blocks of one task attempt to a folder. With '' as the folder, all blocks are sent inline.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     reference = SharedBlocks(folder, "attempt-1").share(1 << 20, lambda file: file.write(bytes(1 << 20)))
    ...     reference.size < 1_000, resolve_block(reference).size
    (True, 1048576)
    """

    def __init__(self, folder: str, attempt: str) -> None:
        self._folder, self._attempt = folder, attempt
        self._numbers = count()

    def share(self, estimated_bytes: int, write: Callable[[pa.NativeFile], object]) -> pa.Buffer | None:
        """Writes a block of about this size to a file, by calling `write`. Returns the reference for the envelope, or
        None if the block must be sent inline."""
        if not self._folder or estimated_bytes < SHARED_BYTES_MIN:
            return None
        path = os.path.join(self._folder, f"{self._attempt}-{next(self._numbers)}")
        try:
            # Written, not mapped: a full file system raises an error here, but would kill a process that maps the file.
            with pa.OSFile(path, "wb") as file:
                write(file)
                size = file.tell()
        except OSError:
            Path(path).unlink(missing_ok=True)
            self._folder = ""
            return None
        name = path.encode()
        return pa.py_buffer(zero_padded(_REFERENCE.pack(_MARK, size, len(name)) + name))


def resolve_block(payload: pa.Buffer) -> pa.Buffer:
    """The block that a payload holds or refers to. A mapped block stays readable after its file is removed."""
    if payload.size < _REFERENCE.size or payload.slice(0, len(_MARK)).to_pybytes() != _MARK:
        return payload
    reference = payload.to_pybytes()
    _, size, length = _REFERENCE.unpack_from(reference)
    path = reference[_REFERENCE.size : _REFERENCE.size + length].decode()
    try:
        with pa.memory_map(path) if size >= _MAPPED_BYTES_MIN else pa.OSFile(path) as file:
            block = file.read_buffer()
    except OSError as error:
        raise BrokenExchangeError(f"block {path} cannot be read: {error}; the epoch is run again") from error
    if block.size != size:
        raise BrokenExchangeError(f"block {path} has {block.size} bytes of {size}; the epoch is run again")
    return block
