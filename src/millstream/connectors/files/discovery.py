"""Which files a source reads: each is found once, and written down as it was then.

A file is known by its path, size and time of change when it was first seen. New files are listed in the job's store
before they are read, in the order (time of change, path): after a crash the source has the same files with the same
sizes, whatever happened to the folder meanwhile. A file that grows later keeps its first size; put new
records into new files, and move a file into place when it is complete.

Names that start with '.' or '_' are hidden: files still being written, staging folders, markers.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from millstream.errors import NotYetError, ProgramError, StoreDamagedError
from millstream.storage.names import INPUT
from millstream.storage.store import Store

__all__ = ["FileLog", "InputFile", "check_paths", "files_of_list", "is_file_list", "list_files", "local_path_of"]

_LIST = re.compile(r"input/files-[0-9a-f]{16}/\d{12,}\.json")


@dataclass(frozen=True)
class InputFile:
    """A file as it was when it was first seen."""

    path: str
    size: int
    modified_ns: int


def local_path_of(path: str) -> str:
    """The absolute local path that `path` (plain, or file://) names.

    >>> local_path_of("file:///data/in%20put")
    '/data/in put'
    """
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", path)
    if scheme is None:
        if path.startswith("file:/"):
            return local_path_of("file://" + path[len("file:") :])
        return os.path.abspath(os.path.expanduser(path))
    if scheme.group(1).lower() == "file":
        return os.path.abspath(unquote(urlsplit(path).path))
    raise NotYetError.of(
        f"FileSource on {scheme.group(1)}://",
        "the object-store connectors",
        "read it through Spark, env.from_spark(spark.read.…), or mount it as a folder",
    )


def check_paths(paths: Sequence[str]) -> None:
    """Every path must be there before the job runs."""
    if not paths:
        raise ProgramError("FileSource has no path. Give at least one file or folder.")
    for path in paths:
        if not os.path.exists(path):
            is_pattern = any(sign in path for sign in "*?[")
            advice = (
                "Paths are no patterns: pass *glob.glob(...)" if is_pattern else "Check it, or make the folder first"
            )
            raise ProgramError(f"FileSource: the path {path} does not exist. {advice}.")
        if not os.access(path, os.R_OK):
            raise ProgramError(f"FileSource: {path} may not be read by this user. Change its permissions.")


def list_files(paths: Sequence[str]) -> list[InputFile]:
    """The visible files at and below these paths, oldest first."""
    files: dict[str, InputFile] = {}
    for root in paths:
        for path in _visible(root):
            try:
                status = os.stat(path)
            except FileNotFoundError:
                # Removed between listing and looking: it was never seen.
                continue
            files[path] = InputFile(path, status.st_size, status.st_mtime_ns)
    return sorted(files.values(), key=lambda file: (file.modified_ns, file.path))


def _visible(root: str) -> Iterator[str]:
    if os.path.isfile(root):
        # A file that the user names is read even when its name is hidden.
        yield root
        return
    for place, folders, names in os.walk(root, followlinks=True):
        folders[:] = sorted(name for name in folders if not name.startswith((".", "_")))
        yield from (os.path.join(place, name) for name in names if not name.startswith((".", "_")))


class FileLog:
    """The files of one set of paths, in the order of their discovery, kept in the job's store.

    Sources with the same paths share a log: whoever finds files first writes them down, and the others read it.
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
        """Whether there was a first discovery, by this driver or one before it."""
        return self._list_count > 0

    def discover(self) -> None:
        """Look for new files, and write down what is new before anybody reads it."""
        fresh = [file for file in list_files(self._paths) if file.path not in self._known_paths]
        if not fresh and self.has_started:
            return
        if self._store is None:
            self._take(fresh)
            return
        entries = [asdict(file) for file in fresh]
        data = json.dumps({"files": entries, "checksum": _checksum(entries)}, indent=1).encode()
        if self._store.create(self._name(self._list_count + 1), data):
            self._take(fresh)
        else:
            self._catch_up()

    def _catch_up(self) -> None:
        """Read the lists that others wrote."""
        if self._store is None:
            return
        for name in self._store.list(self._folder):
            stem = Path(name).stem
            if not stem.isdecimal() or int(stem) <= self._list_count:
                continue  # a stray file, or known
            number = int(stem)
            if number != self._list_count + 1:
                raise StoreDamagedError(
                    f"Store {self._store.url}: {self._name(self._list_count + 1)!r}, a list of input files, is "
                    f"missing. Put it back; without it files would be skipped or read twice."
                )
            try:
                self._take(files_of_list(self._store.get(name)))
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise StoreDamagedError(
                    f"Store {self._store.url}: {name!r}, a list of input files, is not readable ({error}). "
                    f"Restore it from a copy."
                ) from error

    def _take(self, files: list[InputFile]) -> None:
        new = [file for file in files if file.path not in self._known_paths]
        self.files.extend(new)
        self._known_paths.update(file.path for file in new)
        self._list_count += 1

    def _name(self, number: int) -> str:
        return f"{self._folder}/{number:012d}.json"


def files_of_list(data: bytes) -> list[InputFile]:
    """The files in a stored list; ValueError, KeyError, TypeError or AttributeError if it is none or was changed."""
    document = json.loads(data)
    entries = document["files"]
    # Lists of the first Millstreams have no checksum.
    if document.get("checksum") not in (None, _checksum(entries)):
        raise ValueError("its checksum does not match its content")
    return [InputFile(**entry) for entry in entries]


def is_file_list(name: str) -> bool:
    """Whether a file of a store has the name of such a list.

    >>> is_file_list("input/files-00aa11bb22cc33dd/000000000001.json"), is_file_list("input/in/series.json")
    (True, False)
    """
    return _LIST.fullmatch(name) is not None


def _checksum(entries: object) -> str:
    return hashlib.sha256(json.dumps(entries, sort_keys=True).encode()).hexdigest()
