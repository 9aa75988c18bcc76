"""Programs of the kind of PyFlink's examples, run in memory, print what PyFlink prints."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Row, Time, Types, WatermarkStrategy
from millstream.common.serialization import Encoder
from millstream.common.watermark_strategy import TimestampAssigner
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import FileSink
from millstream.datastream.functions import ProcessWindowFunction
from millstream.datastream.window import TumblingEventTimeWindows
from millstream.testing import run

LINES = ["to be or", "not to be"]


def test_word_count_prints_tuples_as_java_does(capsys: pytest.CaptureFixture[str]) -> None:
    def words(line: str) -> Iterator[tuple[str, int]]:
        yield from ((word, 1) for word in line.split())

    def build(env: StreamExecutionEnvironment) -> None:
        lines = env.from_collection(LINES, Types.STRING())
        counts = lines.flat_map(words, output_type=Types.TUPLE([Types.STRING(), Types.INT()]))
        counts.key_by(lambda pair: pair[0]).reduce(lambda a, b: (a[0], a[1] + b[1])).print()

    run(build)
    assert capsys.readouterr().out == "(to,1)\n(be,1)\n(or,1)\n(not,1)\n(to,2)\n(be,2)\n"


class _Time(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return int(value[1])


class _Count(ProcessWindowFunction[Any, Any, Any, Any]):
    def process(self, key: str, context: Any, elements: Any) -> Iterator[tuple[str, int, int, int]]:
        yield key, context.window().start, context.window().end, len(list(elements))


def test_windows_print_their_bounds_and_counts(capsys: pytest.CaptureFixture[str]) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        stream = env.from_collection(
            [("hi", 1), ("hi", 2), ("hi", 4), ("hi", 8), ("ho", 9)], Types.TUPLE([Types.STRING(), Types.INT()])
        )
        timed = stream.assign_timestamps_and_watermarks(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(_Time())
        )
        counts = timed.key_by(lambda value: value[0], key_type=Types.STRING()).window(
            TumblingEventTimeWindows.of(Time.milliseconds(5))
        )
        output_type = Types.TUPLE([Types.STRING(), Types.INT(), Types.INT(), Types.INT()])
        counts.process(_Count(), output_type).print()

    run(build)
    assert capsys.readouterr().out == "(hi,0,5,3)\n(hi,5,10,1)\n(ho,5,10,1)\n"


ORDER = Types.ROW_NAMED(
    ["item", "price", "paid", "tags"],
    [Types.STRING(), Types.FLOAT(), Types.BOOLEAN(), Types.MAP(Types.STRING(), Types.INT())],
)
ORDERS = [Row("pen", 110.1, True, {"a": 1}), Row("ink", None, False, {})]


def test_rows_and_single_values_are_formatted_by_their_types(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        orders = env.from_collection(ORDERS, ORDER)
        orders.print()  # concatenated in Python, as PyFlink does: the FLOAT is the double it was read as
        orders.map(lambda order: order.price, output_type=Types.FLOAT()).print("price")
        orders.map(lambda order: order.paid, output_type=Types.BOOLEAN()).print("paid")
        orders.map(lambda order: order.tags, output_type=Types.MAP(Types.STRING(), Types.INT())).print("tags")
        orders.map(lambda order: (order.item, order.paid)).print("untyped")
        orders.sink_to(FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder()).build())

    run(build)
    lines = set(capsys.readouterr().out.splitlines())
    assert lines == {
        "+I[pen,110.0999984741211,True,{'a': 1}]",
        "+I[ink,None,False,{}]",
        "price> 110.1",
        "price> null",
        "paid> true",
        "paid> false",
        "tags> {a=1}",
        "tags> {}",
        "untyped> ('pen', True)",
        "untyped> ('ink', False)",
    }
    written = "".join(path.read_text() for path in tmp_path.rglob("*") if path.is_file())
    assert written == "+I[pen, 110.1, true, {a=1}]\n+I[ink, null, false, {}]\n"


def test_text_with_a_byte_order_mark_is_formatted_by_type_too(tmp_path: Path) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        flags = env.from_collection([True, False], Types.BOOLEAN())
        flags.sink_to(FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder("UTF-16")).build())

    run(build)
    [part] = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert part.read_bytes() == "true\n".encode("utf-16") + "false\n".encode("utf-16")
