"""`millstream remove`: removes the stores of jobs that are no longer needed, such as those of runs without `--store`.

Only folders that hold a job's store are removed, and nothing next to them. A running job is not touched, nor one
whose files a fork still uses. Everything is checked before anything is removed; the command lists the stores, and
needs confirmation. A store in an object store must be removed with the tools of that service.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from millstream.checkpoint.pins import pins_of
from millstream.cli.job_argument import find_store
from millstream.cli.refusals import refuse
from millstream.errors import MillstreamError, NotAvailableError, StoreError
from millstream.jobs.console.amounts import bytes_text
from millstream.state_reader.stored_jobs import DAMAGED, DEFAULT_ROOT, ListedJob
from millstream.state_reader.stored_jobs import jobs as stored_jobs
from millstream.storage.layered_stores import ReadOnlyStore
from millstream.storage.store import open_store

__all__ = ["is_unnamed", "remove_stores"]

# The form in which a launch names the folder of a job without a store (`jobs/launch/launch.py`).
_UNNAMED = re.compile(r"[a-z0-9-]+-\d{8}-\d{6}-[0-9a-f]{4}")


def remove_stores(
    names: tuple[str, ...],
    root: str | None,
    *,
    unnamed: bool,
    confirms: bool,
    screen: TextIO | None = None,
    answer: Callable[[], str] = input,
) -> int:
    """Remove the stores of these jobs, or of all runs without `--store`; returns the exit code."""
    screen = screen or sys.stderr
    try:
        stores = _chosen(names, root, unnamed=unnamed)
        if not stores:
            print(f"no unnamed stores below {root or DEFAULT_ROOT} of jobs that are not running", file=screen)
            return 0
        for job in stores:
            _check(job)
    except MillstreamError as error:
        return refuse(error)
    for job in stores:
        print(f"{job.store}  {job.name}, {job.status}, {bytes_text(_size_bytes(Path(job.store)))}", file=screen)
    if confirms and not _agrees(len(stores), screen, answer):
        print("nothing was removed", file=screen)
        return 1
    for job in stores:
        shutil.rmtree(job.store)
    print(f"removed {len(stores)} {'store' if len(stores) == 1 else 'stores'}", file=screen)
    return 0


def is_unnamed(store: str) -> bool:
    """Whether a store was named by a run without `--store`.

    >>> is_unnamed(".millstream/word-count-20261116-085410-4896"), is_unnamed(".millstream/clicks")
    (True, False)
    """
    return _UNNAMED.fullmatch(Path(store).name) is not None


def _chosen(names: tuple[str, ...], root: str | None, *, unnamed: bool) -> list[ListedJob]:
    if bool(names) == unnamed:
        raise StoreError(
            f"remove: found {'both jobs and --unnamed' if unnamed else 'no job'}, expected one of the two: the jobs "
            "whose stores to remove, or --unnamed for the stores of all runs without --store. "
            "`millstream list` shows them"
        )
    if unnamed:
        return [job for job in stored_jobs(root) if is_unnamed(job.store) and not job.is_alive]
    stores = dict.fromkeys(find_store(name, root) for name in names)
    for store in stores:
        if "://" in store:
            raise NotAvailableError(f"{store} is not a folder. Remove it with the tools of its object store")
    return [job for store in stores for job in stored_jobs(store)]


def _check(job: ListedJob) -> None:
    """Reject a store that is in use."""
    if job.is_alive:
        raise StoreError(f"{job.store}: job '{job.name}' runs. Stop it first: millstream stop {job.store}")
    if job.status == DAMAGED:
        return
    forks = [pin for pin in pins_of(ReadOnlyStore(open_store(job.store))) if pin.reason == "fork"]
    if forks:
        raise StoreError(
            f"{job.store}: the fork in {forks[0].by} uses its files. Remove the fork first, then release its epoch: "
            f"millstream savepoint {job.store} --dispose {forks[0].name}"
        )


def _agrees(count: int, screen: TextIO, answer: Callable[[], str]) -> bool:
    subject = "this store" if count == 1 else f"these {count} stores"
    print(f"Remove {subject} permanently? [y/N] ", end="", file=screen, flush=True)
    try:
        return answer().strip().lower() in ("y", "yes")
    except EOFError:
        print(file=screen)
        return False


def _size_bytes(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file())
