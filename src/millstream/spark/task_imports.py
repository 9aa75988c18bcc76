"""Where the tasks of one job look for modules, and the folder in which its functions run.

Jobs of one application share Spark's workers, its list of folders to import from, and its files. So that two of them
may bring modules of one name (a function that was edited in a notebook between two jobs), every job has folders named
by their content, and workers of its own: Spark keeps workers apart by their environment, in which a job's digest
stands. A worker that has imported a module therefore never meets another one of that name.
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
"""The variable of a worker's environment that says whose modules it may import."""

_LOCK = Lock()
_ALWAYS: WeakKeyDictionary[Any, list[str]] = WeakKeyDictionary()
"""What the tasks of all jobs import from, by Spark's context."""


def _always(context: Any) -> list[str]:
    return _ALWAYS.setdefault(context, list(context._python_includes))


def include_always(context: Any, folder: str) -> bool:
    """From now on the tasks of all jobs import from a folder. False if they do already."""
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
    """`folders`: names in Spark's folder of files, or folders of the workers' machines; the last one is looked in
    first. `archives`: where each is to be seen in the working folder of functions, and its name in Spark's folder.
    `edits`: how often modules of the program have changed since they were imported."""

    folders: tuple[str, ...] = ()
    archives: tuple[tuple[str, str], ...] = ()
    edits: int = 0

    def apply(self, context: Any) -> None:
        """What is planned from now on imports from these folders."""
        with _LOCK:
            always = _always(context)
            context._python_includes = [*always, *(folder for folder in self.folders if folder not in always)]
            if self.folders or self.edits:
                context.environment[IMPORTS_VARIABLE] = _digest((self.folders, self.edits))
            else:
                context.environment.pop(IMPORTS_VARIABLE, None)

    def working_folder(self, root: str) -> str | None:
        """In a worker: the folder where this job's archives are seen under their names, below Spark's folder of files;
        None if the job has none."""
        if not self.archives:
            return None
        folder = Path(root, f"archives-{_digest(self.archives)}")
        if not folder.is_dir():
            made = Path(tempfile.mkdtemp(prefix="archives-", dir=root))
            for target, name in self.archives:
                link = made / target
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(Path(root, name))
            with suppress(OSError):  # another worker was faster
                os.rename(made, folder)
            shutil.rmtree(made, ignore_errors=True)
        return str(folder)


def _digest(names: Any) -> str:
    return hashlib.sha256(repr(names).encode()).hexdigest()[:16]
