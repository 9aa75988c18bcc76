"""The Python of a cluster's executors: what Spark itself requires, and no millstream.

An environment of its own, made once on a machine beside the other servers' binaries: an interpreter of the version that
runs the tests, and links to the packages that its environment has. So nothing is fetched, and nothing else can be
imported there: not the project, not what is installed for its tests.
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
    """The interpreter of an environment that has these packages of ours, and no others."""
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
    """It gets its name when it is complete: whoever made it at the same time made the same."""
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
    """The files and folders beside each other that a package is made of."""
    for file in package.files or ():
        if file.parts[0] not in ("..", "__pycache__"):
            yield Path(str(package.locate_file(file.parts[0])))
