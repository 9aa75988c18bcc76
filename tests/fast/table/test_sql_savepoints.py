"""A SQL job is stopped with a savepoint and restored from it, with another query text and at another parallelism."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from programs.sql_savepoints import (
    INSERT,
    INSERT_OTHERWISE,
    INSERTS_OF_OTHERS,
    define,
    expected_windows,
    go_on,
    job_until_savepoint,
    written_windows,
)

from millstream.checkpoint.manifest import ManifestLog
from millstream.cli.sql_client.client import SqlClient, Terminal
from millstream.errors import StateSchemaError
from millstream.storage import open_store
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory


def environment(store: Path, parallelism: int) -> TableEnvironment:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    t_env.get_config().set("millstream.store", str(store)).set("parallelism.default", str(parallelism))
    return t_env


@pytest.mark.slow
@pytest.mark.parametrize(("before", "after", "insert"), [(1, 3, INSERT), (2, 1, INSERT_OTHERWISE)])
def test_a_stopped_job_continues_at_another_parallelism_with_equal_results(
    before: int, after: int, insert: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with jobs_in_memory():
        savepoint = job_until_savepoint(environment(tmp_path / "first", before), tmp_path)
        seen = written_windows(tmp_path)
        assert 0 < len(seen) < len(expected_windows())
        go_on(environment(tmp_path / "second", after), tmp_path, savepoint, after, insert)
    assert written_windows(tmp_path) == expected_windows()
    assert "uid" not in caplog.text  # SQL cannot set any


def test_a_changed_insert_is_rejected_from_any_snapshot(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, plan, output = tmp_path / "first", tmp_path / "plan.json", io.StringIO()
    with jobs_in_memory():
        savepoint = job_until_savepoint(environment(first, 1), tmp_path)
        epochs = ManifestLog(open_store(str(first))).epochs()
        for number, insert in enumerate(INSERTS_OF_OTHERS):
            with pytest.raises(StateSchemaError, match="lost      WindowAggregate"):
                go_on(environment(tmp_path / f"second {number}", 1), tmp_path, savepoint, 1, insert)
            t_env = environment(first, 1)
            define(t_env, tmp_path, 10_000_000)
            explained = t_env.explain_sql(insert).split("== State ==")[1]
            assert "kept      Source: numbers" in explained and "lost      WindowAggregate" in explained
            with pytest.raises(StateSchemaError, match="Nothing was changed"):
                t_env.execute_sql(insert)
            with pytest.raises(StateSchemaError, match="Nothing was changed"):
                t_env.create_statement_set().add_insert_sql(insert).execute()
            t_env.execute_sql(f"COMPILE PLAN '{plan}-{number}' FOR {insert}")
            with pytest.raises(StateSchemaError, match="Nothing was changed"):
                t_env.execute_sql(f"EXECUTE PLAN '{plan}-{number}'")
        client = SqlClient(Terminal(output), {"millstream.store": str(first)})
        define(client.environment, tmp_path, 10_000_000)
        assert not client.run_script(f"{INSERTS_OF_OTHERS[0]};", "a.sql")
        assert "it stored SUM(n), and would store MAX(n)" in capsys.readouterr().err
        # The rejections changed nothing: the original insert continues.
        assert ManifestLog(open_store(str(first))).epochs() == epochs
        t_env = environment(first, 1)
        define(t_env, tmp_path, 10_000_000)
        t_env.execute_sql(INSERT_OTHERWISE).wait()
    assert written_windows(tmp_path) == expected_windows()


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
