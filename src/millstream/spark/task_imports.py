"""Isolates the module imports of one job's tasks, and provides the working directory of its functions.

Jobs of one application share Spark's workers, import folders and files. So that two of them can ship modules of the
same name (a function edited in a notebook between two jobs), every job has folders named by their content, and separate
workers: Spark separates workers by their environment, which contains a digest of the job's folders. A worker that has
imported a module therefore never sees another one of that name.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

__all__ = ["IMPORTS_VARIABLE", "TaskImports", "include_always"]

IMPORTS_VARIABLE = "MILLSTREAM_TASK_IMPORTS"
"""The environment variable of a worker that identifies the modules it may import."""

_LOCK = Lock()
_ALWAYS: WeakKeyDictionary[Any, list[str]] = WeakKeyDictionary()
"""Import folders of all jobs' tasks, by Spark's context."""


def _always(context: Any) -> list[str]:
    return _ALWAYS.setdefault(context, list(context._python_includes))


def include_always(context: Any, folder: str) -> bool:
    """Adds a folder to the import folders of all jobs' tasks. False if it is already included."""
    with _LOCK:
        always = _always(context)
        if folder in always:
            return False
        always.append(folder)
        if folder not in context._python_includes:
            context._python_includes.append(folder)
        return True


@dataclass(frozen=True)
class TaskImports:
    """`folders`: names in Spark's folder of files, or folders on the workers' machines; the last one is searched first.
    `archives`: the path of each in the working directory of functions, and its name in Spark's folder. `edits`: how
    often modules of the program have changed since they were imported."""

    folders: tuple[str, ...] = ()
    archives: tuple[tuple[str, str], ...] = ()
    edits: int = 0

    def apply(self, context: Any) -> None:
        """Makes the plans built from now on import from these folders."""
        with _LOCK:
            always = _always(context)
            context._python_includes = [*always, *(folder for folder in self.folders if folder not in always)]
            if self.folders or self.edits:
                context.environment[IMPORTS_VARIABLE] = _digest((self.folders, self.edits))
            else:
                context.environment.pop(IMPORTS_VARIABLE, None)

    def working_folder(self, root: str) -> str | None:
        """In a worker: the working directory with this job's archives under their names, below Spark's folder of files;
        None if the job has none."""
        if not self.archives:
            return None
        folder = Path(root, f"archives-{_digest(self.archives)}")
        if not folder.is_dir():
            staging = Path(tempfile.mkdtemp(prefix="archives-", dir=root))
            for target, name in self.archives:
                link = staging / target
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(Path(root, name))
            with suppress(OSError):  # another worker won the race
                os.rename(staging, folder)
            shutil.rmtree(staging, ignore_errors=True)
        return str(folder)


def _digest(names: Any) -> str:
    return hashlib.sha256(repr(names).encode()).hexdigest()[:16]
