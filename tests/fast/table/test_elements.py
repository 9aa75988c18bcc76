"""Rows of `from_elements`: inferred types, and supported values."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.common import Row
from millstream.table import DataTypes, EnvironmentSettings, Table, TableEnvironment, UserDefinedType
from millstream.table.expressions import col
from millstream.table.types import DataType
from millstream.testing.local_jobs import jobs_in_memory


@pytest.fixture
def t_env() -> Iterator[TableEnvironment]:
    with jobs_in_memory():
        yield TableEnvironment.create(EnvironmentSettings.in_streaming_mode())


def rows(table: Table) -> list[tuple[Any, ...]]:
    with table.execute().collect() as results:
        return [tuple(row) for row in results]


class Reading:
    def __init__(self, station: str, celsius: float) -> None:
        self.station = station
        self.celsius = celsius


class ReadingType(UserDefinedType):
    @classmethod
    def sql_type(cls) -> DataType:
        return DataTypes.ROW([DataTypes.FIELD("c", DataTypes.DOUBLE()), DataTypes.FIELD("s", DataTypes.STRING())])

    @classmethod
    def module(cls) -> str:
        return __name__

    def serialize(self, obj: Any) -> Any:
        return obj.celsius, obj.station

    def deserialize(self, datum: Any) -> Any:
        return Reading(datum[1], datum[0])


def test_columns_of_dicts_and_objects_are_in_alphabetical_order(t_env: TableEnvironment) -> None:
    dicts = t_env.from_elements([{"b": 1, "a": 2}, {"c": "x", "a": 3}])
    assert dicts.get_schema().get_field_names() == ["a", "b", "c"]
    assert rows(dicts) == [(2, 1, None), (3, None, "x")]
    assert rows(t_env.from_elements([{"b": 1, "a": 2}], ["b", "a"])) == [(1, 2)]
    objects = t_env.from_elements([Reading("north", 1.5)])
    assert objects.get_schema().get_field_names() == ["celsius", "station"]
    typed = DataTypes.ROW(
        [DataTypes.FIELD("station", DataTypes.STRING()), DataTypes.FIELD("celsius", DataTypes.DOUBLE())]
    )
    assert rows(t_env.from_elements([Reading("north", 1.5)], typed)) == [("north", 1.5)]


@pytest.mark.parametrize(
    ("values", "written"),
    [
        ([array("b", [1])], "ARRAY<TINYINT NOT NULL>"),
        ([array("H", [1])], "ARRAY<INT NOT NULL>"),
        ([array("q", [1])], "ARRAY<BIGINT NOT NULL>"),
        ([array("f", [1]), array("f")], "ARRAY<FLOAT NOT NULL>"),
        ([[], [1]], "ARRAY<BIGINT>"),
        ([{}, {"a": 1}], "MAP<STRING NOT NULL, BIGINT>"),
        ([(1, "a"), (2, None)], "ROW<`_1` BIGINT, `_2` STRING>"),
        ([[Row(x=1)], [Row(x=None)]], "ARRAY<ROW<`x` BIGINT>>"),
    ],
)
def test_nested_values_have_pyflinks_types(t_env: TableEnvironment, values: list[Any], written: str) -> None:
    table = t_env.from_elements([(value,) for value in values], ["v"])
    assert str(table.get_schema().get_field_data_types()[0]) == written
    assert len(rows(table)) == len(values)


@pytest.mark.parametrize("value", [[], {}, [None], array("Q", [1])])
def test_values_without_a_type_are_refused(t_env: TableEnvironment, value: Any) -> None:
    with pytest.raises(ValueError, match=r"Declare it|larger than BIGINT"):
        t_env.from_elements([(value,)], ["v"])


def test_a_user_defined_type_is_stored_as_its_sql_type(
    t_env: TableEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = DataTypes.ROW([("n", DataTypes.INT()), ("many", DataTypes.ARRAY(ReadingType()))])
    declared = t_env.from_elements([(1, [Reading("north", 1.5), None])], schema)
    assert [tuple(row[1][0]) for row in rows(declared)] == [(1.5, "north")]
    monkeypatch.setattr(Reading, "__UDT__", ReadingType(), raising=False)
    inferred = t_env.from_elements([(Reading("south", 2.5),), (None,)], ["r"])
    assert rows(inferred.select(col("r").get("c"), col("r").get("s"))) == [(2.5, "south"), (None, None)]


def test_missing_names_are_numbered(t_env: TableEnvironment) -> None:
    assert t_env.from_elements([(1, 2, 3)], ["a"]).get_schema().get_field_names() == ["a", "_2", "_3"]
