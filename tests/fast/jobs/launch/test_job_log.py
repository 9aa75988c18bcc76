"""The log file of a run."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from millstream.errors import JobFailedError
from millstream.jobs.launch.job_log import JobLog
from millstream.testing import Collect, Script, run


def test_a_late_record_of_another_thread_does_not_reopen_the_file(tmp_path: Path) -> None:
    log = JobLog(tmp_path / "run.log")
    (handler,) = (one for one in logging.getLogger().handlers if getattr(one, "baseFilename", "") == str(log.path))
    log.write("first")
    log.close()
    written = log.path.read_text()
    handler.handle(logging.LogRecord("late", logging.INFO, __file__, 0, "too late", (), None))
    log.write("closed")
    assert "first" in written and log.path.read_text() == written
    assert getattr(handler, "stream", None) is None


def test_a_job_in_memory_leaves_a_log_only_if_it_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    run(lambda env: env.add_source(Script([1, 2])).sink_to(Collect()))
    assert not list(tmp_path.iterdir())
    with pytest.raises(JobFailedError):
        run(lambda env: env.add_source(Script([0])).map(lambda number: 1 // number).sink_to(Collect()))
    (log,) = tmp_path.iterdir()
    assert "ZeroDivisionError" in log.read_text()
