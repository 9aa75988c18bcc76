"""Ships a program's dependencies to its tasks: Python files, packages, archives, folders of modules.

They travel through Spark, configured by PyFlink's settings (`python.files`, `python.requirements`, `python.archives`,
`python.pythonpath`), each in a folder named by its content. So a job may ship a file with the same name as one of an
earlier job of this process; its tasks import only from its own folders (`spark.task_imports`).

**Packages** are installed once, by pip or uv, where the program runs, and sent as an archive that every worker unpacks
and imports from. So the workers need neither pip nor a network, but must have the same platform and Python, as Spark's
workers do. If a folder of packages is configured, no index and no network is used.

**Archives** appear under their names in a folder of the job, which is the working directory of its functions: as in
PyFlink, `open("data/ads.csv")` reads the content of `data.zip#data`.
"""

from __future__ import annotations

import atexit
import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from millstream.common.options.archives import ARCHIVE_ENDINGS, archive_target
from millstream.errors import ConfigurationError
from millstream.spark.shipping.archives import ShippedArchive, copy_archive, make_archive
from millstream.spark.shipping.packages import SPARKS_PACKAGES, TASK_PACKAGES
from millstream.spark.shipping.program_files import program_edits
from millstream.spark.task_imports import TaskImports

__all__ = ["install_packages", "install_requirements", "ship_dependencies"]

_FILES, _ARCHIVES, _REQUIREMENTS, _FOLDERS = (
    "python.files",
    "python.archives",
    "python.requirements",
    "python.pythonpath",
)
_PIP_LINES_SHOWN = 3
_SAME_VERSION = ("cloudpickle", "py4j", "pyspark")
_PACKED = (".zip", ".egg", ".whl", ".jar")
_INSTALLED: dict[str, str] = {}
"""Archives built from requirements by this process, by the digest of the requirements."""
_SENT: WeakKeyDictionary[Any, set[str]] = WeakKeyDictionary()
"""Names of the archives sent to each Spark application."""


def ship_dependencies(session: Any, configuration: Mapping[str, str], packages: str | None) -> TaskImports:
    """Sends the configured dependencies and the archive of `install_requirements`; returns where tasks find them.

    Archives are named by their content, because Spark identifies a file by its name and rejects a different one."""
    context = session.sparkContext
    folders = [folder for folder in configuration.get(_FOLDERS, "").split(":") if folder]
    if packages is not None:
        folders.append(_send(context, ShippedArchive(Path(packages), Path(packages).stem)))
    folders += [_module_folder(context, path) for path in _items(configuration, _FILES)]
    archives = tuple(_archive_place(context, item) for item in _items(configuration, _ARCHIVES))
    imports = TaskImports(tuple(folder for folder in dict.fromkeys(folders) if folder), archives, program_edits())
    imports.apply(context)
    return imports


def _module_folder(context: Any, path: str) -> str:
    """Sends a module or an archive of modules; returns its name in Spark's folder of files."""
    if "://" in path:
        context.addFile(path) if path.endswith(".py") else context.addArchive(path)
        return "" if path.endswith(".py") else path.rpartition("/")[2]
    file = Path(path)
    if not file.is_file():
        raise ConfigurationError(f"{_FILES}: there is no file {path!r}. Specify an existing .py file or archive")
    if file.suffix.lower() in _PACKED:
        return _send(context, copy_archive(file.stem, file, ".zip"))
    return _send(context, make_archive(file.stem, {file.name: file}))


def _archive_place(context: Any, item: str) -> tuple[str, str]:
    """Sends an archive; returns where functions see it, and its name in Spark's folder of files."""
    target = str(archive_target(item))
    path, _, _ = item.partition("#")
    if "://" in path:
        context.addArchive(item)
        return target, target
    if not Path(path).is_file():
        raise ConfigurationError(f"{_ARCHIVES}: there is no file {path!r}. Specify an existing archive")
    ending = next(ending for ending in ARCHIVE_ENDINGS if path.endswith(ending))
    return target, _send(context, copy_archive(Path(path).name.removesuffix(ending), Path(path), ending))


def _send(context: Any, archive: ShippedArchive) -> str:
    """Sends an archive, once, for Spark to unpack next to the tasks' files."""
    sent = _SENT.setdefault(context, set())
    if archive.name not in sent:
        context.addArchive(f"{archive.path}#{archive.name}")
        sent.add(archive.name)
    return archive.name


def install_requirements(configuration: Mapping[str, str]) -> str | None:
    """Installs `python.requirements`; returns the path of the archive, None without requirements."""
    setting = configuration.get(_REQUIREMENTS, "")
    if not setting:
        return None
    file, _, packages = setting.partition("#")
    if not Path(file).is_file():
        raise ConfigurationError(f"{_REQUIREMENTS}: there is no {file!r}. Specify an existing requirements file")
    if packages and not Path(packages).is_dir():
        raise ConfigurationError(
            f"{_REQUIREMENTS}: there is no folder {packages!r}. Specify the folder of packages, as filled by "
            f"`pip download -d {packages} -r {file}`"
        )
    digest = hashlib.sha256(f"{setting}\0".encode() + Path(file).read_bytes()).hexdigest()[:16]
    if digest not in _INSTALLED:
        _INSTALLED[digest] = _install(file, packages, digest)
    return _INSTALLED[digest]


def _install(file: str, packages: str, digest: str) -> str:
    with tempfile.TemporaryDirectory(prefix="millstream-packages-") as folder:
        install_packages(file, packages, folder)
        place = tempfile.mkdtemp(prefix="millstream-")
        atexit.register(shutil.rmtree, place, ignore_errors=True)  # executors download it until then
        return shutil.make_archive(str(Path(place, f"packages-{digest}")), "zip", folder)


def install_packages(file: str, packages: str, folder: str, subject: str = _REQUIREMENTS) -> None:
    """Installs a requirements file into a folder, from the folder `packages` if one is specified."""
    if not Path(file).is_file():
        raise ConfigurationError(f"{subject}: there is no {file!r}. Specify an existing requirements file")
    _refuse_flink(file, subject)
    needed = _needed_versions()
    with tempfile.NamedTemporaryFile("w", prefix="millstream-constraints-", suffix=".txt") as constraints:
        constraints.writelines(f"{name}{versions}\n" for name, versions in needed.items())
        constraints.flush()
        command = [*_installer(), "--target", folder, "--requirement", file, "--constraint", constraints.name]
        command += ["--no-index", "--find-links", packages] if packages else []
        ended = subprocess.run(command, capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    if ended.returncode != 0:
        _refuse_other_versions(file, needed, subject)
        errors = [line for line in ended.stderr.splitlines() if line.strip()][-_PIP_LINES_SHOWN:]
        where = f"in {packages!r}" if packages else "with pip"
        raise ConfigurationError(
            f"{subject}: {file!r} could not be installed {where}: {' '.join(errors)} Correct the file, or "
            + ("put the packages there (pip download)" if packages else "specify a folder of packages")
        )


def _needed_versions() -> dict[str, str]:
    """The packages that tasks import for us, with the accepted versions: some must be identical, because the program
    is pickled here and unpickled there."""
    needed = {}
    with suppress(PackageNotFoundError):
        for requirement in requires("millstream") or ():
            name, versions = _parse_requirement(requirement)
            if "extra ==" not in requirement and name in (*SPARKS_PACKAGES, *TASK_PACKAGES):
                needed[name] = versions
    for name in _SAME_VERSION:
        with suppress(PackageNotFoundError):
            needed[name] = f"=={version(name)}"
    return needed


def _refuse_flink(file: str, subject: str) -> None:
    """Rejects Flink's own package: it needs other versions of py4j and cloudpickle than tasks have, and 330 MB."""
    for line in _lines_of(file):
        if _parse_requirement(line)[0] in ("apache-flink", "apache-flink-libraries"):
            raise ConfigurationError(
                f"{subject}: {file!r} requires {line}, which needs other versions of py4j and cloudpickle than tasks "
                "have. Remove it: Millstream provides `import pyflink` (millstream run --pyflink)"
            )


def _lines_of(file: str) -> list[str]:
    text = Path(file).read_text(encoding="utf-8", errors="replace")
    return [line.partition("#")[0].strip() for line in text.splitlines()]


def _refuse_other_versions(file: str, needed: Mapping[str, str], subject: str) -> None:
    """Reports the line of a requirements file that conflicts with a version that tasks need."""
    for line in _lines_of(file):
        name, versions = _parse_requirement(line)
        if name in needed and versions not in ("", needed[name]):
            raise ConfigurationError(
                f"{subject}: {file!r} requires {name}{versions}, and the job's tasks need {name}{needed[name]}: with "
                f"another version they cannot read the program. Remove the line, or allow {name}{needed[name]}"
            )


def _parse_requirement(requirement: str) -> tuple[str, str]:
    """Parses the name and the versions of a requirement.

    >>> _parse_requirement("Cloud_Pickle [x] >= 2, <4 ; python_version > '3'")
    ('cloud-pickle', '>=2,<4')
    """
    match = re.match(r"\s*([\w.-]*\w)\s*(?:\[[^\]]*\])?\s*\(?([^;)]*)", requirement)
    if match is None:
        return "", ""
    return re.sub(r"[-_.]+", "-", match[1]).lower(), re.sub(r"\s", "", match[2])


def _installer() -> list[str]:
    """The command that installs packages: this interpreter's pip, or uv, which replaces it in many environments."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-input"]
    same_folder = str(Path(sys.executable).parent)
    uv = shutil.which("uv", path=same_folder) or shutil.which("uv")
    if uv is not None:
        return [uv, "pip", "install", "--quiet", "--python", sys.executable]
    raise ConfigurationError(
        f"{_REQUIREMENTS}: needs pip or uv, and {sys.executable} has neither. Run "
        f"`{sys.executable} -m ensurepip`, or install the packages where the workers run"
    )


def _items(configuration: Mapping[str, str], key: str) -> list[str]:
    return [item.strip() for item in configuration.get(key, "").split(",") if item.strip()]
