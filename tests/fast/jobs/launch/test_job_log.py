"""The log file of a run."""

from __future__ import annotations

import logging
from pathlib import Path

from millstream.jobs.launch.job_log import JobLog


def test_a_record_that_another_thread_hands_over_late_does_not_open_the_file_again(tmp_path: Path) -> None:
    log = JobLog(tmp_path / "run.log")
    (handler,) = (one for one in logging.getLogger().handlers if getattr(one, "baseFilename", "") == str(log.path))
    log.write("first")
    log.close()
    written = log.path.read_text()
    handler.handle(logging.LogRecord("late", logging.INFO, __file__, 0, "too late", (), None))
    log.write("closed")
    assert "first" in written and log.path.read_text() == written
    assert getattr(handler, "stream", None) is None
