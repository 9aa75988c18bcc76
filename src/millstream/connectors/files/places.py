"""Where files lie: on local disk, or in an object store. What is read of either is what was seen first.

A path is absolute and local (`/data/in`), or the address of an object (`s3://bucket/in/a.txt`). An object is known by
the mark that the service gives its content (its entity tag). Every range of it is asked for with that mark, so that an
object that was replaced meanwhile is refused by the service itself, in the same request. A local file is held against
its size.

Objects are read in ranges, by the task that needs them; nothing of a bucket is copied anywhere. Credentials, region and
endpoint come from the environment, as for the job's store.
"""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, BinaryIO, cast
from urllib.parse import unquote, urlsplit

from millstream.errors import JobFailedError, ProgramError, StoreError
from millstream.redaction import redacted_address, scheme_of
from millstream.storage.objects import connect, explained_errors
from millstream.storage.patience import patiently
from millstream.storage.store import is_object_address

if TYPE_CHECKING:
    from obstore.store import ObjectStore as Backend

__all__ = [
    "InputFile",
    "check_path",
    "check_size",
    "files_below",
    "gone_error",
    "identity_of",
    "is_remote",
    "opened_file",
    "opened_whole",
    "place_of",
    "refuse_credentials",
]

_BUFFER_BYTES = 1 << 20
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file as it was when it was first seen. `mark` stands for the content of an object; "" for a local file.

    `cut_by_content`: it was listed by a Millstream that looked into every file to cut it, and is cut so for ever."""

    path: str
    size: int
    modified_ns: int
    mark: str = ""
    cut_by_content: bool = False


def is_remote(path: str) -> bool:
    """Whether the path is the address of an object.

    >>> is_remote("s3://bucket/in"), is_remote("/data/in")
    (True, False)
    """
    return is_object_address(path)


def place_of(path: str) -> str:
    """The absolute local path that `path` (plain, or file://) names, or the address of an object as it is.

    >>> place_of("file:///data/in%20put"), place_of("s3a://bucket/in/")
    ('/data/in put', 's3://bucket/in')
    """
    scheme = _SCHEME.match(path)
    if scheme is None:
        if path.startswith("file:/"):
            return place_of("file://" + path[len("file:") :])
        return os.path.abspath(os.path.expanduser(path))
    if scheme.group(1).lower() == "file":
        return os.path.abspath(unquote(urlsplit(path).path))
    if is_object_address(path):
        return _object_address(path)
    raise ProgramError(
        f"FileSource: the address {scheme_of(path)} has the scheme {scheme.group(1)!r}, expected a path, file://, "
        "s3://, gs:// or az://. Mount other systems as a folder, or read them by Spark: env.from_spark(spark.read.…)"
    )


def _object_address(path: str) -> str:
    # S3's two spellings mean one service; one of them is kept, so that a file has one name.
    path = re.sub(r"^s3a://", "s3://", path, flags=re.IGNORECASE)
    bucket, key = _bucket_and_key(path)
    refuse_credentials(path, "FileSource")
    parts = key.split("/") if key else []
    if not bucket.partition("://")[2] or any(part in ("", ".", "..") for part in parts):
        raise ProgramError(f"FileSource: {redacted_address(path)} is no address of objects. Give s3://bucket/folder")
    return path.rstrip("/")


def refuse_credentials(address: str, subject: str) -> None:
    """ProgramError, which does not repeat it, for an address in which credentials may be."""
    bucket, _, key = address.partition("://")[2].partition("/")
    if is_object_address(address) and ("@" in bucket or "?" in bucket or "?" in key):
        raise ProgramError(
            f"{subject}: the address holds '@' or '?', where some put credentials. They belong into the environment "
            "(AWS_ACCESS_KEY_ID and the like); give s3://bucket/folder"
        )


def _bucket_and_key(path: str) -> tuple[str, str]:
    """The address of the bucket, and the rest.

    >>> _bucket_and_key("s3://bucket/in/a b.txt")
    ('s3://bucket', 'in/a b.txt')
    """
    scheme, _, rest = path.partition("://")
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key.strip("/")


@lru_cache(maxsize=64)
def _backend(bucket: str) -> Backend:
    """The connection to a bucket. One per process: it holds the open connections."""
    return connect(bucket)


def check_path(path: str, is_watched: bool) -> None:
    """The path must be there, and readable, before the job runs; ProgramError says what is not.

    A folder of a bucket is there with its first object; one that is watched for new ones need not be there yet."""
    if is_remote(path):
        if not _has_objects(path) and not is_watched:
            raise ProgramError(f"FileSource: there is no object at {path} nor below it. Check the address")
    elif os.path.islink(path) and not os.path.exists(path):
        raise ProgramError(f"FileSource: the path {path} is a link that leads nowhere, or back to itself. Correct it.")
    elif not os.path.exists(path):
        is_pattern = any(sign in path for sign in "*?[")
        advice = "Paths are no patterns: pass *glob.glob(...)" if is_pattern else "Check it, or make the folder first"
        raise ProgramError(f"FileSource: the path {path} does not exist. {advice}.")
    elif not os.access(path, os.R_OK):
        raise ProgramError(f"FileSource: {path} may not be read by this user. Change its permissions.")


def _has_objects(path: str) -> bool:
    """Whether there is an object; StoreError when the bucket is not there, or may not be read."""
    bucket, key = _bucket_and_key(path)

    def look() -> bool:
        with explained_errors(bucket, key), _unreadable_names(bucket):
            found = next(iter(_backend(bucket).list(key or None, chunk_size=1)), None)
            return bool(found) or (bool(key) and _head(bucket, key) is not None)

    try:
        return patiently(look)
    except StoreError as error:
        raise type(error)(error.message.replace("Store ", "FileSource: ", 1)) from error


def files_below(root: str, known: Any = ()) -> Iterator[InputFile]:
    """The visible files at and below `root` whose paths are not among `known`.

    Hidden is what starts with '.' or '_', but for folders of a partition (`_day=2026-11-18`), as in Spark and Hive. A
    file that the user names is read even when its name is hidden.
    """
    return _objects_below(root, known) if is_remote(root) else _local_files_below(root, known)


def _local_files_below(root: str, known: Any) -> Iterator[InputFile]:
    if os.path.isfile(root):
        paths: Iterator[str] = iter(() if root in known else (root,))
    else:
        paths = _visible(root, known)
    for path in paths:
        try:
            status = os.stat(path)
        except FileNotFoundError:
            # Removed between listing and looking: it was never seen.
            continue
        except OSError as error:
            if error.errno == errno.ELOOP:
                continue  # a link that leads to itself has nothing to read, as one that leads nowhere
            raise
        yield InputFile(path, status.st_size, status.st_mtime_ns)


def _visible(root: str, known: Any) -> Iterator[str]:
    # A known file is passed over by its name alone: asking the disk about each of a million takes seconds.
    for place, folders, names in os.walk(root, followlinks=True, onerror=_refuse_unlistable):
        folders[:] = sorted(
            name for name in folders if not _is_hidden_folder(name) and not _leads_back(os.path.join(place, name), root)
        )
        for name in names:
            if not name.startswith((".", "_")):
                path = os.path.join(place, name)
                if path not in known:
                    yield path


def _is_hidden_folder(name: str) -> bool:
    """Whether a folder is none of the table's own.

    >>> [_is_hidden_folder(name) for name in ("_staging", ".git", "_day=1", ".day=1", "day=1")]
    [True, True, False, True, False]
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _leads_back(folder: str, root: str) -> bool:
    """Whether a folder is a link to one that it is in: all files there are read already."""
    if not os.path.islink(folder):
        return False
    target, at = os.path.realpath(folder), os.path.dirname(folder)
    while True:
        if os.path.commonpath([os.path.realpath(at), target]) == target:
            return True
        if len(at) <= len(root):
            return False
        at = os.path.dirname(at)


def _refuse_unlistable(error: OSError) -> None:
    """A folder that is gone by now was never seen; the files of one that may not be listed would be missing."""
    is_systems_own = os.path.basename(error.filename or "") == "lost+found"
    if not is_systems_own and not isinstance(error, FileNotFoundError | NotADirectoryError):
        reason = error.strerror or type(error).__name__
        raise ProgramError(f"FileSource: the folder {error.filename} cannot be listed ({reason}). Mend it, or move it")


def _objects_below(root: str, known: Any) -> Iterator[InputFile]:
    # All of it before any of it: a listing that breaks off is begun again.
    return iter(patiently(lambda: list(_listed_objects(root, known))))


def _listed_objects(root: str, known: Any) -> Iterator[InputFile]:
    bucket, key = _bucket_and_key(root)
    skipped = len(key) + 1 if key else 0
    with explained_errors(bucket, key), _unreadable_names(bucket):
        if key and (named := _head(bucket, key)) is not None and root not in known:
            yield named
        for page in _backend(bucket).list(key or None):
            for item in page:
                name = item["path"]
                path = f"{bucket}/{name}"
                # A folder made by hand in a console is an empty object whose name ends with '/'.
                *folders, last = name[skipped:].split("/")
                hidden = last.startswith((".", "_")) or any(map(_is_hidden_folder, folders))
                if not hidden and not name.endswith("/") and path not in known:
                    yield _input_file(path, cast(dict[str, Any], item))


@contextmanager
def _unreadable_names(bucket: str) -> Iterator[None]:
    from obstore.exceptions import InvalidPathError

    try:
        yield
    except InvalidPathError as error:
        reason = str(error).split("\n", 1)[0]
        raise StoreError(
            f"FileSource: {bucket} has an object whose name cannot be read here ({reason}). Names must have no control "
            "characters, no empty part between slashes, and no part '.' or '..'. Rename it, or read another folder"
        ) from error


def _head(bucket: str, key: str) -> InputFile | None:
    try:
        return _input_file(f"{bucket}/{key}", cast(dict[str, Any], _backend(bucket).head(key)))
    except FileNotFoundError:
        return None


def _input_file(path: str, item: dict[str, Any]) -> InputFile:
    modified_ns = int(item["last_modified"].timestamp() * 1000) * 1_000_000
    return InputFile(path, int(item["size"]), modified_ns, item.get("e_tag") or "")


def identity_of(path: str, mark: str) -> tuple[int | str, ...]:
    """What tells a file from another that was put under its name."""
    if is_remote(path):
        return (mark,)
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def opened_file(path: str, size: int, mark: str) -> BinaryIO:
    """The file, to be read and sought in; what is gone or another one by now is an error."""
    if is_remote(path):
        return cast(BinaryIO, io.BufferedReader(_ObjectFile(path, size, mark), _BUFFER_BYTES))
    return open(path, "rb")


def check_size(path: str, size: int) -> None:
    """Refuse a file that has another size than when it was first seen; an object is refused by its mark when read."""
    if not is_remote(path) and (size_now := os.stat(path).st_size) != size:
        raise JobFailedError(
            f"File {path} has {size_now} bytes, and had {size} when it was first seen: it was cut or replaced. "
            f"Nothing of it was skipped. Put the original back, and give changed data a new name."
        )


def opened_whole(path: str, size: int, mark: str) -> BinaryIO:
    """As `opened_file`, for formats that need all of the file: one that has grown is refused too."""
    check_size(path, size)
    return opened_file(path, size, mark)


class _ObjectFile(io.RawIOBase):
    """An object as a file. Nothing is asked before something is read; then the range, and no more."""

    def __init__(self, path: str, size: int, mark: str) -> None:
        super().__init__()
        self._path, self._size, self._mark = path, size, mark
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, position: int, whence: int = 0) -> int:
        self._at = max(0, position + (0, self._at, self._size)[whence])
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        stop = min(self._size, self._at + len(buffer))
        if stop <= self._at:
            return 0
        data = patiently(partial(self._range, self._at, stop))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _range(self, start: int, stop: int) -> bytes:
        from obstore.exceptions import PreconditionError

        bucket, key = _bucket_and_key(self._path)
        with explained_errors(bucket, key):
            try:
                try:
                    return self._conditional_range(bucket, key, start, stop)
                except PreconditionError:
                    # Some services spell a mark otherwise in a listing, without its quotes.
                    mark_now = _backend(bucket).head(key)["e_tag"] or ""
                    if mark_now == self._mark or _bare(mark_now) != _bare(self._mark):
                        raise
                    self._mark = mark_now
                    return self._conditional_range(bucket, key, start, stop)
            except FileNotFoundError as error:
                raise gone_error(self._path) from error
            except PreconditionError as error:
                raise _changed_error(self._path) from error

    def _conditional_range(self, bucket: str, key: str, start: int, stop: int) -> bytes:
        options: Any = {"range": (start, stop)}
        if self._mark:
            options["if_match"] = self._mark
        answer = _backend(bucket).get(key, options=options)
        data = bytes(answer.bytes())
        if answer.meta["size"] != self._size or len(data) != stop - start:
            raise _changed_error(self._path)
        return data


def _bare(mark: str) -> str:
    """A mark without what services put around it.

    >>> _bare('W/"0f72"'), _bare("0f72")
    ('0f72', '0f72')
    """
    return mark.removeprefix("W/").strip('"')


def gone_error(path: str) -> JobFailedError:
    """The error for a file that was seen, and is not there any more."""
    return JobFailedError(
        f"File {path} is gone, and its records were not all read. Put it back under its name and start again."
    )


def _changed_error(path: str) -> JobFailedError:
    return JobFailedError(
        f"File {path} is not what it was when it was first seen: it was changed or replaced. "
        f"Nothing of it was skipped. Put the original back, and give changed data a new name."
    )
