"""`millstream list` beside a real job on Spark: whether somebody runs it is seen at once, however the driver ends."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest
from killing import PHASE_TIMEOUT_S, start
from process_session import ProcessSession
from waits.patience import PATIENCE_S

from millstream.state_reader.stored_jobs import jobs

SEEN_WITHIN_S = PATIENCE_S


def wait_for(job: ProcessSession, phase: str) -> None:
    deadline = time.monotonic() + PHASE_TIMEOUT_S
    while time.monotonic() < deadline:
        line = job.next_line(PHASE_TIMEOUT_S)
        assert line is not None, job.errors()[-4000:]
        if line.startswith(phase):
            return
    raise AssertionError(f"no {phase} within {PHASE_TIMEOUT_S} s")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_job_on_spark_is_listed_as_running_and_as_interrupted_once_its_driver_is_killed(tmp_path: Path) -> None:
    job = start(tmp_path)
    try:
        wait_for(job, "PHASE epoch")
        (listed,) = jobs(str(tmp_path / "store"))
        assert (listed.status, listed.is_alive) == ("RUNNING", True)
        # The driver alone: what it started, a JVM and Python workers, lives on for a while and must not seem to be it.
        os.kill(job.pid, signal.SIGKILL)
        deadline = time.monotonic() + SEEN_WITHIN_S
        while (status := jobs(str(tmp_path / "store"))[0].status) != "INTERRUPTED":
            assert time.monotonic() < deadline, f"still {status} {SEEN_WITHIN_S} s after the driver was killed"
            time.sleep(0.2)
    finally:
        job.kill()
