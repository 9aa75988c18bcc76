"""Archives of files for executors. The name contains a digest of the content, so equal content is sent once.

Spark unpacks an archive on every executor, in a folder of its name below the executor's own: modules with native code
can be imported from there, and Python caches its byte code. An archive stays on the driver's disk until the process
ends, because executors that join later fetch it too.
"""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["ShippedArchive", "copy_archive", "make_archive"]

_ARCHIVES: dict[str, ShippedArchive] = {}
"""Archives created by this process, by name."""


@dataclass(frozen=True)
class ShippedArchive:
    """A file of the driver, and the name of the folder in which executors unpack it."""

    path: Path
    name: str


def make_archive(stem: str, files: Mapping[str, Path]) -> ShippedArchive:
    """Creates an archive of `files`, which are listed by their path in it."""
    digest = hashlib.sha256()
    for target in sorted(files):
        content = files[target].read_bytes()
        digest.update(f"{target}\0{len(content)}\0".encode() + content)
    name = f"{stem}-{digest.hexdigest()[:16]}"
    if name not in _ARCHIVES:
        path = _fresh_folder() / f"{name}.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for target in sorted(files):
                archive.write(files[target], target)
        _ARCHIVES[name] = ShippedArchive(path, name)
    return _ARCHIVES[name]


def copy_archive(stem: str, path: Path, ending: str) -> ShippedArchive:
    """Copies an existing archive, which may change or disappear afterwards."""
    with path.open("rb") as file:
        name = f"{stem}-{hashlib.file_digest(file, 'sha256').hexdigest()[:16]}"
    if name not in _ARCHIVES:
        copied = _fresh_folder() / f"{name}{ending}"
        shutil.copyfile(path, copied)
        _ARCHIVES[name] = ShippedArchive(copied, name)
    return _ARCHIVES[name]


def _fresh_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="millstream-shipped-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
