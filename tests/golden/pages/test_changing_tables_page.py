"""Every statement of docs/sql/changing-tables.md runs, in page order."""

from __future__ import annotations

import io
import re
from pathlib import Path

from millstream.cli.sql_client.client import SqlClient, Terminal
from millstream.sql.splitting import statement_spans
from millstream.testing.local_jobs import jobs_in_memory

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "sql" / "changing-tables.md").read_text()


def test_the_statements_of_the_changing_tables_page_run() -> None:
    output = io.StringIO()
    with jobs_in_memory():
        client = SqlClient(Terminal(output), {"parallelism.default": "2"})
        blocks = re.findall(r"```sql\n(.*?)```", PAGE, re.DOTALL)
        statements = [span.text for block in blocks for span in statement_spans(block)]
        assert len(statements) == 7
        for statement in statements:
            assert client.run_statement(statement), f"{statement}\n{output.getvalue()[-2000:]}"
    shown = re.sub(" +", " ", output.getvalue())
    assert "| +I | 1 | 4 |" in shown and "| +I | salt | 5 | <NULL> |" in shown
