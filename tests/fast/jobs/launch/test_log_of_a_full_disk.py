"""A log on a full disk: the job and the screen continue without its lines."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from millstream.jobs.launch.job_log import JobLog

FULL = Path("/dev/full")
pytestmark = pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full")


def test_an_unwritable_log_is_reported_once_in_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    log = JobLog(FULL)
    for number in range(3):
        logging.getLogger("user").info("line %d", number)
        log.write(f"line {number}")
    log.close()
    screen = capfd.readouterr().err
    assert screen == "millstream: the log /dev/full cannot be written: No space left on device. Lines are missing\n"


def test_a_log_reports_its_missing_lines_once_it_is_writable_again(tmp_path: Path) -> None:
    log = JobLog(tmp_path / "run.log")
    log.write("first")
    file = log._file
    whole, file.stream = file.stream, FULL.open("w")
    log.write("lost")
    log.write("lost, too")
    file.stream.buffer.raw.close()
    file.stream = whole
    log.write("last")
    log.close()
    lines = [line.split(": ", 1)[-1] for line in (tmp_path / "run.log").read_text().splitlines()]
    assert lines == ["first", "(2 lines before this one could not be written)", "last"]
