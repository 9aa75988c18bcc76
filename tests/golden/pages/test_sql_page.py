"""Every statement of docs/sql/statements.md runs, in page order, in one session; and so does its program."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from millstream.cli.sql_client.client import SqlClient, Terminal
from millstream.sql.splitting import statement_spans
from millstream.testing.local_jobs import jobs_in_memory

ROOT = Path(__file__).resolve().parents[3]
PAGE = (ROOT / "docs" / "sql" / "statements.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def test_the_statements_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    output = io.StringIO()
    with jobs_in_memory():
        client = SqlClient(Terminal(output), {"parallelism.default": "2"})
        statements = [span.text for block in blocks("sql") for span in statement_spans(block)]
        assert len(statements) > 10
        for statement in statements:
            assert client.run_statement(statement), f"{statement}\n{output.getvalue()[-2000:]}"
        assert client.wait_for_jobs(), output.getvalue()
    shown = output.getvalue()
    assert "| hello |" in re.sub(" +", " ", shown) and "== Optimized Physical Plan ==" in shown


@pytest.mark.parametrize("name", ["README.md", "examples/sql/auctions.sql"])
def test_the_statements_of_the_readme_and_the_example_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    text = (ROOT / name).read_text()
    script = "".join(re.findall(r"```sql\n(.*?)```", text, re.DOTALL)) if name.endswith(".md") else text
    # As much of the example as a test needs.
    script = script.replace("'events.num' = '600000'", "'events.num' = '60000'")
    output = io.StringIO()
    with jobs_in_memory():
        assert SqlClient(Terminal(output), {"parallelism.default": "2"}).run_script(script, name), output.getvalue()
    assert "rows in set" in output.getvalue()


def test_the_program_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    [program] = blocks("python")
    with jobs_in_memory():
        exec(compile(program, "sql.md", "exec"), {"__name__": "printed_example"})


def test_the_error_shown_on_the_page_is_the_actual_one(capsys: pytest.CaptureFixture[str]) -> None:
    [text] = blocks("text")
    client = SqlClient(Terminal(io.StringIO()), {})
    client.run_script(blocks("sql")[1], "sql.md")
    assert not client.run_statement("SELECT pric FROM orders")
    assert text.strip() in capsys.readouterr().err
