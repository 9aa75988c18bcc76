"""`millstream list`: prints the jobs under a folder (`state_reader.stored_jobs`) and their snapshots."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any, TextIO

from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.leases import system_ms
from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.pins import pins_of
from millstream.checkpoint.savepoints import epoch_ranges
from millstream.cli.refusals import refuse
from millstream.cli.tables import aligned_text, print_table
from millstream.errors import MillstreamError
from millstream.jobs.console.amounts import count_text, span_text
from millstream.jobs.console.console_view import first_line
from millstream.state_reader.stored_jobs import CANCELED, DAMAGED, DEFAULT_ROOT, FAILED, INTERRUPTED, ListedJob
from millstream.state_reader.stored_jobs import jobs as stored_jobs
from millstream.storage.layered_stores import ReadOnlyStore
from millstream.storage.store import open_store, shown_address

__all__ = ["list_jobs", "snapshots_text", "table_text"]


def list_jobs(
    root: str | None,
    *,
    as_json: bool,
    snapshots: bool = False,
    screen: TextIO | None = None,
    now_ms: int | None = None,
) -> int:
    """Print the jobs under `root`, with their snapshots if requested; returns the exit code."""
    screen = screen or sys.stdout
    now_ms = system_ms() if now_ms is None else now_ms
    try:
        jobs = stored_jobs(root)
    except MillstreamError as error:
        return refuse(error)
    if as_json:
        for job in jobs:
            print(json.dumps({**asdict(job), **(_snapshots_json(job) if snapshots else {})}), file=screen)
    elif not jobs:
        print(f"no jobs under {root or DEFAULT_ROOT}", file=screen)
    elif screen.isatty():
        _print_table(jobs, now_ms, screen)
    else:
        print(table_text(jobs, now_ms), file=screen)
    if snapshots and not as_json:
        for job in jobs:
            print(f"\n{snapshots_text(job, now_ms)}", file=screen)
    return 0


# --- snapshots ------------------------------------------------------------------------------------------------


def _snapshots_json(job: ListedJob) -> dict[str, Any]:
    if job.status == DAMAGED:
        return {"retained": [], "kept": []}
    store = ReadOnlyStore(open_store(job.store))
    return {"retained": ManifestLog(store).epochs(), "kept": [asdict(pin) for pin in pins_of(store)]}


def snapshots_text(job: ListedJob, now_ms: int) -> str:
    """The epochs of a job that are retained, its savepoints and its forks, as lines."""
    lines = [f"{job.name} in {job.store}"]
    if job.status == DAMAGED:
        return f"{lines[0]}\n  damaged"
    store = ReadOnlyStore(open_store(job.store))
    record = read_job_record(store)
    if record is not None and record.begins:
        lines.append(f"  began with  {shown_address(record.begins)}")
    lines.append(f"  epochs      {epoch_ranges(ManifestLog(store).epochs()) or 'none'}")
    for pin in sorted(pins_of(store), key=lambda pin: pin.created_ms):
        ago = f"{span_text(max(0, now_ms - pin.created_ms))} ago"
        if pin.reason == "savepoint":
            lines.append(f"  savepoint   epoch {pin.epoch}, {ago}: --from {job.store}@{pin.name}")
        else:
            lines.append(f"  fork        epoch {pin.epoch}, {ago}: {shown_address(pin.by)} ({pin.name})")
    return "\n".join(lines)


# --- layout ---------------------------------------------------------------------------------------------------

_HEADINGS = ("job", "id", "status", "epoch", "records", "last epoch", "store")


def _cells(job: ListedJob, now_ms: int) -> tuple[str, ...]:
    last = "-" if job.last_epoch_ms is None else f"{span_text(max(0, now_ms - job.last_epoch_ms))} ago"
    status = f"{job.status}: {first_line(job.problem)}" if job.problem else job.status
    if job.status == "RUNNING" and job.is_alive is None:
        status = "RUNNING when last seen"
    if job.time_awaits and job.status == "RUNNING":
        status += f", event time waits for {', '.join(map(repr, job.time_awaits))}"
    return (job.name, job.id[:8], status, count_text(job.epoch), count_text(job.records), last, job.store)


def table_text(jobs: Sequence[ListedJob], now_ms: int) -> str:
    """The list as aligned text, for a pipe.

    >>> job = ListedJob("clicks", "0123456789", "RUNNING", 7, 1200, 1_000, "jobs/a", is_alive=True)
    >>> print(table_text([job], now_ms=13_000))
    job     id        status   epoch  records  last epoch  store
    clicks  01234567  RUNNING      7    1,200  12 s ago    jobs/a
    """
    return aligned_text(_HEADINGS, [_cells(job, now_ms) for job in jobs], right=("epoch", "records"))


_STATUS_STYLES = {
    "RUNNING": "green",
    "FINISHED": "blue",
    "DRAINED": "blue",
    "SUSPENDED": "yellow",
    CANCELED: "yellow",
    FAILED: "bold red",
    INTERRUPTED: "red",
    DAMAGED: "red",
}


def _print_table(jobs: Sequence[ListedJob], now_ms: int, screen: TextIO) -> None:
    print_table(
        _HEADINGS,
        [_cells(job, now_ms) for job in jobs],
        screen,
        right=("epoch", "records"),
        texts=("job", "status", "store"),
        optional=("id", "records"),
        styles={"job": "bold", "status": lambda cell: _STATUS_STYLES.get(cell.partition(":")[0], "dim")},
    )
