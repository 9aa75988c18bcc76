"""Several sinks of one job write to one folder from the same tasks: every row is published once."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from deltalake import DeltaTable

from millstream.common.typeinfo import Types
from millstream.connectors.delta.sink import DeltaTableSink
from millstream.datastream import StreamExecutionEnvironment
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing import Script, run
from millstream.testing.local_jobs import jobs_in_memory


@pytest.mark.parametrize("format", ["parquet", "json"])
def test_two_inserts_into_one_table_of_files_lose_no_row(tmp_path: Path, format: str) -> None:
    options = f"'connector' = 'filesystem', 'path' = '{tmp_path / 'o'}', 'format' = '{format}'"
    table = f"CREATE TABLE o (v BIGINT) WITH ({options})"
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        t_env.get_config().set("millstream.store", str(tmp_path / "store"))
        t_env.get_config().set("millstream.epoch.max-records", "30")
        t_env.execute_sql(
            "CREATE TABLE numbers (n BIGINT) WITH ('connector' = 'datagen', 'fields.n.kind' = 'sequence', "
            "'fields.n.start' = '1', 'fields.n.end' = '100')"
        )
        t_env.execute_sql(table)
        both = t_env.create_statement_set()
        both.add_insert_sql("INSERT INTO o SELECT n FROM numbers WHERE n > 10")
        both.add_insert_sql("INSERT INTO o SELECT n + 1000 FROM numbers")
        both.execute().wait()
        later = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
        later.execute_sql(table)
        found = sorted(row[0] for row in later.execute_sql("SELECT v FROM o").collect())
    assert found == [*range(11, 101), *range(1001, 1101)]


def shifted(shift: int, number: int) -> tuple[int]:
    return (number + shift,)


def test_two_sinks_into_one_delta_table_lose_no_row(tmp_path: Path) -> None:
    row = Types.ROW_NAMED(["v"], [Types.LONG()])

    def build(env: StreamExecutionEnvironment) -> None:
        numbers = env.add_source(Script(list(range(20))))
        for name, shift in (("one", 0), ("other", 100)):
            rows = numbers.map(partial(shifted, shift), output_type=row)
            rows.sink_to(DeltaTableSink(str(tmp_path / "table"), row)).uid(name)

    run(build, epoch_records=6)
    found = sorted(DeltaTable(tmp_path / "table").to_pyarrow_table()["v"].to_pylist())
    assert found == [*range(20), *range(100, 120)]
