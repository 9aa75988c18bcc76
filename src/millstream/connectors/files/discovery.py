"""Discovers the files of a source: each is listed once, with its size and modification time.

A file is identified by its path, size, modification time and, in an object store, the entity tag of its content when it
was first listed. New files are listed in the job's store
before they are read, in the order (modification time, path): after a crash the source has the same files with the same
sizes, regardless of changes in the folder. A file that grows later keeps its first size; put new records into new
files, and move a file into place when it is complete.

Names that start with '.' or '_' are hidden: files still being written, staging folders, markers.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import zlib
from collections.abc import Collection, Sequence
from pathlib import Path

from millstream.connectors.files.places import InputFile, check_path, files_below
from millstream.errors import ProgramError, StoreDamagedError
from millstream.storage.names import INPUT
from millstream.storage.store import Store

__all__ = ["FileLog", "check_paths", "files_of_list", "is_file_list", "list_files", "list_of_files"]

_FORM = 2
_LIST = re.compile(r"input/files-[0-9a-f]{16}/\d{12,}\.json")


def check_paths(paths: Sequence[str], is_watched: bool = False) -> None:
    """Check that every path exists before the job runs."""
    if not paths:
        raise ProgramError("FileSource has no path. Pass at least one file or folder.")
    for path in paths:
        check_path(path, is_watched)


def list_files(paths: Sequence[str], known: Collection[str] = ()) -> list[InputFile]:
    """The visible files at and below these paths that are not in `known`, oldest first."""
    files = {file.path: file for root in paths for file in files_below(root, known)}
    return sorted(files.values(), key=lambda file: (file.modified_ns, file.path))


class FileLog:
    """The files of one set of paths, in the order of their discovery, stored in the job's store.

    Sources with the same paths share a log: the first to discover files writes them, and the others read the log.
    """

    def __init__(self, paths: Sequence[str], store: Store | None) -> None:
        self._paths = tuple(paths)
        self._store = store
        digest = hashlib.sha256("\0".join(sorted(self._paths)).encode()).hexdigest()[:16]
        self._folder = f"{INPUT}/files-{digest}"
        self._list_count = 0
        self.files: list[InputFile] = []
        self._known_paths: set[str] = set()
        self._catch_up()

    @property
    def has_started(self) -> bool:
        """Whether this driver or an earlier one has already discovered files."""
        return self._list_count > 0

    def discover(self) -> None:
        """Find new files, and write them to the log before they are read."""
        self.add(self.unlisted_files())

    def unlisted_files(self) -> list[InputFile]:
        """The files not in the log. Has no side effects; may take long, and may run on a separate thread."""
        return list_files(self._paths, self._known_paths)

    def add(self, fresh: list[InputFile]) -> None:
        """Write files found by `unlisted_files` to the log."""
        if not fresh and self.has_started:
            return
        if self._store is None:
            self._append(fresh)
            return
        if self._store.create(self._name(self._list_count + 1), list_of_files(fresh)):
            self._append(fresh)
        else:
            self._catch_up()

    def _catch_up(self) -> None:
        """Read the lists that other sources wrote."""
        if self._store is None:
            return
        for name in self._store.list(self._folder):
            stem = Path(name).stem
            if not stem.isdecimal() or int(stem) <= self._list_count:
                continue  # an unrelated file, or one already read
            number = int(stem)
            if number != self._list_count + 1:
                raise StoreDamagedError(
                    f"Store {self._store.url}: {self._name(self._list_count + 1)!r}, a list of input files, is "
                    f"missing. Restore it; without it files would be skipped or read twice."
                )
            try:
                self._append(files_of_list(self._store.get(name)))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise StoreDamagedError(
                    f"Store {self._store.url}: {name!r}, a list of input files, is not readable ({error}). "
                    f"Restore it from a copy."
                ) from error

    def _append(self, files: list[InputFile]) -> None:
        new = [file for file in files if file.path not in self._known_paths]
        self.files.extend(new)
        self._known_paths.update(file.path for file in new)
        self._list_count += 1

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:012d}.json"


def list_of_files(files: Sequence[InputFile]) -> bytes:
    """Serialises a list: a header line, and the files in compressed columns. A million files take some MB."""
    columns = {
        "paths": [file.path for file in files],
        "sizes": [file.size for file in files],
        "modified_ns": [file.modified_ns for file in files],
        "marks": [file.mark for file in files] if any(file.mark for file in files) else [],
    }
    body = json.dumps(columns, separators=(",", ":")).encode()
    head = json.dumps({"list": _FORM, "files": len(files), "sha256": hashlib.sha256(body).hexdigest()}).encode()
    return gzip.compress(head + b"\n" + body, compresslevel=1, mtime=0)


def files_of_list(data: bytes) -> list[InputFile]:
    """The files in a stored list; ValueError, KeyError, TypeError or AttributeError if it is damaged or another
    file."""
    if data[:2] == b"\x1f\x8b":
        return _files_of_columns(data)
    document = json.loads(data)
    entries = document["files"]
    # The first list format has no checksum.
    if document.get("checksum") not in (None, _checksum(entries)):
        raise ValueError("its checksum does not match its content")
    return [InputFile(**entry, cut_by_content=True) for entry in entries]


def _files_of_columns(data: bytes) -> list[InputFile]:
    try:
        head, _, body = gzip.decompress(data).partition(b"\n")
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"it is truncated or changed: {error}") from error
    facts = json.loads(head)
    if facts["list"] != _FORM:
        raise ValueError(f"it has format {facts['list']}, and this Millstream reads format {_FORM}. Use a newer one")
    if facts["sha256"] != hashlib.sha256(body).hexdigest():
        raise ValueError("its checksum does not match its content")
    columns = json.loads(body)
    marks = columns["marks"] or [""] * len(columns["paths"])
    files = zip(columns["paths"], columns["sizes"], columns["modified_ns"], marks, strict=True)
    return [InputFile(path, size, modified_ns, mark) for path, size, modified_ns, mark in files]


def is_file_list(name: str) -> bool:
    """Whether a file of a store is named like a file list.

    >>> is_file_list("input/files-00aa11bb22cc33dd/000000000001.json"), is_file_list("input/in/series.json")
    (True, False)
    """
    return _LIST.fullmatch(name) is not None


def _checksum(entries: object) -> str:
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()
