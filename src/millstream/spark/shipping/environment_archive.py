"""Packs an environment's packages into one archive, for executors that lack them: `millstream pack`.

It contains `packages/`, the installed packages; `bin/python`, a script that starts a Python with them; and optionally
`python/`, the interpreter. Guarantee: unpacked anywhere, on a machine of the same platform, `bin/python` is a Python of
the same minor version that imports these packages. Without an included interpreter, it starts the machine's `python3.…`
of that version. An interpreter can be relocated only if it was built for that; so it is tested in another folder before
it is packed, and rejected if it does not start there.

PySpark is excluded, because Spark provides it, and so is millstream, which is sent separately. A package installed as a
link to its sources (`pip install -e`) is excluded too: the modules of it that a program imports are sent with the
program.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
from collections.abc import Iterable, Mapping
from importlib.metadata import Distribution, distributions
from pathlib import Path

from millstream.errors import PlatformError

__all__ = ["FACTS_FILE", "environment_files", "interpreter_files", "write_environment"]

FACTS_FILE = "millstream-environment.json"
_FORMAT = 1
_LEFT_OUT = frozenset({"millstream", "pip", "py4j", "pyspark", "setuptools", "uv", "wheel"})
_LIBRARY_LEFT_OUT = ("__pycache__", "site-packages", "test", "idlelib", "tkinter", "turtledemo", "ensurepip")
_VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"
_START = f"""#!/bin/sh
# Made by `millstream pack`: a Python {_VERSION} that imports the packages next to this folder.
here=$(cd "$(dirname "$0")/.." && pwd)
PYTHONPATH="$here/packages${{PYTHONPATH:+:$PYTHONPATH}}"
export PYTHONPATH
if [ -x "$here/python/bin/python{_VERSION}" ]; then
    PYTHONHOME="$here/python"
    LD_LIBRARY_PATH="$here/python/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}"
    export PYTHONHOME LD_LIBRARY_PATH
    exec "$here/python/bin/python{_VERSION}" "$@"
fi
exec python{_VERSION} "$@"
"""


def environment_files(path: Iterable[str] | None = None) -> tuple[dict[str, Path], dict[str, str], list[str]]:
    """The files of the packages installed on `path` (None: here), their versions, and the names of linked packages."""
    files: dict[str, Path] = {}
    versions: dict[str, str] = {}
    linked = []
    packages = distributions() if path is None else distributions(path=list(path))
    for package in sorted(packages, key=lambda package: package.name.lower()):
        name = package.name.lower().replace("_", "-")
        if name in _LEFT_OUT or name in versions:
            continue
        if _is_linked(package):
            linked.append(name)
            continue
        versions[name] = package.version
        for file in package.files or ():
            place = Path(str(package.locate_file(file)))
            if ".." not in file.parts and file.suffix != ".pyc" and place.is_file():
                files[f"packages/{file.as_posix()}"] = place
    return files, versions, linked


def _is_linked(package: Distribution) -> bool:
    origin = package.read_text("direct_url.json")
    return origin is not None and bool(json.loads(origin).get("dir_info", {}).get("editable"))


def interpreter_files() -> dict[str, Path]:
    """The files of the running interpreter; raises PlatformError if it cannot be relocated."""
    prefix, library = Path(sys.base_prefix), Path(sysconfig.get_path("stdlib"))
    program = Path(os.path.realpath(sys.executable))
    files = {f"python/bin/python{_VERSION}": program}
    for path in prefix.glob(f"lib/libpython{_VERSION}*.so*"):
        files[f"python/lib/{path.name}"] = path
    for folder, folders, names in os.walk(library):
        folders[:] = [name for name in folders if name not in _LIBRARY_LEFT_OUT and not name.startswith("config-")]
        for name in names:
            path = Path(folder, name)
            files[f"python/lib/python{_VERSION}/{path.relative_to(library).as_posix()}"] = path
    _check_relocatable(files)
    return files


def _check_relocatable(files: Mapping[str, Path]) -> None:
    with tempfile.TemporaryDirectory(prefix="millstream-python-") as place:
        for target, path in files.items():
            copy = Path(place, target)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, copy)
        start = Path(place, "bin", "python")
        start.parent.mkdir()
        start.write_text(_START)
        start.chmod(0o755)
        test = "import ssl, sqlite3, hashlib, ctypes, sys; print(sys.prefix)"
        ended = subprocess.run(
            [str(start), "-c", test], capture_output=True, text=True, check=False, env={"PATH": os.defpath}
        )
        if ended.returncode != 0 or ended.stdout.strip() != str(Path(place, "python")):
            reason = (ended.stderr.strip().splitlines() or [ended.stdout.strip()])[-1]
            raise PlatformError(
                f"the interpreter {sys.executable} cannot be relocated: it does not run in another folder ({reason}). "
                f"Omit --with-python and install Python {_VERSION} on the executors, or pack from a relocatable "
                "interpreter, such as those of `uv python install`"
            )


def write_environment(path: Path, files: Mapping[str, Path], facts: Mapping[str, object]) -> None:
    """Writes the archive, which is renamed when it is complete. Equal content yields equal bytes."""
    work = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with (
            work.open("wb") as file,
            gzip.GzipFile("", "wb", 3, file, mtime=0) as zipped,
            tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
        ):
            text = json.dumps({"format": _FORMAT, **facts}, indent=2, sort_keys=True)
            _add(archive, FACTS_FILE, text.encode(), 0o644)
            _add(archive, "bin/python", _START.encode(), 0o755)
            for target in sorted(files):
                mode = 0o755 if files[target].stat().st_mode & 0o100 else 0o644
                _add(archive, target, files[target].read_bytes(), mode)
        work.replace(path)
    finally:
        work.unlink(missing_ok=True)


def _add(archive: tarfile.TarFile, name: str, content: bytes, mode: int) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))
