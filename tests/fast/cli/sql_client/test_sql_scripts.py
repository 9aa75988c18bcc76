"""Scripts for the SQL client: statements one by one up to the first that fails, which is told with its place."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from millstream.cli.sql_client.client import RESULT_MODE, SqlClient, Terminal
from millstream.cli.sql_client.start import SqlRequest, run_sql


@pytest.fixture
def output() -> io.StringIO:
    return io.StringIO()


@pytest.fixture
def client(output: io.StringIO) -> SqlClient:
    return SqlClient(Terminal(output), {})


def test_definitions_are_carried_out_and_shown(client: SqlClient, output: io.StringIO) -> None:
    script = "CREATE TABLE t (id BIGINT, name STRING) WITH ('connector' = 'datagen'); -- ;\nSHOW TABLES; DESCRIBE t"
    assert client.run_script(script, "a.sql")
    assert output.getvalue().startswith("OK\n") and "|          t |" in output.getvalue()
    assert "| name | STRING |" in output.getvalue()


def test_a_script_ends_at_the_first_statement_that_fails(
    client: SqlClient, output: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not client.run_script("SHOW DATABASES;\n\nDESCRIBE nothing;\nSHOW CATALOGS;", "a.sql")
    assert "[a.sql, line 3]" in output.getvalue() and "default_catalog" not in output.getvalue()
    assert "nothing" in capsys.readouterr().err


def test_text_that_cannot_be_read_is_told_with_its_place(client: SqlClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert not client.run_script("SELEC 1", "a.sql")
    error = capsys.readouterr().err
    assert "Did you mean" in error and "^^^^^" in error and ".py" not in error


def test_places_are_those_of_the_script(
    client: SqlClient, output: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not client.run_script("SHOW CATALOGS;\n\nSELECT 1,\n  nothing\nFROM (VALUES (1)) AS t (a);", "a.sql")
    assert "[a.sql, line 3]" in output.getvalue()
    assert "line 4, column 3:" in capsys.readouterr().err


def test_quit_ends_a_script(client: SqlClient, output: io.StringIO) -> None:
    assert client.run_script("QUIT; SHOW CATALOGS;", "a.sql")
    assert client.has_quit and output.getvalue() == ""


def test_settings_are_set_and_told(client: SqlClient, output: io.StringIO) -> None:
    client.run_script("SET 'parallelism.default' = '2'; SET;", "a.sql")
    assert "parallelism.default" in output.getvalue()


def test_an_unknown_mode_of_results_is_refused(client: SqlClient, capsys: pytest.CaptureFixture[str]) -> None:
    assert not client.run_script(f"SET '{RESULT_MODE}' = 'tabel';", "a.sql")
    assert "table, changelog, tableau" in capsys.readouterr().err


def test_help_names_statements(client: SqlClient, output: io.StringIO) -> None:
    client.run_script("HELP;", "a.sql")
    assert "STOP JOB" in output.getvalue()


def test_names_for_completion_are_those_of_the_session(client: SqlClient) -> None:
    client.run_script("CREATE TABLE bid (auction BIGINT, price INT) WITH ('connector' = 'datagen');", "a.sql")
    names = client.names()
    assert names.tables["bid"] == ["auction", "price"]
    assert "UPPER" in names.functions and "SELECT" in names.keywords


def test_a_file_that_is_not_there_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_sql(SqlRequest(files=(tmp_path / "no.sql",))) == 2
    assert "no.sql cannot be read" in capsys.readouterr().err


def test_scripts_are_utf_8_with_or_without_a_mark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    marked, other = tmp_path / "marked.sql", tmp_path / "latin.sql"
    marked.write_bytes(b"\xef\xbb\xbfSHOW CATALOGS;\r\n")
    assert run_sql(SqlRequest(files=(marked,))) == 0
    other.write_bytes(b"SHOW TABLES;\nSELECT '\xe4';\n")
    assert run_sql(SqlRequest(files=(other,))) == 2
    assert "latin.sql is not UTF-8 text: line 2 has the byte 0xe4" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(other.read_bytes()), encoding="utf-8"))
    assert run_sql(SqlRequest()) == 2
    assert "standard input is not UTF-8 text: line 2" in capsys.readouterr().err


def test_a_mistake_of_ours_ends_neither_the_dialogue_nor_its_jobs(
    output: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise KeyError("nobody thought of that")

    client = SqlClient(Terminal(output, is_live=True), {})
    monkeypatch.setattr(client.environment, "execute_sql", fail)
    assert not client.run_statement("SHOW TABLES")
    assert "nobody thought of that" in output.getvalue() and not client.has_quit


def test_exit_codes_tell_whether_all_went_well(tmp_path: Path) -> None:
    good, bad = tmp_path / "good.sql", tmp_path / "bad.sql"
    good.write_text("SHOW TABLES;")
    bad.write_text("SHOW TABELS;")
    assert run_sql(SqlRequest(files=(good,))) == 0
    assert run_sql(SqlRequest(first_files=(bad,), files=(good,))) == 1
    assert run_sql(SqlRequest(statements=("SHOW TABLES",), definitions=("no equals",))) == 2


def test_a_notice_cites_the_line_of_the_script_or_the_number_of_the_statement(
    client: SqlClient, caplog: pytest.LogCaptureFixture
) -> None:
    assert client.run_script("SHOW CATALOGS;\n\nADD JAR\n'/a.jar';", "views.sql")
    assert client.run_statement("ADD JAR '/b.jar'")
    told = caplog.text
    assert "(views.sql:3)" in told and "(statement 3)" in told and "(main.py" not in told
