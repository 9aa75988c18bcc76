"""The user's own modules: what stands beside the program, and what it imported from folders of its own.

A function of the program itself travels by value, with the plan. A function of a module is pickled by its name, so its
module has to be where tasks run. Sent are all modules and packages beside the program (a function may import one only
when it is called), and those that were imported from other folders which are neither Python's nor of installed packages
(`PYTHONPATH`, a source tree). Installed packages are not: they may have native code, and `millstream pack` is for them.
"""

from __future__ import annotations

import os
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from millstream.errors import ProgramError
from millstream.graph.site import PACKAGE_FOLDER

__all__ = ["program_edits", "program_files", "program_folder"]

_BYTES_MAX = 64 << 20
_LEFT_OUT = ("__pycache__", "node_modules")
_STAMPS: dict[str, int] = {}
"""When the file of each module was changed, as it was when this process last looked."""
_EDITS: list[None] = []


def program_folder(modules: Mapping[str, ModuleType] = sys.modules) -> Path | None:
    """Where the program's file is; None where there is none (a terminal, a notebook) or it is an installed command."""
    file = getattr(modules.get("__main__"), "__file__", None)
    if not file:
        return None
    folder = Path(file).resolve().parent
    return None if _is_installed(folder) else folder


def program_files(modules: Mapping[str, ModuleType] = sys.modules) -> dict[str, Path]:
    """The files of the user's modules among `modules`, by where they stand in a folder to import from."""
    files: dict[str, Path] = {}
    folder = program_folder(modules)
    if folder is not None:
        for entry in sorted(folder.iterdir()):
            if entry.suffix == ".py" or (entry / "__init__.py").is_file():
                files.update(_files_of(entry, folder))
    for module in list(modules.values()):
        for entry, root in _own_entries(module):
            if entry.name not in files and f"{entry.name}/__init__.py" not in files:
                files.update(_files_of(entry, root))
    total = sum(path.stat().st_size for path in files.values())
    if total > _BYTES_MAX:
        largest = max(files.values(), key=lambda path: path.stat().st_size)
        raise ProgramError(
            f"the modules of the program are {total >> 20} MB, and at most {_BYTES_MAX >> 20} MB are sent to executors "
            f"(the largest file is {largest}). Move data elsewhere, and send it by python.archives"
        )
    return files


def program_edits(modules: Mapping[str, ModuleType] = sys.modules) -> int:
    """How often the files of imported modules of the user have been found changed. In a notebook, a module is edited
    and loaded again between two jobs, and workers that imported it before must not be used for the second one."""
    changed = False
    for module in list(modules.values()):
        file = getattr(module, "__file__", None)
        if not file or not file.endswith(".py") or file.startswith((sys.prefix, sys.base_prefix, PACKAGE_FOLDER)):
            continue
        with suppress(OSError):
            stamp = os.stat(file).st_mtime_ns
            changed |= _STAMPS.setdefault(file, stamp) != stamp
            _STAMPS[file] = stamp
    if changed:
        _EDITS.append(None)
    return len(_EDITS)


def _own_entries(module: ModuleType) -> Iterator[tuple[Path, Path]]:
    """The top file or folder of a module that is the user's, and the folder it is imported from."""
    name, file = getattr(module, "__name__", ""), getattr(module, "__file__", None)
    if not file or name == "__main__" or not file.endswith(".py"):
        return
    path = Path(os.path.abspath(file))
    if str(path).startswith(PACKAGE_FOLDER) or _is_installed(path):
        return
    depth = name.count(".") + (path.name == "__init__.py")
    if depth >= len(path.parents):
        return
    root = path.parents[depth]
    top = root / path.relative_to(root).parts[0]
    if top.stem == name.partition(".")[0]:  # else the module was loaded in a way of its own
        yield top, root


def _files_of(entry: Path, root: Path) -> dict[str, Path]:
    if entry.is_file():
        return {entry.name: entry}
    found: dict[str, Path] = {}
    for folder, folders, names in os.walk(entry):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT and not name.startswith("."))
        for name in names:
            path = Path(folder, name)
            if not name.endswith(".pyc") and path.is_file():
                found[path.relative_to(root).as_posix()] = path
    return found


def _is_installed(path: Path) -> bool:
    """Whether it is Python's own, or of an installed package: there is no need to send it, or no way to do it well."""
    paths = sysconfig.get_paths()
    installed = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")}
    installed |= {*site.getsitepackages(), site.getusersitepackages()}
    resolved = path.resolve()
    return any(resolved.is_relative_to(Path(folder).resolve()) or path.is_relative_to(folder) for folder in installed)
