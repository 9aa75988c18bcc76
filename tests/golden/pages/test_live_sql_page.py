"""Every statement of docs/sql/live-queries.md runs, in page order, in one session."""

from __future__ import annotations

import re
import time
from pathlib import Path

from millstream.errors import MillstreamError
from millstream.sql.splitting import statement_spans
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

PAGE = (Path(__file__).resolve().parents[3] / "docs" / "sql" / "live-queries.md").read_text()
WAIT_S = 60


def test_the_statements_of_the_page_run(tmp_path: Path) -> None:
    statements = [span.text for block in re.findall("```sql\n(.*?)```", PAGE, re.S) for span in statement_spans(block)]
    assert len(statements) > 12
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        t_env.get_config().set("millstream.store", str(tmp_path / "store"))
        for statement in (each.replace("/srv/archive", str(tmp_path)) for each in statements):
            rows = list(t_env.execute_sql(statement).collect())
            if statement.startswith("CREATE MATERIALIZED"):
                wait_for_rows(t_env, statement.split()[3])
            elif statement.startswith("SELECT"):
                assert rows, statement
        assert t_env.list_tables() == ["clicks"]


def wait_for_rows(t_env: TableEnvironment, table: str) -> None:
    ends = time.monotonic() + WAIT_S
    while True:
        try:
            if list(t_env.execute_sql(f"SELECT * FROM {table} WHERE visitor = 4").collect()):
                return
        except MillstreamError:
            assert time.monotonic() < ends
        assert time.monotonic() < ends
        time.sleep(0.05)
