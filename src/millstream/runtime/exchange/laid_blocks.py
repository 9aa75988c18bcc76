"""Blocks that tasks of one machine hand to each other in files of its memory; what crosses Spark's shuffle is a note.

On its way through the shuffle a block is copied a dozen times: through two sockets, into and out of Java's rows and
Arrow's vectors, into shuffle files. Where all tasks are on one machine it need not be. The sender writes it to a file
in a folder of the epoch, in the memory file system where shuffle files lie too, and the envelope holds the file's name
and size (`LaidBlocks.laid`); the receiver maps the file (`taken_up`). A block that is relayed to a later stage is a
note all the way.

A file is written once, by one attempt of a task, under a name that no other has, and lives as long as a shuffle file
would: to the end of the epoch, when the driver removes the folder (`folder_for_blocks`). So a task that Spark runs
again reads what its first attempt read. Small blocks and pickled records go as they are, and so does a block for which
there is no room. A file that is not there, or not whole, breaks the exchange: the epoch is run again, and nothing is
read as less than it was.
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

from millstream.records.columns import filled_up

__all__ = ["LAID_BYTES_MIN", "BrokenExchangeError", "LaidBlocks", "folder_for_blocks", "taken_up"]

LAID_BYTES_MIN = 64 << 10
"""Smaller blocks are not worth a file."""

# A process may hold some ten thousand mappings only: smaller files are read.
_MAPPED_BYTES_MIN = 1 << 20
# Each failed removal means that a task created one more file; a folder that cannot be removed at all is left.
_REMOVALS_MAX = 1_000
# A block that crosses an exchange begins with seven zeros and a byte for its form; a note's is none of a block's.
_MARK = bytes(7) + b"@"
_NOTE = struct.Struct("<8sqi")  # mark, bytes of the block, bytes of the path that follows


class BrokenExchangeError(RuntimeError):
    """Blocks or barriers are missing, doubled or out of order: the epoch must be run again."""


@contextmanager
def folder_for_blocks(folder: str) -> Iterator[None]:
    """A folder that is there while an epoch runs, or none: tasks that find none send blocks through the shuffle."""
    with suppress(OSError):
        os.mkdir(folder, 0o700)
    try:
        yield
    finally:
        # Tasks of an epoch that failed or was cancelled may still run. Under another name they lay no block there after
        # the last file was removed and before the folder is: it would stay, and fill until they end.
        gone = f"{folder}-gone"
        with suppress(OSError):
            os.rename(folder, gone)
        # A task that looked the folder up before the rename may still create one file in it, between the removal of the
        # files and that of the folder. Such a file makes the removal fail, so it is tried again.
        for _ in range(_REMOVALS_MAX):
            shutil.rmtree(gone, ignore_errors=True)
            if not os.path.exists(gone):
                break


class LaidBlocks:
    """Writes the blocks of one attempt of a task to a folder; '' as the folder: there is none, blocks go as they are.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     note = LaidBlocks(folder, "attempt-1").laid(1 << 20, lambda file: file.write(bytes(1 << 20)))
    ...     note.size < 1_000, taken_up(note).size
    (True, 1048576)
    """

    def __init__(self, folder: str, attempt: str) -> None:
        self._folder, self._attempt = folder, attempt
        self._numbers = count()

    def laid(self, about_bytes: int, write: Callable[[pa.NativeFile], object]) -> pa.Buffer | None:
        """What goes into the envelope of a block of about so many bytes, which `write` writes: a note of where it lies.
        None if the block itself does."""
        if not self._folder or about_bytes < LAID_BYTES_MIN:
            return None
        path = os.path.join(self._folder, f"{self._attempt}-{next(self._numbers)}")
        try:
            # Written, not mapped: where there is no room this is an error, and a mapping would end the process.
            with pa.OSFile(path, "wb") as file:
                write(file)
                size = file.tell()
        except OSError:
            Path(path).unlink(missing_ok=True)
            self._folder = ""
            return None
        name = path.encode()
        return pa.py_buffer(filled_up(_NOTE.pack(_MARK, size, len(name)) + name))


def taken_up(payload: pa.Buffer) -> pa.Buffer:
    """The block that an envelope holds or tells of. Mapped, it stays readable when its file is removed."""
    if payload.size < _NOTE.size or payload.slice(0, len(_MARK)).to_pybytes() != _MARK:
        return payload
    note = payload.to_pybytes()
    _, size, length = _NOTE.unpack_from(note)
    path = note[_NOTE.size : _NOTE.size + length].decode()
    try:
        with pa.memory_map(path) if size >= _MAPPED_BYTES_MIN else pa.OSFile(path) as file:
            block = file.read_buffer()
    except OSError as error:
        raise BrokenExchangeError(f"block {path} cannot be read: {error}; the epoch is run again") from error
    if block.size != size:
        raise BrokenExchangeError(f"block {path} has {block.size} bytes of {size}; the epoch is run again")
    return block
