"""`millstream fork`: a second job that starts from an epoch of a first one, in its own store.

The command only prepares the store (`jobs/snapshots/forking.py`): the first `millstream run` there begins at that
point, with the original's program or another one. Nothing is copied, and the original is unaffected; it retains the
files that the fork reads.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.leases import system_ms
from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.savepoints import StoredSnapshot, find_snapshot
from millstream.cli.job_argument import find_snapshot_name
from millstream.cli.refusals import refuse
from millstream.errors import ConfigurationError, MillstreamError, StoreError
from millstream.jobs.snapshots.forking import claim_fork
from millstream.state_reader.stored_jobs import DEFAULT_ROOT
from millstream.storage.store import open_store

__all__ = ["fork_job"]


def fork_job(snapshot: str, root: str | None, name: str, place: str | None) -> int:
    """Prepare a store for the fork; returns the exit code."""
    try:
        original = find_snapshot(find_snapshot_name(snapshot, root))
        where = place or str(Path(root or DEFAULT_ROOT, _folder_of(name)))
        _make(original, name, where)
    except MillstreamError as error:
        return refuse(error)
    print(
        f"'{name}' begins where epoch {original.manifest.epoch} of '{original.manifest.job}' ended. "
        f"Run it with: millstream run JOB.PY --store {where}",
        file=sys.stderr,
    )
    print(where)
    return 0


def _make(original: StoredSnapshot, name: str, where: str) -> None:
    store = open_store(where)
    if ManifestLog(store).epochs():
        raise StoreError(f"{where} already has epochs of a job. Use another --store for the fork")
    store.check_writable()
    record = read_job_record(original.store)
    program = original.manifest.job if record is None else record.program or record.job
    claim_fork(store, original, name, system_ms(), program="" if program == name else program)


def _folder_of(name: str) -> str:
    folder = re.sub(r"[^A-Za-z0-9._-]+", "-", name).strip("-.")
    if not folder:
        raise ConfigurationError(f"--as: found {name!r}, expected a name for the fork, such as clicks-b")
    return folder
