"""An archive of files for the executors. Its name has the digest of its content, so equal content is sent once.

Spark unpacks it on every executor, in a folder of its name below the executor's own: modules with native code can be
imported from there, and Python keeps what it compiles. An archive stays on the driver's disk until the process ends,
for executors that come later fetch it too.
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

_MADE: dict[str, ShippedArchive] = {}
"""What this process has made, by name."""


@dataclass(frozen=True)
class ShippedArchive:
    """A file of the driver, and the folder of an executor that it is unpacked in: its `name`."""

    path: Path
    name: str


def make_archive(stem: str, files: Mapping[str, Path]) -> ShippedArchive:
    """The archive of `files`, by where they stand in it."""
    digest = hashlib.sha256()
    for target in sorted(files):
        content = files[target].read_bytes()
        digest.update(f"{target}\0{len(content)}\0".encode() + content)
    name = f"{stem}-{digest.hexdigest()[:16]}"
    if name not in _MADE:
        path = _fresh_folder() / f"{name}.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
            for target in sorted(files):
                archive.write(files[target], target)
        _MADE[name] = ShippedArchive(path, name)
    return _MADE[name]


def copy_archive(stem: str, path: Path, ending: str) -> ShippedArchive:
    """A copy of an archive that is there, which may change or go after this."""
    with path.open("rb") as file:
        name = f"{stem}-{hashlib.file_digest(file, 'sha256').hexdigest()[:16]}"
    if name not in _MADE:
        copied = _fresh_folder() / f"{name}{ending}"
        shutil.copyfile(path, copied)
        _MADE[name] = ShippedArchive(copied, name)
    return _MADE[name]


def _fresh_folder() -> Path:
    folder = Path(tempfile.mkdtemp(prefix="millstream-shipped-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
