"""Definitions and their SHOW and DESCRIBE output."""

from __future__ import annotations

import pytest
from planned import column, execute, fields, plan, session_with, sinks

from millstream.errors import SqlError
from millstream.planner.catalog import TableEntry
from millstream.planner.session import PlannerSession
from millstream.planner.statements import bind_create_as
from millstream.sql.parser import parse_statement


def entry(session: PlannerSession, name: str) -> TableEntry:
    table_entry = session.find_table([name])
    assert isinstance(table_entry, TableEntry)
    return table_entry


def test_a_table_is_read_as_physical_columns_then_metadata() -> None:
    table = entry(session_with(), "t")
    assert [each.name for each in table.read] == ["a", "b", "c", "s", "l", "m", "r", "ts", "k"]
    assert [each.name for each in table.written] == ["a", "b", "c", "s", "l", "m", "r", "ts", "k"]


def test_describe_shows_types_times_keys_and_expressions() -> None:
    session = session_with(
        """CREATE TABLE q (id INT, v INT, w AS v * 2, o STRING METADATA VIRTUAL, ts TIMESTAMP(3),
           WATERMARK FOR ts AS ts - INTERVAL '1' SECOND, PRIMARY KEY (id) NOT ENFORCED) WITH ('connector' = 'x')"""
    )
    assert execute("DESCRIBE q", session).rows == (
        ("id", "INT", False, "PRI(id)", None, None),
        ("v", "INT", True, None, None, None),
        ("w", "INT", True, None, "AS v * 2", None),
        ("o", "STRING", True, None, "METADATA VIRTUAL", None),
        ("ts", "TIMESTAMP(3) *ROWTIME*", True, None, None, "ts - INTERVAL '1' SECOND"),
    )


def test_show_create_table_recreates_the_same_table() -> None:
    session = session_with()
    text = column("SHOW CREATE TABLE t", session)[0]
    again = PlannerSession()
    execute(str(text), again)
    first, second = entry(session, "t"), entry(again, "t")
    assert [(c.name, c.type, c.metadata, c.text) for c in first.columns] == [
        (c.name, c.type, c.metadata, c.text) for c in second.columns
    ]
    assert (first.watermark, first.options) == (second.watermark, second.options)


def test_like_copies_columns_and_explicit_options_take_precedence() -> None:
    session = session_with()
    execute("CREATE TABLE u (extra INT) WITH ('connector' = 'print') LIKE t (EXCLUDING GENERATED)", session)
    made = entry(session, "u")
    assert made.names == ("a", "b", "c", "s", "l", "m", "r", "ts", "k", "extra")
    assert made.connector == "print"
    assert made.watermark is not None


def test_create_table_as_has_the_querys_columns() -> None:
    session = session_with()
    statement = parse_statement("CREATE TABLE u WITH ('connector' = 'print') AS SELECT a, b + 1 AS c FROM t")
    sink = bind_create_as(statement, session)  # type: ignore[arg-type]
    assert sink is not None
    assert [str(each.type) for each in entry(session, "u").columns] == ["INT", "BIGINT NOT NULL"]
    assert execute("CREATE TABLE IF NOT EXISTS u (q INT)", session).is_ok


def test_temporary_tables_hide_others_until_they_are_dropped() -> None:
    session = session_with()
    execute("CREATE TEMPORARY TABLE n (only_this INT) WITH ('connector' = 'datagen')", session)
    assert fields("SELECT * FROM n", session) == ["only_this INT"]
    execute("DROP TEMPORARY TABLE n", session)
    assert fields("SELECT * FROM n", session) == ["x INT", "y BIGINT"]


def test_listings_are_sorted_and_filtered_by_like() -> None:
    session = session_with()
    execute("CREATE VIEW seen AS SELECT x FROM n", session)
    assert column("SHOW TABLES", session) == ["n", "o", "seen", "t"]
    assert column("SHOW TABLES LIKE '%n'", session) == ["n", "seen"]
    assert column("SHOW TABLES NOT LIKE '_'", session) == ["seen"]
    assert column("SHOW VIEWS", session) == ["seen"]
    assert "upper" in column("SHOW FUNCTIONS", session)


def test_use_switches_to_another_database_and_back() -> None:
    session = session_with()
    execute("CREATE DATABASE d", session)
    execute("USE d", session)
    assert column("SHOW CURRENT DATABASE", session) == ["d"]
    assert column("SHOW TABLES", session) == []
    assert fields("SELECT x FROM default_database.n", session) == ["x INT"]


def test_alter_changes_columns_options_and_names() -> None:
    session = session_with()
    execute("ALTER TABLE n ADD (z STRING FIRST, w INT AFTER x)", session)
    assert entry(session, "n").names == ("z", "x", "w", "y")
    execute("ALTER TABLE n RENAME z TO q", session)
    execute("ALTER TABLE n DROP (w, y)", session)
    execute("ALTER TABLE n SET ('a' = '1', 'b' = '2')", session)
    execute("ALTER TABLE n RESET ('a')", session)
    execute("ALTER TABLE n RENAME TO m", session)
    assert entry(session, "m").names == ("q", "x")
    assert entry(session, "m").options == (("connector", "datagen"), ("b", "2"))


def test_an_alter_that_fails_changes_nothing() -> None:
    session = session_with()
    before = entry(session, "n")
    with pytest.raises(SqlError):
        execute("ALTER TABLE n ADD (z STRING, y INT)", session)
    assert entry(session, "n") == before


def test_uids_are_stable_when_a_column_is_added_and_differ_between_operators() -> None:
    window = "FROM TABLE(TUMBLE(TABLE t, DESCRIPTOR(ts), INTERVAL '{}' SECOND)) GROUP BY window_start, window_end, s"

    def uids(items: str, seconds: int = 10) -> list[str | None]:
        (sink,) = sinks(f"SELECT {items} {window.format(seconds)}")
        window_uids = []
        relation = sink.input
        while relation.inputs:
            window_uids.append(relation.uid if type(relation).__name__ == "WindowAggregate" else None)
            relation = relation.inputs[0]
        return [uid for uid in window_uids if uid] + [relation.uid]

    assert uids("s, COUNT(*)") == uids("UPPER(s), COUNT(*) + 1, window_start, MAX(a)")
    assert uids("s, COUNT(*)") != uids("s, COUNT(*)", 20)
    assert len(set(uids("s, COUNT(*)"))) == 2


def test_a_scan_with_other_hints_is_another_operator() -> None:
    (plain,) = sinks("SELECT x FROM n")
    (hinted,) = sinks("SELECT x FROM n /*+ OPTIONS('rows-per-second' = '5') */")
    assert plain.input.uid != hinted.input.uid


def test_one_plan_for_two_inserts_reads_the_table_once() -> None:
    first, second = sinks("INSERT INTO o SELECT a, b FROM t", "INSERT INTO o SELECT a, b + 1 FROM t")
    assert first.input.inputs[0] is second.input.inputs[0]


def test_each_random_call_is_drawn_separately() -> None:
    text = plan("SELECT RAND() AS q FROM n UNION ALL SELECT RAND() AS q FROM n")
    assert text.count("RAND()") == 2
    (sink,) = sinks("SELECT RAND() AS q FROM n UNION ALL SELECT RAND() AS q FROM n")
    first, second = sink.input.inputs
    assert first is not second
