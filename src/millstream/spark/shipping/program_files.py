"""The user's own modules: those next to the program, and those imported from other folders of the user.

A function of the program itself is pickled by value, with the plan. A function of a module is pickled by name, so its
module must be available to tasks. All modules and packages next to the program are sent (a function may import one only
when it is called), and modules imported from folders that belong neither to Python nor to installed packages
(`PYTHONPATH`, a source tree). Installed packages are not sent: they may have native code; `millstream pack` packs them.
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
"""The modification time of each module's file, as last seen by this process."""
_EDITS: list[None] = []


def program_folder(modules: Mapping[str, ModuleType] = sys.modules) -> Path | None:
    """The folder of the program's file; None without a file (a terminal, a notebook) or for an installed command."""
    file = getattr(modules.get("__main__"), "__file__", None)
    if not file:
        return None
    folder = Path(file).resolve().parent
    return None if _is_installed(folder) else folder


def program_files(modules: Mapping[str, ModuleType] = sys.modules) -> dict[str, Path]:
    """The files of the user's modules among `modules`, by their path in an import folder."""
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
            f"the program's modules have {total >> 20} MB, but at most {_BYTES_MAX >> 20} MB are sent to executors "
            f"(the largest file is {largest}). Move data elsewhere, and send it by python.archives"
        )
    return files


def program_edits(modules: Mapping[str, ModuleType] = sys.modules) -> int:
    """How often changes to files of imported user modules were detected. In a notebook, a module may be edited and
    reloaded between two jobs, and workers that imported it before must not be used for the second one."""
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
    """The top-level file or folder of a user's module, and the folder it is imported from."""
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
    if top.stem == name.partition(".")[0]:  # otherwise the module was loaded in a nonstandard way
        yield top, root


def _files_of(entry: Path, root: Path) -> dict[str, Path]:
    if entry.is_file():
        return {entry.name: entry}
    files: dict[str, Path] = {}
    for folder, folders, names in os.walk(entry):
        folders[:] = sorted(name for name in folders if name not in _LEFT_OUT and not name.startswith("."))
        for name in names:
            path = Path(folder, name)
            if not name.endswith(".pyc") and path.is_file():
                files[path.relative_to(root).as_posix()] = path
    return files


def _is_installed(path: Path) -> bool:
    """Whether it belongs to Python or an installed package, which is not sent."""

    paths = sysconfig.get_paths()
    installed = {paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib", "scripts")}
    installed |= {*site.getsitepackages(), site.getusersitepackages()}
    resolved = path.resolve()
    return any(resolved.is_relative_to(Path(folder).resolve()) or path.is_relative_to(folder) for folder in installed)
