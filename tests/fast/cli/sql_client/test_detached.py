"""INSERT jobs in separate processes: the request a process receives, its response, and its session."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from millstream.cli.sql_client.client import SqlClient, Terminal
from millstream.cli.sql_client.detached import DetachedAnswer, DetachedRequest, start_detached
from millstream.cli.sql_client.detached_job import run_detached
from millstream.errors import ProgramError
from millstream.planner.entries import TableEntry
from millstream.planner.listings import create_table_text
from millstream.testing.local_jobs import jobs_in_memory

DETACHED = {"execution.attached": "false"}


@pytest.fixture(autouse=True)
def _jobs_here() -> Iterator[None]:
    with jobs_in_memory():
        yield


class Session:
    """A client whose detached jobs run in this process, from the JSON request that another process would receive."""

    def __init__(self, store: Path, **settings: str) -> None:
        self.output = io.StringIO()
        self.requests: list[DetachedRequest] = []
        self.codes: list[int] = []
        client_settings = {**DETACHED, "millstream.store": str(store), **settings}
        self.client = SqlClient(Terminal(self.output), client_settings, start_detached=self._start)

    def _start(self, request: DetachedRequest) -> DetachedAnswer:
        self.requests.append(request)
        responses: list[DetachedAnswer] = []
        self.codes.append(run_detached(DetachedRequest.from_json(json.dumps(asdict(request))), responses.append))
        [response] = responses
        if response.problem:
            raise ProgramError(response.problem)
        return response

    def run(self, script: str) -> bool:
        return self.client.run_script(script, "jobs.sql")


def table(name: str, folder: Path, columns: str = "n INT") -> str:
    return f"CREATE TABLE {name} ({columns}) WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'csv');"


def rows_in(folder: Path) -> list[str]:
    return sorted(line for path in folder.glob("*") for line in path.read_text().splitlines())


def test_a_detached_job_has_the_session_of_the_client(tmp_path: Path) -> None:
    session = Session(tmp_path / "store")
    assert session.run(
        f"CREATE DATABASE d; USE d; {table('o', tmp_path / 'out')}"
        "CREATE VIEW v AS SELECT n * 10 AS n FROM (VALUES (1), (2)) AS t (n);"
        "CREATE TABLE gone (n INT) WITH ('connector' = 'blackhole'); DROP TABLE gone;"
        "SELECT 1; SHOW TABLES; SET 'pipeline.name' = 'tens'; INSERT INTO o SELECT n FROM v;"
    )
    assert rows_in(tmp_path / "out") == ["10", "20"] and session.codes == [0]
    assert "runs in a process of its own and outlives this client" in session.output.getvalue()
    [(job, _)] = session.client.environment._runner.detached
    assert (job.name, job.status()) == ("tens", "FINISHED") and job.address == str(tmp_path / "store")
    assert not [each for each in session.requests[0].session if each.text.strip().startswith(("SELECT", "SHOW"))]


def test_jobs_started_by_another_insert_are_not_repeated_and_use_another_store(tmp_path: Path) -> None:
    session = Session(tmp_path / "store")
    assert session.run(
        f"{table('a', tmp_path / 'a')} {table('b', tmp_path / 'b')} INSERT INTO a SELECT 1; INSERT INTO b SELECT 2;"
        "EXECUTE STATEMENT SET BEGIN INSERT INTO a SELECT 3; INSERT INTO b SELECT 3; END;"
    )
    assert (rows_in(tmp_path / "a"), rows_in(tmp_path / "b")) == (["1", "3"], ["2", "3"])
    assert len({request.store for request in session.requests}) == 3


def test_a_table_created_by_a_detached_job_is_visible_to_the_client(tmp_path: Path) -> None:
    session = Session(tmp_path / "store")
    options = f"'connector' = 'filesystem', 'path' = '{tmp_path / 'a'}', 'format' = 'csv'"
    assert session.run(f"CREATE TABLE a WITH ({options}) AS SELECT 7 AS n;")
    assert session.run(f"{table('b', tmp_path / 'b')} INSERT INTO b SELECT n + 1 FROM a;")
    assert (rows_in(tmp_path / "a"), rows_in(tmp_path / "b")) == (["7"], ["8"])
    assert session.run(f"CREATE TABLE IF NOT EXISTS a WITH ({options}) AS SELECT 7 AS n;")
    assert "there is nothing to run" in session.output.getvalue() and len(session.requests) == 2


def test_a_job_that_cannot_start_is_reported_with_reason_and_position(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = Session(tmp_path / "file" / "store")
    (tmp_path / "file").write_text("no folder")
    assert not session.run(f"{table('o', tmp_path / 'out')}\nINSERT INTO o SELECT 1;")
    assert "[jobs.sql, line 2]" in session.output.getvalue()
    assert "store" in capsys.readouterr().err and session.codes == [1]
    assert not session.client.environment._runner.detached


def test_an_invalid_statement_is_rejected_before_a_process_is_started(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    session = Session(tmp_path / "store")
    assert not session.run("INSERT INTO nowhere SELECT 1;")
    assert "nowhere" in capsys.readouterr().err and not session.requests


def test_tables_of_a_detached_job_are_queried_like_those_of_an_attached_one(tmp_path: Path) -> None:
    session = Session(tmp_path / "store")
    script = (
        "CREATE TABLE counts (k STRING, n BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'state');"
        "SET 'pipeline.name' = 'pages';"
        "INSERT INTO counts SELECT k, COUNT(*) FROM (VALUES ('a'), ('a'), ('b')) AS t (k) GROUP BY k;"
    )
    assert session.run(script)
    session.output.truncate(0)
    assert session.run("SHOW DATABASES; SHOW TABLES FROM pages; SELECT n FROM pages.counts WHERE k = 'a';")
    screen = session.output.getvalue()
    assert "|            pages |" in screen and "|     counts |" in screen and "|                    2 |" in screen


def test_table_secrets_reach_the_process_and_are_not_printed() -> None:
    client = SqlClient(Terminal(io.StringIO()), {})
    client.run_script(
        "CREATE TABLE t WITH ('connector' = 'print', 'print-identifier' = 'x') AS SELECT 1 AS n;", "a.sql"
    )
    entry = client.environment._session.find_table(("t",))
    assert isinstance(entry, TableEntry)
    secret = replace(entry, options=(*entry.options, ("password", "hush")))
    assert "hush" in create_table_text(secret, with_secrets=True) and "hush" not in create_table_text(secret)


def test_a_process_that_ends_without_a_response_is_an_error(tmp_path: Path) -> None:
    request = DetachedRequest.from_json(
        '{"statement": {"text": "", "file": "", "line": 1}, "store": "", "session": []}'
    )
    with pytest.raises(ProgramError, match="ended with code 3 before the job ran"):
        start_detached(request, ["sh", "-c", "cat > /dev/null; exit 3"])
