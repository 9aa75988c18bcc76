"""File access on local disk and in object stores. Detects files that changed since they were first listed.

A path is absolute and local (`/data/in`), or the address of an object (`s3://bucket/in/a.txt`). An object is identified
by its mark, the entity tag that the service assigns to its content. Every range request carries that mark, so the
service itself refuses an object that was replaced, in the same request. A local file is checked against its size.

Tasks read the ranges of objects that they need; no object is copied to disk. Credentials, region and
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
    "identity_of",
    "is_remote",
    "missing_error",
    "opened_file",
    "opened_whole",
    "place_of",
    "refuse_credentials",
]

_BUFFER_BYTES = 1 << 20
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


@dataclass(frozen=True, slots=True)
class InputFile:
    """A file as first listed. `mark` identifies the content of an object; "" for a local file.

    `cut_by_content`: an older version listed it and inspected its content to cut it; it is always cut this way."""

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
    """The absolute local path of `path` (plain, or file://), or the normalised address of an object.

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
    # S3 has two scheme spellings; use one of them, so that a file has one name.
    path = re.sub(r"^s3a://", "s3://", path, flags=re.IGNORECASE)
    bucket, key = _bucket_and_key(path)
    refuse_credentials(path, "FileSource")
    parts = key.split("/") if key else []
    if not bucket.partition("://")[2] or any(part in ("", ".", "..") for part in parts):
        raise ProgramError(f"FileSource: {redacted_address(path)} is not an object address. Write s3://bucket/folder")
    return path.rstrip("/")


def refuse_credentials(address: str, subject: str) -> None:
    """Raise ProgramError, without repeating the address, if it may contain credentials."""
    bucket, _, key = address.partition("://")[2].partition("/")
    if is_object_address(address) and ("@" in bucket or "?" in bucket or "?" in key):
        raise ProgramError(
            f"{subject}: the address contains '@' or '?', which may mark credentials. Put them into the environment "
            "(such as AWS_ACCESS_KEY_ID) and write s3://bucket/folder"
        )


def _bucket_and_key(path: str) -> tuple[str, str]:
    """The address of the bucket, and the key.

    >>> _bucket_and_key("s3://bucket/in/a b.txt")
    ('s3://bucket', 'in/a b.txt')
    """
    scheme, _, rest = path.partition("://")
    bucket, _, key = rest.partition("/")
    return f"{scheme}://{bucket}", key.strip("/")


@lru_cache(maxsize=64)
def _backend(bucket: str) -> Backend:
    """The client of a bucket, one per process: it holds the open connections."""
    return connect(bucket)


def check_path(path: str, is_watched: bool) -> None:
    """Check before the job runs that the path exists and is readable; raises ProgramError otherwise.

    A bucket folder exists once it has an object; a folder that is watched for new objects may be empty."""
    if is_remote(path):
        if not _has_objects(path) and not is_watched:
            raise ProgramError(f"FileSource: there is no object at {path} nor below it. Check the address")
    elif os.path.islink(path) and not os.path.exists(path):
        raise ProgramError(f"FileSource: the path {path} is a broken or circular symbolic link. Correct it.")
    elif not os.path.exists(path):
        is_pattern = any(sign in path for sign in "*?[")
        advice = "Patterns are not supported: pass *glob.glob(...)" if is_pattern else "Check it, or create the folder"
        raise ProgramError(f"FileSource: the path {path} does not exist. {advice}.")
    elif not os.access(path, os.R_OK):
        raise ProgramError(f"FileSource: {path} is not readable by this user. Change its permissions.")


def _has_objects(path: str) -> bool:
    """Whether an object exists; StoreError when the bucket does not exist, or is not readable."""
    bucket, key = _bucket_and_key(path)

    def has_object() -> bool:
        with explained_errors(bucket, key), _unreadable_names(bucket):
            page = next(iter(_backend(bucket).list(key or None, chunk_size=1)), None)
            return bool(page) or (bool(key) and _head(bucket, key) is not None)

    try:
        return patiently(has_object)
    except StoreError as error:
        raise type(error)(error.message.replace("Store ", "FileSource: ", 1)) from error


def files_below(root: str, known: Any = ()) -> Iterator[InputFile]:
    """The visible files at and below `root` whose paths are not among `known`.

    Names starting with '.' or '_' are hidden, except partition folders (`_day=2026-11-18`), as in Spark and Hive. A
    file that the user names is read even if its name is hidden.
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
            # Removed between listing and stat: treat it as never listed.
            continue
        except OSError as error:
            if error.errno == errno.ELOOP:
                continue  # a circular link has no content, like a broken one
            raise
        yield InputFile(path, status.st_size, status.st_mtime_ns)


def _visible(root: str, known: Any) -> Iterator[str]:
    # Skip a known file by its name alone: a stat of each of a million files takes seconds.
    for place, folders, names in os.walk(root, followlinks=True, onerror=_refuse_unlistable):
        folders[:] = sorted(
            name
            for name in folders
            if not _is_hidden_folder(name) and not _is_circular_link(os.path.join(place, name), root)
        )
        for name in names:
            if not name.startswith((".", "_")):
                path = os.path.join(place, name)
                if path not in known:
                    yield path


def _is_hidden_folder(name: str) -> bool:
    """Whether a folder is not part of the data.

    >>> [_is_hidden_folder(name) for name in ("_staging", ".git", "_day=1", ".day=1", "day=1")]
    [True, True, False, True, False]
    """
    return name.startswith(".") or (name.startswith("_") and "=" not in name)


def _is_circular_link(folder: str, root: str) -> bool:
    """Whether a folder is a link to one of its parents, whose files are listed already."""
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
    """Raise if a folder cannot be listed, since its files would be missing; ignore one removed since it was listed."""
    is_systems_own = os.path.basename(error.filename or "") == "lost+found"
    if not is_systems_own and not isinstance(error, FileNotFoundError | NotADirectoryError):
        reason = error.strerror or type(error).__name__
        raise ProgramError(f"FileSource: the folder {error.filename} cannot be listed ({reason}). Fix or move it")


def _objects_below(root: str, known: Any) -> Iterator[InputFile]:
    # Read the complete listing first: an interrupted listing starts again.
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
                # Web consoles create a folder as an empty object whose name ends with '/'.
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
            f"FileSource: {bucket} has an object whose name cannot be read ({reason}). Names must not contain "
            "control characters"
            ", no empty part between slashes, and no part '.' or '..'. Rename it, or read another folder"
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
    """Distinguishes a file from a later one of the same name."""
    if is_remote(path):
        return (mark,)
    status = os.stat(path)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def opened_file(path: str, size: int, mark: str) -> BinaryIO:
    """The file, for reading and seeking; raises if it was removed or replaced."""
    if is_remote(path):
        return cast(BinaryIO, io.BufferedReader(_ObjectFile(path, size, mark), _BUFFER_BYTES))
    return open(path, "rb")


def check_size(path: str, size: int) -> None:
    """Reject a file whose size has changed since it was first listed; an object's mark is checked by every read."""
    if not is_remote(path) and (size_now := os.stat(path).st_size) != size:
        raise JobFailedError(
            f"File {path} has {size_now} bytes, and had {size} when it was first listed: it was truncated or replaced. "
            "No data was skipped. Put the original back, and store changed data under a new name."
        )


def opened_whole(path: str, size: int, mark: str) -> BinaryIO:
    """As `opened_file`, for formats that need the whole file: rejects a file that has grown, too."""
    check_size(path, size)
    return opened_file(path, size, mark)


class _ObjectFile(io.RawIOBase):
    """An object as a file. Requests nothing before the first read; then only the ranges read."""

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
                    # Some services write the mark differently in a listing, without quotes.
                    mark_now = _backend(bucket).head(key)["e_tag"] or ""
                    if mark_now == self._mark or _bare_mark(mark_now) != _bare_mark(self._mark):
                        raise
                    self._mark = mark_now
                    return self._conditional_range(bucket, key, start, stop)
            except FileNotFoundError as error:
                raise missing_error(self._path) from error
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


def _bare_mark(mark: str) -> str:
    """A mark without the prefix and quotes that some services add.

    >>> _bare_mark('W/"0f72"'), _bare_mark("0f72")
    ('0f72', '0f72')
    """
    return mark.removeprefix("W/").strip('"')


def missing_error(path: str) -> JobFailedError:
    """The error for a listed file that no longer exists."""
    return JobFailedError(
        f"File {path} no longer exists, and not all of its records were read. Restore it under its name and restart."
    )


def _changed_error(path: str) -> JobFailedError:
    return JobFailedError(
        f"File {path} has changed since it was first listed: it was modified or replaced. "
        "No data was skipped. Put the original back, and store changed data under a new name."
    )
