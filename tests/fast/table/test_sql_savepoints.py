"""A job of SQL is stopped with a savepoint and goes on from it, as another text and at another parallelism."""

from __future__ import annotations

from pathlib import Path

import pytest
from sql_savepoints import INSERT, INSERT_OTHERWISE, expected_windows, go_on, job_until_savepoint, written_windows

from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory


def environment(store: Path, parallelism: int) -> TableEnvironment:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.get_config().set("millstream.store", str(store)).set("parallelism.default", str(parallelism))
    return t_env


@pytest.mark.parametrize(("before", "after", "insert"), [(1, 3, INSERT), (2, 1, INSERT_OTHERWISE)])
def test_what_was_stopped_goes_on_at_another_parallelism_with_equal_results(
    before: int, after: int, insert: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with jobs_in_memory():
        savepoint = job_until_savepoint(environment(tmp_path / "first", before), tmp_path)
        seen = written_windows(tmp_path)
        assert 0 < len(seen) < len(expected_windows())
        go_on(environment(tmp_path / "second", after), tmp_path, savepoint, after, insert)
    assert written_windows(tmp_path) == expected_windows()
    assert "uid" not in caplog.text  # SQL cannot give any
