"""The programs of docs/connectors/postgres.md run as printed, on a real PostgreSQL, twice."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from database_rows import query, url_of
from servers.postgres import PostgresServer

from millstream.connectors.databases.change_reader import close_cached
from millstream.datastream import StreamExecutionEnvironment
from millstream.testing import Collect, run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "connectors" / "postgres.md"


def test_the_postgres_pages_programs_run_twice(postgres_server: PostgresServer) -> None:
    query(
        postgres_server, "create table totals (word text primary key, n bigint); create table seen (word text, n int)"
    )
    query(postgres_server, "create table words (word text primary key, n bigint)")
    query(postgres_server, "create table customers (id int primary key, name text)")
    query(postgres_server, "insert into customers values (1, 'Ann'), (2, 'Bob')")
    query(postgres_server, "create table accounts (id int primary key, balance numeric(10, 2))")
    query(
        postgres_server, "alter table accounts replica identity full; create table mirror (like accounts including all)"
    )
    query(postgres_server, "insert into accounts values (1, 10), (2, 20)")
    names: dict[str, Any] = {"URL": url_of(postgres_server)}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    for _ in range(2):
        run(names["write_totals"])
        run(names["write_by_statement"])
        run(names["mirror_accounts"])
        assert query(postgres_server, "select * from totals") == [("a", 2)]
        assert query(postgres_server, "select * from words order by 1") == [("a", 1), ("b", 2)]
        assert query(postgres_server, "select * from mirror") == query(postgres_server, "select * from accounts")
    assert query(postgres_server, "select word, count(*) from seen group by word order by 1") == [("a", 2), ("b", 2)]

    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        names["read_rows"](env).sink_to(out)

    assert run(build)[out] == ["1 Ann", "2 Bob"]
    (statement,) = re.findall(r"`(SELECT pg_drop_replication_slot.*?)`", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    query(postgres_server, statement)
    close_cached()
