"""`millstream logs`: prints the logs of a job's runs, from `STORE/logs/`.

If the store is not a folder, the log of a run is on its driver's machine until the job ends, and is then copied into
the store. While the job runs, its log is shown only on that machine; elsewhere the command names that machine.

Logs are read line by line, because they may be larger than memory. Entries that are not files are skipped.
"""

from __future__ import annotations

import io
import os
import re
import stat
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, TextIO

from millstream.checkpoint.driver_lease import DriverLease, read_driver_lease
from millstream.cli.job_argument import open_store_of_job
from millstream.cli.refusals import refuse
from millstream.errors import MillstreamError, StoreDamagedError, StoreError
from millstream.storage.log_lock import is_held
from millstream.storage.names import LOGS
from millstream.storage.process_identity import is_of_this_machine
from millstream.storage.store import Store

__all__ = ["show_logs"]

_FOLLOW_S = 0.5
_RECORD = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (\w+) ")
_SHOWN_OF_ERRORS = ("ERROR", "CRITICAL")
_END = "the job ended as "

Log = str | Path
"""A log's name in the store, or its place on this machine."""


def show_logs(
    job: str,
    root: str | None = None,
    *,
    lines: int | None = None,
    follows: bool = False,
    all_runs: bool = False,
    errors: bool = False,
    screen: TextIO | None = None,
) -> int:
    """Print the newest log of a job; returns the exit code."""
    screen = screen or sys.stdout
    if isinstance(screen, io.TextIOWrapper):  # the terminal may lack characters of quoted records
        screen.reconfigure(errors="backslashreplace")
    try:
        store = open_store_of_job(job, root)
        logs = _logs(store)
        if not logs:
            raise StoreError(f"{job} has no log yet: no driver has run the job")
        reader = _Reader(store, errors_only=errors)
        shown = (line for log in (logs if all_runs else logs[-1:]) for line in reader.lines_of(log))
        for line in shown if lines is None else deque(shown, max(0, lines)):
            print(line, file=screen)
        if follows:
            for line in reader.new_lines():
                print(line, file=screen, flush=True)
        reader.close()
    except MillstreamError as error:
        return refuse(error, 1)
    except KeyboardInterrupt:
        return 130
    return 0


def _logs(store: Store) -> list[Log]:
    """The logs of a store, oldest first: their names in it, and the path of the running job's log if that is
    elsewhere."""
    names = [name for name in store.list(LOGS) if name.endswith(".log") and _is_file(store.local_path(name))]
    logs: list[Log] = [*sorted(names, key=lambda name: _written_ms(store, name))]
    lease = read_driver_lease(store)
    if store.local_path(LOGS) is None and isinstance(lease, DriverLease):
        if is_of_this_machine(lease.process):
            logs += _logs_here(store, lease.pid, {Path(name).stem for name in names})
        else:
            print(
                f"millstream: the job runs as {lease}. Its log is there, in the folder for temporary files, and is "
                "copied into the store when the job ends",
                file=sys.stderr,
            )
    return logs


def _is_file(place: Path | None) -> bool:
    """Whether a log can be read there; always true in an object store."""
    return place is None or (place.is_file() and not place.is_symlink())


def _written_ms(store: Store, name: str) -> int:
    try:
        return store.modified_ms(name)
    except StoreDamagedError:
        return 0  # removed since


def _logs_here(store: Store, pid: int, stored: set[str]) -> list[Log]:
    """The logs of `store` that are being written on this machine, which may run other jobs, too. `stored`: the runs
    whose logs are in the store already."""
    places = []
    for place in Path(tempfile.gettempdir()).glob(f"millstream-*-{pid}-*.log"):
        if not _is_file(place) or place.name.split("-")[1] in stored:
            continue
        try:
            with place.open("rb") as log:
                first = log.readline().decode("utf-8", "replace").rstrip()
            if first.endswith(f", store {store.url}"):
                places.append((place.stat().st_mtime, place))
        except OSError:
            continue  # removed since, or owned by another user
    return [place for _, place in sorted(places)]


class _Reader:
    """Reads logs; lines appended to the last log can be read afterwards. `errors_only`: only failures with their
    tracebacks, and how the job ended."""

    def __init__(self, store: Store, *, errors_only: bool) -> None:
        self._store, self._errors_only, self._is_failure = store, errors_only, False
        self._file: BinaryIO | None = None
        self._place: Path | None = None

    def close(self) -> None:
        if self._file is not None:
            self._file.close()

    def lines_of(self, log: Log) -> Iterator[str]:
        self.close()
        self._is_failure = False
        self._place = log if isinstance(log, Path) else self._store.local_path(log)
        self._file = _opened(self._store, log, self._place)
        for data in self._file or ():
            yield from self._shown(data)

    def new_lines(self) -> Iterator[str]:
        """The lines appended from now on, until the run has ended."""
        if self._file is None or self._place is None:
            return
        while True:
            is_running = is_held(self._place)
            at = self._file.tell()
            data = self._file.readline()
            if data and (data.endswith(b"\n") or not is_running):
                yield from self._shown(data)
            elif is_running and self._place.exists():
                self._file.seek(at)
                time.sleep(_FOLLOW_S)
            else:
                return

    def _shown(self, data: bytes) -> Iterator[str]:
        line = data.decode("utf-8", "replace").rstrip("\r\n")
        record = _RECORD.match(line)
        if record is not None:
            self._is_failure = record[1] in _SHOWN_OF_ERRORS or _END in line
        if self._is_failure or not self._errors_only:
            yield line


def _opened(store: Store, log: Log, place: Path | None) -> BinaryIO | None:
    """None: the log was removed since, or is not a file."""
    try:
        if place is None:
            return io.BytesIO(store.get(str(log)))
        file = os.fdopen(os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    except (OSError, StoreDamagedError):
        return None
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    return None
