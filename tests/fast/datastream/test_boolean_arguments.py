"""Boolean parameters reject strings: Python treats the text "false" as true, which could drop records silently."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millstream.common import Types
from millstream.common.serialization import SimpleStringSchema
from millstream.datastream.connectors.file_system import StreamFormat
from millstream.datastream.connectors.kinesis import KinesisStreamsSink
from millstream.datastream.connectors.rabbitmq import RMQConnectionConfig, RMQSource
from millstream.datastream.formats.canal import CanalJsonDeserializationSchema
from millstream.datastream.formats.csv import CsvRowDeserializationSchema
from millstream.datastream.formats.debezium import DebeziumJsonDeserializationSchema
from millstream.errors import ProgramError

ROW = Types.ROW_NAMED(["id"], [Types.INT()])
FALSE: Any = "false"
RABBIT = RMQConnectionConfig.Builder().build()


@pytest.mark.parametrize(
    "slip",
    [
        lambda: CanalJsonDeserializationSchema(ROW, ignore_parse_errors=FALSE),
        lambda: DebeziumJsonDeserializationSchema(ROW, ignore_parse_errors=FALSE),
        lambda: DebeziumJsonDeserializationSchema(ROW, schema_include=FALSE),
        lambda: CsvRowDeserializationSchema.Builder(ROW).set_ignore_parse_errors(FALSE),
        lambda: StreamFormat.json_line_format(ROW, ignore_parse_errors=FALSE),
        lambda: StreamFormat.json_line_format(ROW, fail_on_missing_field=FALSE),
        lambda: RMQSource(RABBIT, "q", FALSE, SimpleStringSchema()),
        lambda: KinesisStreamsSink.builder().set_fail_on_error(FALSE),
    ],
)
def test_a_string_in_place_of_a_boolean_is_rejected(slip: Callable[[], object]) -> None:
    with pytest.raises(ProgramError, match="found 'false', expected True or False") as refusal:
        slip()
    assert "test_boolean_arguments.py" in str(refusal.value)
