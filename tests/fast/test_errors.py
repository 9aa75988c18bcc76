"""What a program catches: our errors are those that PyFlink raises in the same places."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from millstream.common import Time, Types
from millstream.common.config_options import ConfigOptions
from millstream.datastream import MapFunction, OutputTag, StreamExecutionEnvironment
from millstream.datastream.formats.avro import AvroRowDeserializationSchema
from millstream.datastream.formats.csv import CsvRowDeserializationSchema
from millstream.datastream.state import MapStateDescriptor, ReducingStateDescriptor
from millstream.datastream.window import CountTrigger, EventTimeSessionWindows
from millstream.errors import ConfigurationError, MissingNameError, ProgramError, SqlError, TypeMismatchError
from millstream.table import DataTypes, EnvironmentSettings, TableEnvironment
from millstream.table.types import RowField, RowType, from_arrow_type
from millstream.table.udf import udaf, udf, udtf


def numbers() -> Any:
    return StreamExecutionEnvironment.get_execution_environment().from_collection([1], Types.LONG())


def t_env() -> TableEnvironment:
    return TableEnvironment.create(EnvironmentSettings.in_streaming_mode())


def test_an_error_of_the_program_is_a_value_error_and_one_of_a_type_is_a_type_error() -> None:
    for kind in (ProgramError, ConfigurationError, SqlError, TypeMismatchError):
        assert issubclass(kind, ValueError)
    assert issubclass(TypeMismatchError, TypeError)
    assert issubclass(MissingNameError, AttributeError)
    assert not issubclass(ConfigurationError, TypeError)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: numbers().map("x"),
        lambda: numbers().flat_map(3),
        lambda: numbers().filter(MapFunction),
        lambda: numbers().key_by(None),
        lambda: numbers().key_by(lambda n: n).reduce("sum"),
        lambda: numbers().key_by(lambda n: n).sum(1.5),
        lambda: numbers().key_by(lambda n: n).process(MapFunction()),
        lambda: numbers().map(lambda n: n, output_type="LONG"),
        lambda: numbers().partition_custom("x", lambda n: n),
        lambda: numbers().broadcast("state"),
        lambda: numbers().window_all(EventTimeSessionWindows.with_gap(Time.seconds(1))).trigger(NeverMerges()),
        lambda: OutputTag("side", "STRING"),
        lambda: ReducingStateDescriptor("sum", "add", Types.LONG()),
        lambda: MapStateDescriptor("names", "STRING", Types.LONG()),
        lambda: CsvRowDeserializationSchema.Builder(None),
        lambda: AvroRowDeserializationSchema(),
        lambda: TableEnvironment.create("streaming"),
        lambda: t_env().from_elements([(1,)], "id INT"),
        lambda: t_env().from_elements([(1,), ("a",)]),
        lambda: t_env().from_elements([(1, 2), (1,)]),
        lambda: t_env().from_elements([(object(),)]),
        lambda: t_env().from_elements([("a",)], DataTypes.ROW([DataTypes.FIELD("n", DataTypes.INT())])),
        lambda: t_env().from_pandas([1]),
        lambda: udf("f", result_type=DataTypes.INT()),
        lambda: udf(lambda n: n, input_types=[3], result_type=DataTypes.INT()),
        lambda: udf(lambda n: n, result_type=int),
        lambda: udtf(lambda n: n, result_types=[3]),
        lambda: udaf(lambda n: n, result_type=3, func_type="pandas"),
        lambda: from_arrow_type(pa.month_day_nano_interval()),
        lambda: RowType([RowField("a", DataTypes.INT())])[None],
        lambda: DataTypes.ROW([("a", int)]),
    ],
)
def test_what_is_not_of_the_expected_type_is_a_type_error_as_pyflinks_is(wrong: Callable[[], Any]) -> None:
    with pytest.raises(TypeError):
        wrong()


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: udf(lambda n: n, result_type=DataTypes.INT(), func_type="numpy"),
        lambda: ConfigOptions.key("a").int_type().no_default_value().parse("x"),
        lambda: t_env().from_elements([]),
        lambda: t_env().from_elements([(None,)]),
        lambda: t_env().sql_query("SELECT"),
        lambda: numbers().set_parallelism(0),
    ],
)
def test_what_cannot_be_is_a_value_error_as_pyflinks_is(wrong: Callable[[], Any]) -> None:
    with pytest.raises(ValueError):
        wrong()


class NeverMerges(CountTrigger):
    def __init__(self) -> None:
        super().__init__(1)

    def can_merge(self) -> bool:
        return False
