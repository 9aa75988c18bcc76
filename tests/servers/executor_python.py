"""The Python of a cluster's executors: Spark's own requirements, without millstream.

A virtual environment, created once per machine next to the other servers' binaries: the interpreter version that runs
the tests, and links to packages of its environment. So nothing is downloaded, and nothing else can be imported there:
neither the project nor the packages for its tests.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
import tempfile
import venv
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from servers.server_process import binaries

__all__ = ["SPARKS_REQUIREMENTS", "executor_python"]

SPARKS_REQUIREMENTS = ("numpy", "pandas", "pyarrow", "python-dateutil", "pytz", "six", "tzdata")
"""What PySpark asks for where Arrow is used, with what pandas asks for. PySpark itself comes with Spark."""


def executor_python(packages: tuple[str, ...] = SPARKS_REQUIREMENTS) -> Path:
    """The interpreter of an environment that has only these packages of ours."""
    distributions = [distribution(name) for name in packages]
    environment = binaries() / "executors" / _digest(distributions)
    if not environment.exists():
        _make(environment, distributions)
    return environment / "bin" / f"python{sys.version_info[0]}.{sys.version_info[1]}"


def _digest(distributions: list[Distribution]) -> str:
    """Another interpreter, package or version is another environment."""
    parts = [sys.version, os.path.realpath(sys.executable)]
    parts += [f"{d.name}={d.version} {d.locate_file('')}" for d in distributions]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _make(environment: Path, distributions: list[Distribution]) -> None:
    """It is renamed into place when it is complete: concurrent creators make identical ones."""
    environment.parent.mkdir(parents=True, exist_ok=True)
    work = Path(tempfile.mkdtemp(prefix=".making-", dir=environment.parent))
    try:
        venv.EnvBuilder(symlinks=True, with_pip=False).create(work)
        packages = work / "lib" / f"python{sys.version_info[0]}.{sys.version_info[1]}" / "site-packages"
        for entry in sorted({path for d in distributions for path in _entries(d)}):
            (packages / entry.name).symlink_to(entry)
        work.chmod(0o755)
        try:
            work.rename(environment)
        except OSError:
            if not environment.exists():
                raise
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _entries(package: Distribution) -> Iterator[Path]:
    """The sibling files and folders of a package."""
    for file in package.files or ():
        if file.parts[0] not in ("..", "__pycache__"):
            yield Path(str(package.locate_file(file.parts[0])))
