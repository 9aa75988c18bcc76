"""`millstream list`: the jobs under a folder, read from their stores.

A store tells how far a job has come, not whether somebody runs it now: there is no file that says so, because such a
file would lie after a crash. What is shown instead is when the newest epoch was committed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TextIO

from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.errors import MillstreamError, StoreError
from millstream.jobs.amounts import count_text, span_text
from millstream.storage.names import job_name
from millstream.storage.store import Store, open_store

__all__ = ["ListedJob", "found_jobs", "list_jobs", "table_text"]

DEFAULT_ROOT = ".millstream"
_NO_EPOCH = "NO EPOCH YET"
_DAMAGED = "DAMAGED"


@dataclass(frozen=True)
class ListedJob:
    """One line of the list. `last_epoch_ms` is when the newest epoch was committed; None: none was."""

    name: str
    id: str
    status: str
    epoch: int
    records: int
    last_epoch_ms: int | None
    store: str
    problem: str = ""


def list_jobs(root: str | None, *, as_json: bool, screen: TextIO | None = None, now_ms: int | None = None) -> int:
    """Print the jobs under `root`; returns the exit code."""
    screen = screen or sys.stdout
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    try:
        jobs = found_jobs(root)
    except MillstreamError as error:
        print(f"millstream: {error}", file=sys.stderr)
        return 2
    if as_json:
        print(json.dumps([asdict(job) for job in jobs], indent=1), file=screen)
    elif not jobs:
        print(f"no jobs under {root or DEFAULT_ROOT}", file=screen)
    elif screen.isatty():
        _print_table(jobs, now_ms, screen)
    else:
        print(table_text(jobs, now_ms), file=screen)
    return 0


def found_jobs(root: str | None) -> list[ListedJob]:
    """The jobs under `root`, newest work first."""
    jobs = [_listed(store, shown) for store, shown in _stores(root)]
    return sorted(jobs, key=lambda job: (-(job.last_epoch_ms or 0), job.store))


def _stores(root: str | None) -> Iterator[tuple[Store, str]]:
    where = root or DEFAULT_ROOT
    if "://" in where:
        store = open_store(where)
        if not store.exists(job_name()):
            raise StoreError(f"{where} holds no job. Give the store of one job, or a local folder of stores")
        yield store, where
        return
    folder = Path(where)
    if not folder.is_dir():
        if root is None:
            return
        raise StoreError(f"there is no folder {where}. Give the store of a job, or a folder of stores")
    places = [folder] if (folder / job_name()).is_file() else sorted(p for p in folder.iterdir() if p.is_dir())
    for place in places:
        if (place / job_name()).is_file():
            yield open_store(str(place)), str(place)


def _listed(store: Store, shown: str) -> ListedJob:
    """What a store tells; a damaged one is listed too, with its problem."""
    try:
        record = read_job_record(store)
    except MillstreamError as error:
        return ListedJob("?", "?", _DAMAGED, 0, 0, None, shown, error.message)
    assert record is not None, "its job.json was just seen"
    try:
        newest = ManifestLog(store).newest()
    except MillstreamError as error:
        return ListedJob(record.job, record.job_id, _DAMAGED, 0, 0, None, shown, error.message)
    if newest is None:
        return ListedJob(record.job, record.job_id, _NO_EPOCH, 0, 0, None, shown)
    return ListedJob(
        record.job, record.job_id, newest.status, newest.epoch, records_of(newest), newest.created_ms, shown
    )


def records_of(manifest: Manifest) -> int:
    """How many records the job has taken in: what its sources gave."""
    counters: Any = manifest.counters.get("operators") or {}
    return sum(int(counters.get(uid, {}).get("out", 0)) for uid in manifest.sources)


# --- how it looks ---------------------------------------------------------------------------------------------

_HEADINGS = ("job", "id", "status", "epoch", "records", "last epoch", "store")


def _cells(job: ListedJob, now_ms: int) -> tuple[str, ...]:
    last = "-" if job.last_epoch_ms is None else f"{span_text(max(0, now_ms - job.last_epoch_ms))} ago"
    status = f"{job.status}: {job.problem}" if job.problem else job.status
    return (job.name, job.id[:8], status, count_text(job.epoch), count_text(job.records), last, job.store)


def table_text(jobs: Sequence[ListedJob], now_ms: int) -> str:
    """The list as aligned text, for a pipe.

    >>> print(table_text([ListedJob("clicks", "0123456789", "RUNNING", 7, 1200, 1_000, "jobs/a")], now_ms=13_000))
    job     id        status   epoch  records  last epoch  store
    clicks  01234567  RUNNING      7    1,200  12 s ago    jobs/a
    """
    rows = [_HEADINGS, *(_cells(job, now_ms) for job in jobs)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    numbers = {_HEADINGS.index("epoch"), _HEADINGS.index("records")}
    return "\n".join(
        "  ".join(
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


_STATUS_STYLES = {"RUNNING": "green", "FINISHED": "blue", "DRAINED": "blue", "SUSPENDED": "yellow", _DAMAGED: "red"}


def _print_table(jobs: Sequence[ListedJob], now_ms: int, screen: TextIO) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, header_style="bold")
    for heading in _HEADINGS:
        table.add_column(heading, justify="right" if heading in ("epoch", "records") else "left", overflow="fold")
    for job in jobs:
        name, id_, status, *rest = (Text(cell) for cell in _cells(job, now_ms))
        name.stylize("bold")
        status.stylize(_STATUS_STYLES.get(job.status, "dim"))
        table.add_row(name, id_, status, *rest)
    Console(file=screen).print(table)
