"""Compiled plans: a stored plan runs as planned, with its uids; a damaged one is rejected."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from millstream.errors import MillstreamError, NotAvailableError, ProgramError
from millstream.planner.passes.rewriting import relations_of
from millstream.planner.plan_json import _checksum, plan_from_json
from millstream.sql.splitting import statement_spans
from millstream.table import DataTypes, EnvironmentSettings, PlanReference, TableEnvironment
from millstream.table.types import DataType
from millstream.table.udf import AggregateFunction, udaf, udf
from millstream.testing.local_jobs import jobs_in_memory

NEXMARK = Path(__file__).parent / "sql_statements" / "nexmark"
YESTERDAYS = Path(__file__).parents[1] / "compatibility" / "plan-1.json"
TABLES_OF_YESTERDAY = (
    "CREATE TABLE numbers (n BIGINT, ts AS TO_TIMESTAMP_LTZ(n * 10, 3), WATERMARK FOR ts AS ts) WITH "
    "('connector' = 'datagen', 'fields.n.kind' = 'sequence', 'fields.n.start' = '1', 'fields.n.end' = '200')",
    "CREATE TABLE counts (k BIGINT NOT NULL, c BIGINT, PRIMARY KEY (k) NOT ENFORCED) WITH ('connector' = 'state')",
)
YESTERDAYS_INSERT = "INSERT INTO counts SELECT MOD(n, 4), COUNT(*) FROM numbers WHERE n <> 7 GROUP BY MOD(n, 4)"


def environment(*statements: str) -> TableEnvironment:
    t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for statement in statements:
        t_env.execute_sql(statement)
    return t_env


def _statements(name: str) -> list[str]:
    return [span.text for span in statement_spans((NEXMARK / f"{name}.sql").read_text())]


def uids(plan: object) -> list[str | None]:
    return [relation.uid for relation in relations_of(plan)]  # type: ignore[arg-type]


def test_a_plan_of_an_older_version_runs_with_its_uids() -> None:
    plan = json.loads(YESTERDAYS.read_text())
    with jobs_in_memory():
        t_env = environment()  # the tables need not be defined: the plan contains them
        loaded = t_env.load_plan(PlanReference.from_file(str(YESTERDAYS)))
        assert uids(loaded._plan) == [node["uid"] for node in plan["plan"]["nodes"]]
        t_env.execute_plan(PlanReference.from_file(str(YESTERDAYS))).wait()
        job = t_env._runner.jobs[-1][0]
        rows = t_env.execute_sql(f"SELECT k, c FROM `{job.board.now.job_name}`.counts")
        assert sorted(tuple(row) for row in rows.collect()) == [(0, 50), (1, 50), (2, 50), (3, 49)]


def test_the_current_planner_produces_the_stored_plan() -> None:
    # A change of uids loses the state of running jobs: if it is intended, keep plan-1.json, and document it.
    compiled = environment(*TABLES_OF_YESTERDAY).compile_plan_sql(YESTERDAYS_INSERT)
    stored = plan_from_json(YESTERDAYS.read_text(), "plan-1.json")
    assert uids(compiled._plan) == uids(stored)


@pytest.mark.parametrize("name", sorted(path.stem for path in NEXMARK.glob("q*.sql")))
def test_every_nexmark_query_round_trips_through_a_compiled_plan(name: str, tmp_path: Path) -> None:
    t_env = environment(*_statements("tables"))
    if name == "q14":
        count = udf(lambda text, letter: text.count(letter), result_type=DataTypes.BIGINT())
        t_env.create_temporary_function("count_char", count)
    *definitions, insert = _statements(name)
    for definition in definitions:
        t_env.execute_sql(definition.replace("${folder}", str(tmp_path)))
    plan = t_env.compile_plan_sql(insert)
    text = plan.as_json_string()
    again = t_env.load_plan(PlanReference.from_json_string(text))
    assert again.as_json_string() == text and uids(again._plan) == uids(plan._plan)
    assert again.explain() == plan.explain()


def test_a_plan_resumes_the_state_of_an_equivalent_statement(tmp_path: Path) -> None:
    file = tmp_path / "plans" / "counts.json"
    t_env = environment(*TABLES_OF_YESTERDAY)
    t_env.execute_sql(f"COMPILE PLAN '{file}' FOR {YESTERDAYS_INSERT}")
    first = file.read_text()
    with pytest.raises(ProgramError, match="exists already"):
        t_env.execute_sql(f"COMPILE PLAN '{file}' FOR {YESTERDAYS_INSERT}")
    other = YESTERDAYS_INSERT.replace("n <> 7", "n <> 8")
    t_env.execute_sql(f"COMPILE PLAN '{file}' IF NOT EXISTS FOR {other}")
    assert file.read_text() == first
    assert "<>(n, 7)" in str(next(iter(t_env.execute_sql(f"EXPLAIN EXECUTE PLAN '{file}'").collect()))[0])
    t_env.execute_sql("SET 'table.plan.force-recompile' = 'true'")
    t_env.execute_sql(f"COMPILE PLAN '{file}' FOR {other}")
    assert file.read_text() != first
    with jobs_in_memory():
        t_env.execute_sql(f"COMPILE AND EXECUTE PLAN '{tmp_path / 'new.json'}' FOR {other}").wait()
        t_env.execute_sql(f"EXECUTE PLAN '{tmp_path / 'new.json'}'").wait()


def test_a_damaged_or_newer_plan_is_rejected(tmp_path: Path) -> None:
    t_env, text = environment(), YESTERDAYS.read_text()
    file = tmp_path / "plan.json"
    for damaged, told in (
        (text[: len(text) // 2], "not JSON"),
        (text.replace("counts", "counted"), "checksum"),
        (text.replace('"millstream plan": 1', '"millstream plan": 99'), "written by a newer"),
        ('{"flinkVersion": "2.3", "nodes": []}', "plan of Flink's"),
        ("[]", "not a compiled plan"),
        ("[" * 100_000, "not JSON"),
    ):
        file.write_text(damaged)
        with pytest.raises(ProgramError, match=told):
            t_env.execute_sql(f"EXECUTE PLAN '{file}'")
    with pytest.raises(ProgramError, match="there is no plan file"):
        t_env.execute_sql(f"EXECUTE PLAN '{tmp_path / 'absent.json'}'")


@pytest.mark.parametrize(
    "node", [{"$class": "planner.plan_json.importlib"}, {"$decimal": "abc"}, {"$float": "0x1p99999"}]
)
def test_a_plan_with_an_unknown_class_or_an_invalid_value_is_rejected(node: dict[str, str]) -> None:
    body = {"version": "1", "nodes": [node], "sinks": [0]}
    from millstream.planner.plan_json import _checksum

    text = json.dumps({"millstream plan": 1, "checksum": _checksum(body), "plan": body})
    with pytest.raises(ProgramError, match="that this version of Millstream does not know"):
        plan_from_json(text, "the plan")


def test_a_statement_that_cannot_be_compiled_is_rejected_with_the_reason() -> None:
    t_env = environment(*TABLES_OF_YESTERDAY)
    t_env.create_temporary_view("mine", t_env.from_elements([(1, 2)], ["k", "c"]))
    with pytest.raises(ProgramError, match="streams or values of the program"):
        t_env.compile_plan_sql("INSERT INTO counts SELECT k, c FROM mine").as_json_string()
    with pytest.raises(MillstreamError, match="takes an INSERT or a STATEMENT SET"):
        t_env.compile_plan_sql("SELECT n FROM numbers")
    plan = t_env.compile_plan_sql(YESTERDAYS_INSERT)
    with pytest.raises(NotAvailableError, match="Smile"):
        plan.as_smile_bytes()


def test_functions_are_stored_by_name_and_must_be_registered() -> None:
    twice = udf(lambda n: 2 * n, result_type=DataTypes.BIGINT())
    t_env = environment(*TABLES_OF_YESTERDAY)
    t_env.create_temporary_function("twice", twice)
    text = t_env.compile_plan_sql("INSERT INTO counts SELECT n, twice(n) FROM numbers").as_json_string()
    with pytest.raises(ProgramError, match="calls the function"):
        environment().load_plan(PlanReference.from_json_string(text))
    other = environment()
    other.create_temporary_function("twice", twice)
    assert other.load_plan(PlanReference.from_json_string(text)).as_json_string() == text


SECRET_TABLE = (
    "CREATE TABLE inventory (a INT) WITH ('connector' = 'jdbc', 'url' = 'jdbc:postgresql://db/s?password=buried', "
    "'table-name' = 't', 'password' = 'hush', 'username' = 'ann')"
)


def test_a_plan_refers_to_secrets_by_table_and_option() -> None:
    plan = environment(SECRET_TABLE).compile_plan_sql("INSERT INTO inventory SELECT 1").as_json_string()
    assert "hush" not in plan and "buried" not in plan and "ann" in plan
    reference = PlanReference.from_json_string(plan)
    rotated = SECRET_TABLE.replace("hush", "fresh")
    [sink] = environment(rotated).load_plan(reference)._plan
    assert dict(sink.target.options) == {
        "connector": "jdbc",
        "url": "jdbc:postgresql://db/s?password=buried",
        "table-name": "t",
        "password": "fresh",
        "username": "ann",
    }
    for tables in ((), (SECRET_TABLE.replace("'password' = 'hush', ", ""),)):
        with pytest.raises(ProgramError, match=r"refers to the option '(url|password)' of the table `default_catalog`"):
            environment(*tables).load_plan(reference)


def changed(plan: str, before: str, after: str) -> PlanReference:
    """A plan with a text replaced, and a checksum that matches."""
    document = json.loads(plan)
    document["plan"] = json.loads(json.dumps(document["plan"]).replace(before, after))
    return PlanReference.from_json_string(json.dumps({**document, "checksum": _checksum(document["plan"])}))


def test_a_plan_uses_secrets_only_with_their_original_options() -> None:
    t_env = environment(SECRET_TABLE)
    plan = t_env.compile_plan_sql("INSERT INTO inventory SELECT 1").as_json_string()
    moved = environment(SECRET_TABLE.replace("//db/", "//other/").replace("hush", "fresh"))
    with pytest.raises(ProgramError, match="other options in this session than when the plan was compiled: url"):
        moved.load_plan(PlanReference.from_json_string(plan))
    with pytest.raises(ProgramError, match="compiled: username"):
        t_env.load_plan(changed(plan, '"ann"', '"eve"'))
    with pytest.raises(ProgramError, match="compiled: url"):
        t_env.load_plan(changed(plan, "//db/", "//evil/"))


def test_a_plan_never_uses_secrets_as_data() -> None:
    t_env = environment(SECRET_TABLE, "CREATE TABLE shown (a STRING) WITH ('connector' = 'print')")
    plan = t_env.compile_plan_sql("INSERT INTO shown SELECT 'text'").as_json_string()
    path = '["default_catalog", "default_database", "inventory"]'
    for secret in ('"******"', f'[{path}, "password"]'):
        with pytest.raises(ProgramError, match="cannot be read as a compiled plan"):
            t_env.load_plan(changed(plan, '"text"', f'{{"$secret": {secret}}}'))


def test_a_secret_outside_a_table_option_is_not_compiled() -> None:
    t_env = environment(SECRET_TABLE)
    hinted = "INSERT INTO inventory SELECT a FROM inventory /*+ OPTIONS('password' = 'other') */"
    with pytest.raises(ProgramError, match="secret in an OPTIONS hint"):
        t_env.compile_plan_sql(hinted).as_json_string()


def test_an_aggregates_empty_result_is_stored_by_its_name() -> None:
    class Total(AggregateFunction):
        def create_accumulator(self) -> list[int]:
            return [0]

        def accumulate(self, accumulator: list[int], *args: int) -> None:
            accumulator[0] += args[0]

        def get_value(self, accumulator: list[int]) -> int:
            return accumulator[0]

        def get_result_type(self) -> DataType:
            return DataTypes.BIGINT()

        def get_accumulator_type(self) -> DataType:
            return DataTypes.ARRAY(DataTypes.BIGINT())

    def with_total() -> TableEnvironment:
        t_env = environment(*TABLES_OF_YESTERDAY)
        t_env.create_temporary_function("total", udaf(Total()))
        return t_env

    query = "SELECT n, (SELECT total(o.n) FROM numbers o WHERE o.n = numbers.n + 1) FROM numbers"
    plan = with_total().compile_plan_sql(f"INSERT INTO counts {query}")
    text = plan.as_json_string()
    again = with_total().load_plan(PlanReference.from_json_string(text))
    assert again.as_json_string() == text and again.explain() == plan.explain()
