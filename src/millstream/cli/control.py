"""`millstream stop`, `cancel`, `rescale`: requests to a running job through its store (`jobs/control/requests.py`).

Each returns when it is done: after `stop` the job has stopped. Exit code 1 if no job answers or the job refuses, 2 if
the job does not exist.
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

__all__ = ["send_request", "stop_job"]

_ACCEPTED_WITHIN_S = 10.0


def send_request(job: str, root: str | None, command: str, arguments: Mapping[str, Any], timeout_s: float) -> int:
    """Send a request to a running job; prints the result, and returns the exit code."""
    try:
        store = open_store_of_job(job, root)
    except MillstreamError as error:
        return refuse(error)
    try:
        accepted_s = min(_ACCEPTED_WITHIN_S, timeout_s)
        print(Mailbox(store).send(command, arguments, system_ms(), accepted_s, timeout_s), file=sys.stderr)
    except MillstreamError as error:
        return refuse(error, 1)
    return 0


def stop_job(job: str, root: str | None, *, drain: bool, saves: bool, to: str | None, timeout_s: float) -> int:
    """Stop a job after its running epoch, and save that if requested; returns the exit code."""
    code = send_request(job, root, "stop", {"drain": drain}, timeout_s)
    if code or not saves:
        return code
    try:
        save(open_store_of_job(job, root), to, None)
    except MillstreamError as error:
        return refuse(error, 1)
    return 0
