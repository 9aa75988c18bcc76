"""`millstream refused`: rows of committed epochs that a target refuses, and the permission to continue without them.

The command publishes nothing and moves no row: it reads the lists written by the job's driver, and writes one small
file for each epoch that may continue, all of them or none. The driver does the rest when it publishes the epoch:
immediately if it still retries, otherwise at the next start of the job.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import TextIO

from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.refused_output import RefusedList, allow_setting_aside, allowed_folder, refused_lists
from millstream.cli.job_argument import open_store_of_job, short_address
from millstream.cli.refusals import refuse
from millstream.cli.savepoint import absolute
from millstream.cli.tables import print_table
from millstream.connectors.files.places import refuse_credentials
from millstream.connectors.refused_rows import printable
from millstream.errors import MillstreamError, StoreDamagedError, StoreError
from millstream.storage.store import Store, open_store

__all__ = ["set_refused_aside", "show_refused"]

_ROWS_SHOWN = 20
_HEADINGS = ("item", "row", "reason", "record")


def show_refused(
    job: str,
    root: str | None,
    *,
    sink: str | None = None,
    epoch: int | None = None,
    as_json: bool = False,
    screen: TextIO | None = None,
) -> int:
    """Print the refused rows and those set aside; returns the exit code."""
    screen = screen or sys.stdout
    try:
        store = open_store_of_job(job, root)
        lists = _lists(store, sink, epoch)
        states = [_state(store, each) for each in lists]
    except MillstreamError as error:
        return refuse(error)
    if as_json:
        entries = [{**asdict(each), "state": state} for each, state in zip(lists, states, strict=True)]
        for entry in entries:
            print(json.dumps(entry, ensure_ascii=False), file=screen)
        return 0
    if not lists:
        print("nothing is refused", file=screen)
    for each, state in zip(lists, states, strict=True):
        print(f"epoch {each.epoch}, sink '{each.operator}' (uid {each.sink}), {each.target}: {state}", file=screen)
        rows = [
            (str(row.item), str(row.row), printable(row.reason), printable(row.shown))
            for row in each.rows[:_ROWS_SHOWN]
        ]
        print_table(_HEADINGS, rows, screen, right=("item", "row"), texts=("reason", "record"))
        if len(each.rows) > _ROWS_SHOWN:
            print(f"… and {len(each.rows) - _ROWS_SHOWN} more; --json has them all", file=screen)
        print(file=screen)
    return 0


def set_refused_aside(
    job: str, root: str | None, folder: str, *, sink: str | None = None, epoch: int | None = None
) -> int:
    """Permit writing the rows that block the job to `folder`; returns the exit code."""
    try:
        refuse_credentials(folder, "--set-aside")
        target = open_store(absolute(folder))
        store = open_store_of_job(job, root)
        waiting = [each for each in _lists(store, sink, epoch) if not each.is_set_aside]
        if not waiting:
            raise StoreError(f"{job} has no pending refused rows. `millstream refused {job}` shows earlier ones")
        target.check_writable()
        for each in waiting:
            if allow_setting_aside(store, each, target.url):
                where = f"will be written to {short_address(target.url)}"
            else:
                where = f"may be set aside already: they are to be written to {short_address(target.url)}"
            print(f"epoch {each.epoch}, sink '{each.operator}': {_count(each)} {where}", file=sys.stderr)
    except MillstreamError as error:
        return refuse(error)
    print("The job writes them when it publishes the epoch. If it has ended, start it again", file=sys.stderr)
    return 0


def _lists(store: Store, sink: str | None, epoch: int | None) -> Sequence[RefusedList]:
    record = read_job_record(store)
    assert record is not None, "the store of a job has been opened"
    lists = []
    for _, refused in refused_lists(store, record.job_id):
        if isinstance(refused, StoreDamagedError):
            print(f"millstream: {refused.message}", file=sys.stderr)  # it blocks no other epoch
            continue
        if isinstance(refused, StoreError):
            raise refused
        if sink in (None, refused.sink, refused.operator) and epoch in (None, refused.epoch):
            lists.append(refused)
    return lists


def _state(store: Store, refused: RefusedList) -> str:
    count = _count(refused)
    if refused.is_set_aside:
        return f"{count} set aside in {short_address(refused.folder)}: {', '.join(refused.files)}"
    folder = allowed_folder(store, refused.job_id, refused.sink, refused.epoch) or refused.folder
    if folder:
        return f"{count} refused, to be written to {short_address(folder)} when the job publishes the epoch"
    return f"{count} refused, and the epoch is not published. Repair the target, or skip them: --set-aside FOLDER"


def _count(refused: RefusedList) -> str:
    return f"{len(refused.rows)} row{'' if len(refused.rows) == 1 else 's'}"
