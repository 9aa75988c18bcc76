"""Details that programs written for PyFlink rely on: literals, names of functions, paths, catalog tables."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Row
from millstream.errors import ProgramError, TypeMismatchError
from millstream.table import DataTypes, EnvironmentSettings, ResultKind, TableEnvironment, TableSchema
from millstream.table.catalog import CatalogBaseTable, ObjectPath
from millstream.table.expressions import call, col, lit, without_columns
from millstream.table.udf import udf
from millstream.testing.local_jobs import jobs_in_memory


@pytest.fixture
def t_env() -> Iterator[TableEnvironment]:
    with jobs_in_memory():
        yield TableEnvironment.create(EnvironmentSettings.in_streaming_mode())


@pytest.mark.parametrize(
    ("value", "data_type"),
    [
        (128, DataTypes.TINYINT()),
        (40_000, DataTypes.SMALLINT()),
        (2**31, DataTypes.INT()),
        (2**63, DataTypes.BIGINT()),
        (1.5, DataTypes.INT()),
        ("abc", DataTypes.INT()),
        (True, DataTypes.INT()),
        (1, DataTypes.BOOLEAN()),
        (3, DataTypes.STRING()),
        (Decimal("123.25"), DataTypes.DECIMAL(3, 2)),
    ],
)
def test_a_literal_invalid_for_its_type_is_rejected_at_its_line(value: Any, data_type: Any) -> None:
    with pytest.raises(TypeMismatchError, match=r"expected a value of .*test_pyflink_details.py:\d+"):
        lit(value, data_type)


def test_a_literal_within_the_range_of_its_type_is_accepted(t_env: TableEnvironment) -> None:
    literals = [lit(127, DataTypes.TINYINT()), lit(1, DataTypes.DOUBLE()), lit("abc", DataTypes.STRING())]
    [row] = t_env.from_elements([(1,)], ["n"]).select(*literals, lit(None, DataTypes.INT())).execute().collect()
    assert tuple(row) == (127, 1.0, "abc", None)


def test_sum0_can_be_called_by_its_name(t_env: TableEnvironment) -> None:
    numbers = t_env.from_elements([(1,), (2,)], ["n"])
    assert [tuple(row) for row in numbers.select(call("sum0", col("n"))).execute().collect()][-1] == (3,)


def test_object_paths_are_ordered() -> None:
    paths = [ObjectPath("db", "b"), ObjectPath("db", "a"), ObjectPath("aa", "z")]
    assert [str(path) for path in sorted(paths)] == ["aa.z", "db.a", "db.b"]
    assert ObjectPath("db", "a") <= ObjectPath("db", "a") < ObjectPath(database_name="db", object_name="b")
    with pytest.raises(TypeError):
        assert paths[0] < 3  # type: ignore[operator]


def test_a_catalog_table_can_be_created_from_a_table_schema(t_env: TableEnvironment, tmp_path: Path) -> None:
    schema = TableSchema(["word", "often"], [DataTypes.STRING(), DataTypes.BIGINT()])
    options = {"connector": "filesystem", "path": str(tmp_path / "words"), "format": "csv"}
    table = CatalogBaseTable.create_table(schema, [], options, "words")
    catalog = t_env.get_catalog("default_catalog")
    catalog.create_table(ObjectPath("default_database", "words"), table, False)
    t_env.execute_sql("INSERT INTO words VALUES ('to', 2)").wait()
    assert [tuple(row) for row in t_env.from_path("words").execute().collect()] == [("to", 2)]
    view = CatalogBaseTable.create_view("SELECT 1", "SELECT 1", schema, {})
    assert "`often` BIGINT" in str(view.get_unresolved_schema())


@pytest.mark.parametrize(
    ("data_type", "advice"), [(int, r"Write DataTypes\.BIGINT\(\)"), (DataTypes.INT, r"Call it: DataTypes\.INT\(\)")]
)
def test_a_wrong_result_type_is_refused_with_the_type_to_write(data_type: Any, advice: str) -> None:
    with pytest.raises(TypeMismatchError, match=advice):
        udf(lambda value: value, result_type=data_type)


def test_a_wrong_type_of_a_column_names_the_line_once() -> None:
    with pytest.raises(TypeMismatchError) as refused:
        udf(lambda value: value, result_type=3)
    assert str(refused.value).count(Path(__file__).name) == 1


@pytest.mark.parametrize("elements", ["abc", b"abc", {"a": 1}, Row(1, "a")])
def test_a_single_value_is_rejected_as_rows(t_env: TableEnvironment, elements: Any) -> None:
    with pytest.raises(TypeMismatchError, match=r"from_elements: found .*, expected a list of rows\. Write \["):
        t_env.from_elements(elements)


def test_creating_a_view_from_a_text_is_rejected_with_the_method_name(t_env: TableEnvironment) -> None:
    with pytest.raises(
        TypeMismatchError, match=r"create_temporary_view: found 'SELECT 1', expected a table.*sql_query"
    ):
        t_env.create_temporary_view("v", "SELECT 1")


def test_kinds_of_results_are_numbers_as_in_pyflink(t_env: TableEnvironment) -> None:
    result = t_env.execute_sql("CREATE TABLE t (a INT) WITH ('connector' = 'datagen')")
    assert result.get_result_kind() == ResultKind.SUCCESS == 0


def test_a_group_is_selected_by_its_alias(t_env: TableEnvironment) -> None:
    numbers = t_env.from_elements([(1,), (2,), (3,)], ["n"])
    groups = numbers.group_by((col("n") % 2).alias("k"))
    sums = groups.select(col("k"), (col("k") + 10).alias("k10"), col("n").sum)
    assert sums.get_schema().get_field_names() == ["k", "k10", "EXPR$0"]
    assert {(0, 10, 2), (1, 11, 4)} <= {tuple(row) for row in sums.execute().collect()}


def test_the_name_of_a_group_hides_a_column_but_not_from_aggregates(t_env: TableEnvironment) -> None:
    numbers = t_env.from_elements([(1,), (2,), (3,)], ["n"])
    sums = numbers.group_by((col("n") % 2).alias("n")).select(col("n"), col("n").sum)
    assert {(0, 2), (1, 4)} <= {tuple(row) for row in sums.execute().collect()}


def test_dropping_the_last_column_is_rejected(t_env: TableEnvironment) -> None:
    numbers = t_env.from_elements([(1, 2)], ["n", "m"])
    with pytest.raises(ProgramError, match="drop_columns: found all columns of the table, expected at least one"):
        numbers.drop_columns(col("n"), col("m"))
    with pytest.raises(ProgramError, match="select: found no columns, expected at least one"):
        numbers.select(without_columns(col("n"), col("m")))


def test_a_field_of_a_row_has_a_data_type() -> None:
    with pytest.raises(TypeMismatchError, match=r"field 'a' of a row: found 'INT', expected a data type"):
        DataTypes.FIELD("a", "INT")  # type: ignore[arg-type]
