"""`millstream stop`, `cancel`, `rescale`: asked of a running job through its store (`jobs/control/requests.py`).

Each returns when it is done: a job that was asked to stop has stopped. Exit code 1 when nobody answers or the job says
no, 2 when there is no such job.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from millstream.checkpoint.leases import system_ms
from millstream.cli.job_argument import open_store_of_job
from millstream.cli.refusals import refuse
from millstream.cli.savepoint import save
from millstream.errors import MillstreamError
from millstream.jobs.control.requests import Mailbox

__all__ = ["ask_job", "stop_job"]

_TAKEN_WITHIN_S = 10.0


def ask_job(job: str, root: str | None, command: str, arguments: Mapping[str, Any], timeout_s: float) -> int:
    """Ask a running job; prints what came of it, and returns the exit code."""
    try:
        store = open_store_of_job(job, root)
    except MillstreamError as error:
        return refuse(error)
    try:
        taken_s = min(_TAKEN_WITHIN_S, timeout_s)
        print(Mailbox(store).send(command, arguments, system_ms(), taken_s, timeout_s), file=sys.stderr)
    except MillstreamError as error:
        return refuse(error, 1)
    return 0


def stop_job(job: str, root: str | None, *, drain: bool, saves: bool, to: str | None, timeout_s: float) -> int:
    """Stop a job after its running epoch, and save that if asked; returns the exit code."""
    code = ask_job(job, root, "stop", {"drain": drain}, timeout_s)
    if code or not saves:
        return code
    try:
        save(open_store_of_job(job, root), to, None)
    except MillstreamError as error:
        return refuse(error, 1)
    return 0
