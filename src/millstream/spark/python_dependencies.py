"""What a program's tasks import and read besides the program: Python files, packages, archives, folders of modules.

They travel through Spark, under the settings that PyFlink uses (`python.files`, `python.requirements`,
`python.archives`, `python.pythonpath`), and lie in one folder of each worker, beside each other.

**Packages** are installed once, by pip or uv, where the program runs, and sent as an archive that every worker unpacks
and imports from. So the workers need neither pip nor a network, but they must be of the same platform and Python, as
Spark's workers are. With a folder of packages nothing else is asked for them: no index, no network.

**Archives** are unpacked under their names in that folder, and a job that has some runs its functions there: as in
PyFlink, `open("data/ads.csv")` finds what was sent as `data.zip#data`.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from millstream.common.options.archives import archive_target
from millstream.errors import ConfigurationError

__all__ = ["has_archives", "install_packages", "install_requirements", "ship_dependencies"]

_FILES, _ARCHIVES, _REQUIREMENTS, _FOLDERS = (
    "python.files",
    "python.archives",
    "python.requirements",
    "python.pythonpath",
)
_PIP_LINES_SHOWN = 3
_INSTALLED: dict[str, str] = {}
"""The archives made of requirements by this process, by what they were made of."""


def ship_dependencies(session: Any, configuration: Mapping[str, str], packages: str | None) -> None:
    """Give the tasks what the settings name, and the archive that `install_requirements` made."""
    context = session.sparkContext
    for path in _items(configuration, _FILES):
        context.addPyFile(path)
    for path in _items(configuration, _ARCHIVES):
        archive_target(path)
        context.addArchive(path)
    # Where workers look for modules: names in Spark's folder, or folders of their machines.
    folders = configuration.get(_FOLDERS, "").split(":")
    if packages is not None:
        name = Path(packages).stem
        context.addArchive(f"{packages}#{name}")
        folders.append(name)
    context._python_includes.extend(folder for folder in folders if folder and folder not in context._python_includes)


def has_archives(configuration: Mapping[str, str]) -> bool:
    """Whether functions run where archives are unpacked."""
    return bool(_items(configuration, _ARCHIVES))


def install_requirements(configuration: Mapping[str, str]) -> str | None:
    """Install what `python.requirements` asks for; the archive of it, None if nothing is asked for."""
    setting = configuration.get(_REQUIREMENTS, "")
    if not setting:
        return None
    file, _, packages = setting.partition("#")
    if not Path(file).is_file():
        raise ConfigurationError(f"{_REQUIREMENTS}: there is no {file!r}. Give a requirements file that exists")
    if packages and not Path(packages).is_dir():
        raise ConfigurationError(
            f"{_REQUIREMENTS}: there is no folder {packages!r}. Give the folder that has the packages, as "
            f"`pip download -d {packages} -r {file}` fills it"
        )
    digest = hashlib.sha256(f"{setting}\0".encode() + Path(file).read_bytes()).hexdigest()[:16]
    if digest not in _INSTALLED:
        _INSTALLED[digest] = _installed(file, packages, digest)
    return _INSTALLED[digest]


def _installed(file: str, packages: str, digest: str) -> str:
    with tempfile.TemporaryDirectory(prefix="millstream-packages-") as folder:
        install_packages(file, packages, folder)
        place = tempfile.mkdtemp(prefix="millstream-")
        atexit.register(shutil.rmtree, place, ignore_errors=True)  # Spark's tasks fetch it from there
        return shutil.make_archive(str(Path(place, f"packages-{digest}")), "zip", folder)


def install_packages(file: str, packages: str, folder: str, subject: str = _REQUIREMENTS) -> None:
    """Install what a requirements file asks for into a folder, from the folder `packages` if one is named."""
    if not Path(file).is_file():
        raise ConfigurationError(f"{subject}: there is no {file!r}. Give a requirements file that exists")
    command = [*_installer(), "--target", folder, "--requirement", file]
    command += ["--no-index", "--find-links", packages] if packages else []
    ended = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if ended.returncode != 0:
        why = [line for line in ended.stderr.splitlines() if line.strip()][-_PIP_LINES_SHOWN:]
        where = f"in {packages!r}" if packages else "with pip"
        raise ConfigurationError(
            f"{subject}: {file!r} could not be installed {where}: {' '.join(why)} Correct the file, or "
            + ("put the packages there (pip download)" if packages else "give a folder that has the packages")
        )


def _installer() -> list[str]:
    """The command that installs packages: this interpreter's pip, or uv, which many environments have in its place."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    beside = str(Path(sys.executable).parent)
    uv = shutil.which("uv", path=beside) or shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    raise ConfigurationError(
        f"{_REQUIREMENTS}: pip or uv installs them, and {sys.executable} has neither. Run "
        f"`{sys.executable} -m ensurepip`, or install the packages where the workers run"
    )


def _items(configuration: Mapping[str, str], key: str) -> list[str]:
    return [item.strip() for item in configuration.get(key, "").split(",") if item.strip()]
