"""A job of SQL is stopped with a savepoint and goes on from it, as another text and at another parallelism."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from sql_savepoints import INSERT, INSERT_OTHERWISE, expected_windows, go_on, job_until_savepoint, written_windows

from millstream.cli.sql_client.client import SqlClient, Terminal
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory


def environment(store: Path, parallelism: int) -> TableEnvironment:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.get_config().set("millstream.store", str(store)).set("parallelism.default", str(parallelism))
    return t_env


@pytest.mark.slow
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


def test_the_client_stops_a_job_with_a_savepoint_and_starts_from_it(tmp_path: Path) -> None:
    output = io.StringIO()
    tables = (
        "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '{}', "
        "'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '600');"
        f"CREATE TABLE kept (n BIGINT) WITH ('connector' = 'filesystem', 'format' = 'csv', 'path' = '{tmp_path}/kept');"
        "INSERT INTO kept SELECT n FROM numbers;"
    )
    with jobs_in_memory():
        first = SqlClient(Terminal(output), {"millstream.store": str(tmp_path / "first")})
        assert first.run_script(tables.format(400), "a.sql")
        [(job, _)] = first.environment._runner.jobs
        while job.board.now.epoch < 2:
            assert not job.wait(0.01)
        assert first.run_script(f"STOP JOB '{job.job_id}' WITH SAVEPOINT;", "a.sql")
        [savepoint] = re.findall(r"\| (\S+@savepoint-\S+) \|", output.getvalue())
        second = SqlClient(Terminal(output), {"millstream.store": str(tmp_path / "second")})
        script = f"SET 'execution.state-recovery.path' = '{savepoint}';" + tables.format(10**7)
        assert second.run_script(script, "b.sql")
        assert second.wait_for_jobs()
    lines = [int(line) for path in (tmp_path / "kept").glob("[!._]*") for line in path.read_text().split()]
    assert sorted(lines) == list(range(1, 601))
