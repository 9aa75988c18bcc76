"""SQL over tables of jobs: point lookups, scans, several tables at one epoch, and earlier epochs."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pytest
from waits.live_answers import eventually, rows

from millstream import query
from millstream.errors import MillstreamError, ProgramError, SqlError, StoreAwayError
from millstream.jobs.launch.job import Job
from millstream.query.server import Limits, QueryServer, Reader, Rights, ServerSettings
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.table.catalog import ObjectPath
from millstream.table.environments import materialized_tables
from millstream.table.expressions import col
from millstream.table.operations.query_runner import QueryRunner
from millstream.testing.local_jobs import jobs_in_memory

LAST = 400


@pytest.fixture
def t_env(tmp_path: Path) -> Iterator[TableEnvironment]:
    with jobs_in_memory():
        env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        env.get_config().set("millstream.store", str(tmp_path / "store"))
        env.get_config().set("millstream.epoch.max-records", "100")
        env.get_config().set("millstream.retention.epochs", "100")
        env.execute_sql(
            "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', "
            f"'fields.n.start' = '1', 'fields.n.end' = '{LAST}')"
        )
        yield env


def run_job_with_tables(env: TableEnvironment) -> str:
    """Run a job with two queryable tables to its end; returns its name."""
    env.execute_sql(
        "CREATE TABLE counts (k BIGINT NOT NULL, c BIGINT, s BIGINT, PRIMARY KEY (k) NOT ENFORCED) "
        "WITH ('connector' = 'state')"
    )
    env.execute_sql("CREATE TABLE parities (odd BOOLEAN, c BIGINT) WITH ('connector' = 'state')")
    env.get_config().set("pipeline.name", "clicks")
    env.execute_sql(
        "EXECUTE STATEMENT SET BEGIN "
        "INSERT INTO counts SELECT MOD(n, 7), COUNT(*), SUM(n) FROM numbers GROUP BY MOD(n, 7); "
        "INSERT INTO parities SELECT MOD(n, 2) = 1, COUNT(*) FROM numbers GROUP BY MOD(n, 2) = 1; END"
    ).wait()
    return "clicks"


COUNTS = sorted((k, len([n for n in range(1, LAST + 1) if n % 7 == k])) for k in range(7))


def test_a_jobs_table_is_queried_like_any_table(t_env: TableEnvironment) -> None:
    run_job_with_tables(t_env)
    assert rows(t_env, "SELECT k, c FROM counts") == COUNTS
    assert rows(t_env, "SELECT k FROM counts WHERE c > 57") == [(1,)]
    assert rows(t_env, "SELECT odd, c FROM parities") == [(False, LAST // 2), (True, LAST // 2)]
    assert rows(t_env, "SELECT SUM(c), MAX(s) FROM counts")[0][0] == LAST
    joined = "SELECT a.k, b.c FROM counts a JOIN counts b ON a.k = b.k WHERE a.k < 2"
    assert rows(t_env, joined) == COUNTS[:2]


def test_a_job_is_named_before_its_table_in_the_session_and_in_a_catalog_of_jobs(
    t_env: TableEnvironment, tmp_path: Path
) -> None:
    job = run_job_with_tables(t_env)
    assert rows(t_env, f"SELECT k, c FROM {job}.counts") == COUNTS
    t_env.execute_sql(f"CREATE CATALOG live WITH ('type' = 'jobs', 'stores' = '{tmp_path}')")
    assert rows(t_env, f"SELECT k, c FROM live.{job}.counts") == COUNTS
    with jobs_in_memory():
        other = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        other.execute_sql(f"CREATE CATALOG live WITH ('type' = 'jobs', 'stores' = '{tmp_path}')")
        other.execute_sql("USE CATALOG live")
        assert rows(other, f"SELECT k, c FROM {job}.counts WHERE k IN (1, 2)") == COUNTS[1:3]


def test_a_primary_key_filter_reads_only_the_matching_keys(
    t_env: TableEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_job_with_tables(t_env)

    def refuse(*_: object) -> pa.Table:
        raise AssertionError("the whole table was read")

    monkeypatch.setattr("millstream.query.table_reads.TableReads.all", refuse)
    assert rows(t_env, "SELECT k, c FROM counts WHERE k = 3") == [COUNTS[3]]
    assert rows(t_env, "SELECT k, c FROM counts WHERE 3 = k AND c > 1000") == []
    assert rows(t_env, "SELECT k, c FROM counts WHERE k IN (3, 5, 99)") == [COUNTS[3], COUNTS[5]]
    assert rows(t_env, "SELECT c FROM counts WHERE k = 3 OR k = 4") == sorted((c,) for _, c in COUNTS[3:5])
    with pytest.raises(AssertionError):
        rows(t_env, "SELECT k FROM counts WHERE k > 3")


def test_every_retained_epoch_can_be_queried_with_consistent_tables(t_env: TableEnvironment, tmp_path: Path) -> None:
    run_job_with_tables(t_env)
    view = query.open(str(tmp_path / "store"))
    sums = []
    for epoch in view.epochs():
        [(counted,)] = rows(t_env, f"SELECT SUM(c) FROM counts FOR SYSTEM_TIME AS OF {epoch} AS t")
        [(halves,)] = rows(t_env, f"SELECT SUM(c) FROM parities FOR SYSTEM_TIME AS OF {epoch}")
        assert counted == halves
        sums.append(counted)
    assert len(sums) > 2 and sums == sorted(sums) and sums[-1] == LAST and sums[0] < LAST
    now = "SELECT SUM(c) FROM counts FOR SYSTEM_TIME AS OF CURRENT_TIMESTAMP"
    assert rows(t_env, now) == [(LAST,)]
    # Two epochs of one table in one query.
    both = (
        f"SELECT now.k, now.c - was.c FROM counts AS now JOIN counts FOR SYSTEM_TIME AS OF {view.epochs()[0]} AS was "
        "ON now.k = was.k"
    )
    assert sum(grown for _, grown in rows(t_env, both)) == LAST - sums[0]


def test_all_time_functions_of_a_query_read_one_clock_when_it_runs(
    slow: TableEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow.execute_sql(MATERIALIZED)
    eventually(lambda: total(slow), lambda count: count > 50)
    # The time is read when the query runs, not when it is created: as SQL views and Flink's CURRENT_TIMESTAMP do.
    table = slow.sql_query("SELECT SUM(c) FROM totals FOR SYSTEM_TIME AS OF CURRENT_TIMESTAMP")

    def summed() -> int:
        [row] = table.execute().collect()
        return int(row[0])

    first = summed()
    eventually(summed, lambda count: count > first)
    times: list[int | None] = []
    at = query.JobView.at

    def noted(view: query.JobView, *, epoch: int | None = None, time: int | None = None) -> query.EpochView:
        times.append(time)
        return at(view, epoch=epoch, time=time)

    monkeypatch.setattr(query.JobView, "at", noted)
    # Reading the clock twice might straddle a commit.
    rows(
        slow,
        "SELECT a.c - b.c FROM totals FOR SYSTEM_TIME AS OF CURRENT_TIMESTAMP AS a JOIN "
        "totals FOR SYSTEM_TIME AS OF CURRENT_TIMESTAMP + INTERVAL '0' SECOND AS b ON a.k = b.k",
    )
    assert len(times) == 2 and len(set(times)) == 1
    slow.execute_sql("DROP MATERIALIZED TABLE totals")


def test_a_query_over_tables_of_jobs_is_explained(t_env: TableEnvironment) -> None:
    run_job_with_tables(t_env)
    [(text,)] = rows(t_env, "EXPLAIN SELECT k FROM counts FOR SYSTEM_TIME AS OF 1 WHERE k = 3")
    assert "where=[(k = 3)]" in text and "counts" in text
    assert t_env.sql_query("SELECT k FROM counts").explain().startswith("== Abstract Syntax Tree ==")


def test_the_previous_row_of_a_key_reappears_when_its_latest_row_is_deleted(t_env: TableEnvironment) -> None:
    # Two groups share a table key: the latest one is shown until it moves to another key.
    t_env.execute_sql(
        "CREATE TABLE shared (half BIGINT NOT NULL, g BIGINT, PRIMARY KEY (half) NOT ENFORCED) "
        "WITH ('connector' = 'state')"
    )
    data = "[[1, 0], [2, 0], [2, 9]]"
    t_env.execute_sql(f"CREATE TABLE moves (g BIGINT, half BIGINT) WITH ('connector' = 'values', 'data' = '{data}')")
    t_env.get_config().set("millstream.epoch.max-records", "1")
    t_env.execute_sql("INSERT INTO shared SELECT MAX(half), g FROM moves GROUP BY g").wait()
    assert rows(t_env, "SELECT half, g FROM shared") == [(0, 1), (9, 2)]


def test_explain_reports_what_happens_to_the_stored_state(t_env: TableEnvironment) -> None:
    t_env.execute_sql("CREATE TABLE sums (k BIGINT, s BIGINT) WITH ('connector' = 'state')")
    insert = "INSERT INTO sums SELECT MOD(n, 7), SUM(n) FROM numbers GROUP BY MOD(n, 7)"
    assert "== State ==" not in t_env.explain_sql(insert)
    t_env.execute_sql(insert).wait()
    same = t_env.explain_sql(insert).split("== State ==\n")[1]
    assert same.count("\nkept ") == 3 and "dropped" not in same and "\nnew" not in same
    other = t_env.explain_sql("INSERT INTO sums SELECT n, n FROM numbers").split("== State ==\n")[1]
    assert "kept      Source: numbers" in other and "dropped   GroupAggregate" in other
    changed = t_env.explain_sql(insert.replace("SUM(n)", "MAX(n)")).split("== State ==\n")[1]
    assert "lost      GroupAggregate" in changed and "it stored SUM(n), and would store MAX(n)" in changed
    assert "lost      Table: sums" in changed


def test_unsupported_queries_are_rejected_with_the_reason(t_env: TableEnvironment) -> None:
    run_job_with_tables(t_env)
    t_env.get_config().set("table.live.rows-max", "3")
    with pytest.raises(ProgramError, match=r"more than 3 rows.*WHERE k = …"):
        rows(t_env, "SELECT * FROM counts")
    t_env.get_config().set("table.live.rows-max", "1000")
    with pytest.raises(SqlError, match=r"is a table of a job, and .*numbers' is not"):
        rows(t_env, "SELECT * FROM counts JOIN numbers ON k = n")
    with pytest.raises(
        MillstreamError, match=r"job 'clicks' has no table 'count' at epoch .* It has: counts, parities"
    ):
        rows(t_env, "SELECT * FROM clicks.`count`")
    with pytest.raises(SqlError, match="takes the number of an epoch, or a timestamp"):
        rows(t_env, "SELECT * FROM counts FOR SYSTEM_TIME AS OF 'yesterday'")
    with pytest.raises(MillstreamError, match="epoch 4711"):
        rows(t_env, "SELECT * FROM counts FOR SYSTEM_TIME AS OF 4711")
    with pytest.raises(SqlError, match="so queries on it take no options"):
        rows(t_env, "SELECT * FROM counts /*+ OPTIONS('ttl' = '1 s') */")
    t_env.execute_sql("CREATE TABLE orphan (k BIGINT) WITH ('connector' = 'state')")
    with pytest.raises(ProgramError, match="no job of this session stores the table"):
        rows(t_env, "SELECT * FROM orphan")
    with pytest.raises(ProgramError, match="and no job"):
        t_env.execute_sql("INSERT INTO orphan SELECT k FROM counts").wait()


MATERIALIZED = (
    "CREATE MATERIALIZED TABLE totals (PRIMARY KEY (k) NOT ENFORCED) FRESHNESS = INTERVAL '1' SECOND "
    "AS SELECT MOD(n, 5) AS k, COUNT(*) AS c FROM slow GROUP BY MOD(n, 5)"
)


SLOW = (
    "CREATE TABLE slow (n BIGINT) WITH ('connector' = 'datagen', 'rows-per-second' = '1000', "
    "'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '10000000')"
)


@pytest.fixture
def slow(t_env: TableEnvironment) -> TableEnvironment:
    t_env.execute_sql(SLOW)
    return t_env


def total(env: TableEnvironment, table: str = "totals") -> int:
    return int(rows(env, f"SELECT SUM(c) FROM {table}")[0][0] or 0)


def test_a_materialised_table_survives_suspension_alteration_and_fork(slow: TableEnvironment) -> None:
    slow.execute_sql(MATERIALIZED)
    eventually(lambda: total(slow), lambda count: count > 50)
    slow.execute_sql("ALTER MATERIALIZED TABLE totals SUSPEND")
    asleep = total(slow)
    assert rows(slow, "SHOW MATERIALIZED TABLES") == [("totals",)]
    slow.execute_sql("ALTER MATERIALIZED TABLE totals RESUME")
    eventually(lambda: total(slow), lambda count: count > asleep)
    slow.execute_sql(
        "ALTER MATERIALIZED TABLE totals AS SELECT MOD(n, 5) AS k, COUNT(*) * 2 AS twice, COUNT(*) AS c FROM slow "
        "GROUP BY MOD(n, 5)"
    )
    assert total(slow) >= asleep  # the counts so far are retained
    doubled = "SELECT SUM(c), SUM(twice), COUNT(twice) FROM totals"
    [(count, twice, _)] = eventually(lambda: rows(slow, doubled), lambda answer: answer[0][2] == 5)
    assert twice == 2 * count and count > asleep
    slow.execute_sql(
        "CREATE MATERIALIZED TABLE copied (PRIMARY KEY (k) NOT ENFORCED) WITH ('fork.from' = 'totals') "
        "AS SELECT MOD(n, 5) AS k, COUNT(*) AS c, COUNT(*) * 2 AS twice FROM slow GROUP BY MOD(n, 5)"
    )
    forked = total(slow, "copied")
    assert forked >= count
    eventually(lambda: total(slow, "copied"), lambda grown: grown > forked)
    for name in ("totals", "copied"):
        slow.execute_sql(f"DROP MATERIALIZED TABLE {name}")
    assert rows(slow, "SHOW MATERIALIZED TABLES") == []
    with pytest.raises(SqlError, match="not found"):
        rows(slow, "SELECT * FROM totals")


def test_an_alteration_that_would_lose_state_is_rejected_before_the_job_stops(slow: TableEnvironment) -> None:
    slow.execute_sql(MATERIALIZED)
    before = eventually(lambda: total(slow), lambda count: count > 50)
    for changed in (
        "SELECT MOD(n, 5) AS k, SUM(n) AS c FROM slow GROUP BY MOD(n, 5)",
        "SELECT MOD(n, 5) AS k, COUNT(*) AS c FROM slow WHERE n > 7 GROUP BY MOD(n, 5)",
        "SELECT MOD(n, 6) AS k, COUNT(*) AS c FROM slow GROUP BY MOD(n, 6)",
        "SELECT MOD(n, 5) AS k, MAX(n) AS m, COUNT(*) AS c FROM slow GROUP BY MOD(n, 5)",
        "SELECT n AS k, n AS c FROM slow",
    ):
        with pytest.raises(SqlError, match="cannot continue with this query"):
            slow.execute_sql(f"ALTER MATERIALIZED TABLE totals AS {changed}")
        [(text,)] = slow.execute_sql(f"EXPLAIN CREATE OR ALTER MATERIALIZED TABLE totals AS {changed}").collect()
        assert "== State ==" in text and any(word in text for word in ("\nlost", "\ndropped"))
    eventually(lambda: total(slow), lambda count: count > before)  # the job has not stopped
    slow.execute_sql("SET 'table.materialized.on-lost-state' = 'rebuild'")
    slow.execute_sql(
        "ALTER MATERIALIZED TABLE totals AS SELECT MOD(n, 5) AS k, MIN(n) AS c FROM slow GROUP BY MOD(n, 5)"
    )
    lowest = [(0, 5), (1, 1), (2, 2), (3, 3), (4, 4)]
    eventually(lambda: rows(slow, "SELECT * FROM totals"), lambda answer: answer == lowest)
    slow.execute_sql("DROP MATERIALIZED TABLE totals")


def test_an_alteration_checks_the_state_of_the_upsert_materialiser_too(slow: TableEnvironment) -> None:
    # Several groups share a table key: the upsert materialiser stores their rows, with their columns.
    shared = "SELECT MAX(MOD(n, 2)) AS half, MOD(n, 5) AS g FROM slow GROUP BY MOD(n, 5)"
    slow.execute_sql(f"CREATE MATERIALIZED TABLE shared (PRIMARY KEY (half) NOT ENFORCED) AS {shared}")
    eventually(lambda: rows(slow, "SELECT half FROM shared"), lambda found: found == [(1,)])
    changed = shared.replace(" AS g", " AS g, COUNT(*) AS c")
    [(text,)] = slow.execute_sql(f"EXPLAIN CREATE OR ALTER MATERIALIZED TABLE shared AS {changed}").collect()
    assert "lost      SinkMaterializer" in text and "its rows were saved without c" in text
    with pytest.raises(SqlError, match="cannot continue with this query"):
        slow.execute_sql(f"ALTER MATERIALIZED TABLE shared AS {changed}")
    slow.execute_sql("SET 'table.materialized.on-lost-state' = 'rebuild'")
    slow.execute_sql(f"ALTER MATERIALIZED TABLE shared AS {changed}")
    eventually(lambda: rows(slow, "SELECT half, c > 0 FROM shared"), lambda found: found == [(1, True)])
    slow.execute_sql("DROP MATERIALIZED TABLE shared")


ALTERED = MATERIALIZED.replace("CREATE", "CREATE OR ALTER").replace("SELECT MOD", "SELECT COUNT(*) * 2 AS d, MOD")


def test_create_or_alter_replaces_the_whole_definition_or_is_rejected(slow: TableEnvironment) -> None:
    slow.execute_sql(MATERIALIZED)
    eventually(lambda: total(slow), lambda count: count > 0)
    for words, changed, message in (
        ("KEY (k)", "KEY (c)", r"would get PRIMARY KEY \(c\) instead of \(k\)"),
        ("FRESHNESS", "WITH ('ttl' = '1 h') FRESHNESS", "would get 'ttl' = '1 h' instead of no value"),
        ("AS SELECT", "REFRESH_MODE = FULL AS SELECT", "REFRESH_MODE = FULL is not"),
    ):
        for explain in ("EXPLAIN ", ""):
            with pytest.raises(SqlError, match=message):
                slow.execute_sql(explain + ALTERED.replace(words, changed))
    assert "twice" not in rows(slow, "SHOW CREATE MATERIALIZED TABLE totals")[0][0]
    # Options that can be changed are changed; omitted ones stay.
    slow.execute_sql(
        ALTERED.replace("(PRIMARY KEY (k) NOT ENFORCED)", "COMMENT 'all that''s there'").replace("'1' SEC", "'2' SEC")
    )
    [(text,)] = rows(slow, "SHOW CREATE MATERIALIZED TABLE totals")
    for words in ("PRIMARY KEY (`k`)", "COMMENT 'all that''s there'", "INTERVAL '2' SECOND", "COUNT(*) * 2 AS d"):
        assert words in text
    slow.execute_sql("DROP MATERIALIZED TABLE totals")
    slow.execute_sql(text)  # the output of SHOW CREATE can be run
    assert rows(slow, "SHOW CREATE MATERIALIZED TABLE totals") == [(text,)]
    slow.execute_sql("DROP MATERIALIZED TABLE totals")


def test_a_table_whose_replacement_fails_continues_unchanged(
    slow: TableEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow.execute_sql(MATERIALIZED)
    before = eventually(lambda: total(slow), lambda count: count > 0)
    keep, calls = QueryRunner.start_materialized, []

    def failing(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) == 1:
            raise StoreAwayError("the store is away")
        return keep(*arguments)

    slow.execute_sql("SET 'parallelism.default' = '-3'")
    with pytest.raises(MillstreamError, match="found -3"):  # reported before anything is stopped
        slow.execute_sql("ALTER MATERIALIZED TABLE totals REFRESH")
    slow.execute_sql("RESET 'parallelism.default'")
    before = eventually(lambda: total(slow), lambda count: count > before)
    with monkeypatch.context() as moment, pytest.raises(StoreAwayError):
        moment.setattr(QueryRunner, "start_materialized", failing)
        slow.execute_sql("ALTER MATERIALIZED TABLE totals REFRESH")
    assert len(calls) == 2
    eventually(lambda: total(slow), lambda count: count > before)
    slow.execute_sql("DROP MATERIALIZED TABLE totals")


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("CREATE MATERIALIZED TABLE t REFRESH_MODE = FULL AS SELECT n FROM numbers", "REFRESH_MODE = FULL is not"),
        ("CREATE MATERIALIZED TABLE t WITH ('connector' = 'print') AS SELECT n FROM numbers", "is stored in the state"),
        ("CREATE MATERIALIZED TABLE t WITH ('ttk' = '1 h') AS SELECT n FROM numbers", "Did you mean 'ttl'"),
        ("CREATE MATERIALIZED TABLE t FRESHNESS = INTERVAL '0' SECOND AS SELECT n FROM numbers", "FRESHNESS is '0'"),
        ("CREATE MATERIALIZED TABLE t WITH ('fork.from' = 'u') AS SELECT n FROM numbers", "not a materialized table"),
        ("ALTER MATERIALIZED TABLE t SUSPEND", "doesn't exist. There are: none"),
        ("DROP MATERIALIZED TABLE t", "doesn't exist"),
    ],
)
def test_an_invalid_statement_of_a_materialised_table_is_rejected(
    t_env: TableEnvironment, statement: str, message: str
) -> None:
    with pytest.raises(MillstreamError, match=message):
        t_env.execute_sql(statement)
    assert rows(t_env, "SHOW MATERIALIZED TABLES") == []


def test_a_query_without_from_reads_tables_in_subqueries(t_env: TableEnvironment) -> None:
    run_job_with_tables(t_env)
    assert rows(t_env, "SELECT (SELECT SUM(c) FROM counts) - (SELECT COUNT(*) FROM counts)") == [(LAST - len(COUNTS),)]
    assert rows(t_env, "SELECT 'yes' WHERE 1 IN (SELECT k FROM counts)") == [("yes",)]
    assert rows(t_env, "SELECT 'yes' WHERE -1 IN (SELECT k FROM counts)") == []


@pytest.mark.parametrize("rows_max", ["0", "-5", "some", "1e3", ""])
def test_the_row_limit_must_be_a_positive_integer(t_env: TableEnvironment, rows_max: str) -> None:
    run_job_with_tables(t_env)
    t_env.execute_sql(f"SET 'table.live.rows-max' = '{rows_max}'")
    with pytest.raises(ProgramError, match="expected a whole number above 0"):
        rows(t_env, "SELECT COUNT(*) FROM counts")


def test_a_materialised_table_is_changed_only_by_its_own_statements(slow: TableEnvironment) -> None:
    slow.execute_sql("CREATE DATABASE other")
    slow.execute_sql(MATERIALIZED)
    slow.execute_sql(MATERIALIZED.replace("totals", "other.totals"))
    eventually(lambda: total(slow), lambda count: count > 50)
    for statement, message in (
        ("INSERT INTO totals VALUES (1, 1)", "only its query writes rows to it"),
        ("ALTER TABLE totals RENAME TO sums", "stored by a job"),
        ("ALTER TABLE totals ADD more INT", "stored by a job"),
        ("ALTER TABLE totals SET ('ttl' = '1 s')", "stored by a job"),
        ("CREATE OR REPLACE TABLE totals (k INT) WITH ('connector' = 'state')", "stored by a job"),
        ("DROP TABLE totals", "DROP MATERIALIZED TABLE totals"),
        ("DROP DATABASE other CASCADE", "stored by a job"),
    ):
        with pytest.raises(MillstreamError, match=message):
            slow.execute_sql(statement)
    with pytest.raises(MillstreamError, match="only its query writes rows to it"):
        slow.from_path("slow").select(col("n"), col("n")).execute_insert("totals")
    catalog = slow.get_catalog("default_catalog")
    assert catalog is not None and catalog.list_materialized_tables("default_database") == ["totals"]
    assert slow.list_materialized_tables() == ["totals"] and "totals" in slow.list_tables()
    with pytest.raises(MillstreamError, match="stored by a job"):
        catalog.drop_table(ObjectPath("default_database", "totals"), False)
    before = total(slow)
    eventually(lambda: total(slow), lambda count: count > before)  # it continues
    for name in ("totals", "other.totals"):
        slow.execute_sql(f"DROP MATERIALIZED TABLE {name}")


def test_a_table_is_dropped_although_its_store_cannot_be_removed(
    slow: TableEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unavailable(*_: object) -> None:
        raise StoreAwayError("the store does not answer")

    slow.execute_sql(MATERIALIZED)
    monkeypatch.setattr(materialized_tables, "drop_store", unavailable)
    slow.execute_sql("DROP MATERIALIZED TABLE totals")
    assert rows(slow, "SHOW TABLES") == [("numbers",), ("slow",)]


def test_a_fork_continues_when_its_origin_is_dropped(slow: TableEnvironment, tmp_path: Path) -> None:
    fork = MATERIALIZED.replace(" FRESHNESS", " WITH ('fork.from' = '{}') FRESHNESS")
    slow.execute_sql(MATERIALIZED)
    eventually(lambda: total(slow), lambda count: count > 50)
    slow.execute_sql(fork.replace("totals", "copied").format("totals"))
    slow.execute_sql("ALTER MATERIALIZED TABLE copied SUSPEND")  # all of its state is still stored by its origin
    forked = total(slow, "copied")
    slow.execute_sql("DROP MATERIALIZED TABLE totals")
    assert total(slow, "copied") == forked
    slow.execute_sql("ALTER MATERIALIZED TABLE copied RESUME")
    eventually(lambda: total(slow, "copied"), lambda count: count > forked)
    slow.execute_sql(fork.replace("totals", "third").format("copied"))
    third = total(slow, "third")
    slow.execute_sql(
        "ALTER MATERIALIZED TABLE copied REFRESH"
    )  # the first store is removed, except files that the third job references
    eventually(lambda: total(slow, "third"), lambda count: count > third)
    slow.execute_sql(MATERIALIZED)  # a table with the dropped name starts empty
    eventually(lambda: total(slow), lambda count: count > 0)
    assert total(slow) < total(slow, "third")
    for name in ("third", "copied", "totals"):
        slow.execute_sql(f"DROP MATERIALIZED TABLE {name}")
    assert not list(tmp_path.glob("store*")), "nothing is left for forks that are gone"


def test_a_recreated_table_starts_empty_and_later_sessions_continue_it(slow: TableEnvironment, tmp_path: Path) -> None:
    slow.execute_sql(MATERIALIZED)
    eventually(lambda: total(slow), lambda count: count > 50)
    slow.execute_sql("ALTER MATERIALIZED TABLE totals REFRESH")
    slow.execute_sql("ALTER MATERIALIZED TABLE totals SUSPEND")
    slow.execute_sql("ALTER MATERIALIZED TABLE totals RESUME")
    first = eventually(lambda: total(slow), lambda count: count > 300)
    slow.execute_sql("ALTER MATERIALIZED TABLE totals SUSPEND")
    later = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for key in ("millstream.store", "millstream.epoch.max-records", "millstream.retention.epochs"):
        later.get_config().set(key, slow.get_config().get(key, ""))
    later.execute_sql(SLOW)
    later.execute_sql(MATERIALIZED)
    assert eventually(lambda: total(later), lambda count: count > 0) >= first, "it does not go on"
    later.execute_sql("ALTER MATERIALIZED TABLE totals REFRESH")
    assert eventually(lambda: total(later), lambda count: count > 0) < first, "it does not begin anew"
    later.execute_sql("DROP MATERIALIZED TABLE totals")
    assert not list(tmp_path.glob("store*"))
    later.execute_sql(MATERIALIZED)
    assert eventually(lambda: total(later), lambda count: count > 0) < first
    later.execute_sql("DROP MATERIALIZED TABLE totals")


def test_a_job_catalog_reads_the_current_job_and_not_a_dropped_one(slow: TableEnvironment, tmp_path: Path) -> None:
    slow.execute_sql(f"CREATE CATALOG live WITH ('type' = 'jobs', 'stores' = '{tmp_path}')")
    slow.execute_sql(MATERIALIZED)
    live = "live.totals.totals"
    before = eventually(lambda: total(slow, live), lambda count: count > 300)
    slow.execute_sql("ALTER MATERIALIZED TABLE totals REFRESH")
    assert eventually(lambda: total(slow, live), lambda count: count > 0) < before, "it was made anew"
    slow.execute_sql("DROP MATERIALIZED TABLE totals")
    with pytest.raises(MillstreamError, match="totals"):
        total(slow, live)
    slow.execute_sql(MATERIALIZED)
    assert eventually(lambda: total(slow, live), lambda count: count > 0) < before
    slow.execute_sql("DROP MATERIALIZED TABLE totals")


@pytest.mark.parametrize(
    "statement",
    [
        "DROP MATERIALIZED TABLE totals",
        "ALTER MATERIALIZED TABLE totals REFRESH",
        "ALTER MATERIALIZED TABLE totals SUSPEND",
        "ALTER MATERIALIZED TABLE totals SET FRESHNESS = INTERVAL '2' SECOND",
    ],
)
def test_a_statement_interrupted_while_the_job_ends_can_be_repeated(
    slow: TableEnvironment, statement: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow.execute_sql(MATERIALIZED)
    eventually(lambda: total(slow), lambda count: count > 0)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as moment, pytest.raises(KeyboardInterrupt):
        moment.setattr(Job, "wait", interrupted)
        slow.execute_sql(statement)
    assert rows(slow, "SHOW MATERIALIZED TABLES") == [("totals",)]
    slow.execute_sql("DROP MATERIALIZED TABLE totals")
    slow.execute_sql(MATERIALIZED)
    eventually(lambda: total(slow), lambda count: count > 0)
    slow.execute_sql("DROP MATERIALIZED TABLE totals")


def test_statements_over_http_are_authorised_per_table(t_env: TableEnvironment, tmp_path: Path) -> None:
    run_job_with_tables(t_env)
    view = query.open(str(tmp_path / "store"))
    token = "a-token-of-some-length"
    rights = Rights({hashlib.sha256(token.encode()).digest(): Reader("dash", ("counts",))})
    headers = {"authorization": f"Bearer {token}"}
    with (
        QueryServer(view, ServerSettings(port=0, rights=rights, limits=Limits(scan_rows_max=5))) as server,
        httpx.Client(base_url=f"{server.url}/v1/jobs/clicks", timeout=30, headers=headers) as client,
    ):

        def post_statement(statement: str) -> httpx.Response:
            return client.post("/sql", json={"statement": statement})

        answer = post_statement("SELECT k, c FROM counts WHERE k < 2").json()
        assert sorted(map(tuple, answer["rows"])) == COUNTS[:2]
        assert answer["columns"] == [{"name": "k", "type": "BIGINT"}, {"name": "c", "type": "BIGINT"}]
        assert answer["epoch"] == view.newest().epoch and answer["job"] == "clicks"
        assert post_statement("SELECT SUM(c) FROM clicks.counts").json()["rows"] == [[LAST]]
        first = view.epochs()[0]
        assert post_statement(f"SELECT SUM(c) FROM counts FOR SYSTEM_TIME AS OF {first}").json()["rows"][0][0] < LAST
        assert post_statement("SELECT 1 + 1").json()["rows"] == [[2]]
        refused = post_statement("SELECT * FROM parities")
        assert refused.status_code == 403 and "may not read" in refused.json()["message"]
        for wrong, message in (
            ("SELECT x FROM counts", "Column 'x' not found"),
            ("DROP TABLE counts", "executes only SELECT"),
            ("SELECT", "line 1"),
            ("SELECT k FROM counts", "more than 5 rows"),
        ):
            response = post_statement(wrong)
            assert response.status_code == 422 and message in response.json()["message"], response.text


def test_a_statement_over_its_time_limit_does_not_delay_others(t_env: TableEnvironment, tmp_path: Path) -> None:
    # Four times 400 rows are 25,600 million pairs.
    t_env.execute_sql(
        "CREATE TABLE rows_of_job (n BIGINT NOT NULL, PRIMARY KEY (n) NOT ENFORCED) WITH ('connector' = 'state')"
    )
    t_env.get_config().set("pipeline.name", "all")
    t_env.execute_sql("INSERT INTO rows_of_job SELECT n FROM numbers").wait()

    with (
        QueryServer(
            query.open(str(tmp_path / "store")), ServerSettings(port=0, limits=Limits(request_timeout_s=2))
        ) as server,
        httpx.Client(base_url=f"{server.url}/v1/jobs/all", timeout=60) as client,
    ):
        for more in ("", "WHERE a.n + b.n + c.n > d.n", "WHERE a.n NOT IN (SELECT e.n + 1000 FROM rows_of_job e)"):
            statement = f"SELECT COUNT(*) FROM rows_of_job a, rows_of_job b, rows_of_job c, rows_of_job d {more}"
            response = client.post("/sql", json={"statement": statement})
            assert response.status_code == 504, response.text
        count = {"statement": "SELECT COUNT(*) FROM rows_of_job"}
        answer = eventually(lambda: client.post("/sql", json=count), lambda response: response.status_code == 200)
        assert answer.json()["rows"] == [[LAST]]
