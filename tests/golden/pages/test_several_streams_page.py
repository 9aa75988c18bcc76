"""The programs of docs/datastream/several-streams.md run as printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from millstream.common import Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.testing import EPOCH, Collect, Script, run

PAGE = Path(__file__).resolve().parents[3] / "docs" / "datastream" / "several-streams.md"


def of_page() -> dict[str, Any]:
    """The definitions of the page's code blocks, in sequence."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, "several-streams.md", "exec"), names)
    return names


def test_orders_are_paid_or_reported_as_unpaid() -> None:
    out = Collect()
    strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value[2])

    def build(env: StreamExecutionEnvironment) -> None:
        orders = env.from_source(Script([("1", "book", 0), ("2", "pen", 5), EPOCH]), strategy, "orders")
        payments = env.from_source(Script([EPOCH, ("1", 700, 9)]), strategy, "payments")
        of_page()["settled"](orders, payments).sink_to(out)

    assert sorted(run(build, parallelism=2)[out]) == [("paid", "book", 700), ("unpaid", "pen", 0)]


def test_rules_change_while_the_job_runs() -> None:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        items = env.add_source(Script([("circle", "red"), EPOCH, ("circle", "blue"), EPOCH, ("square", "red")]))
        rules = env.add_source(Script([("round", "circle"), EPOCH, ("any", "circle"), EPOCH, ("round", None)]))
        of_page()["matches"](items, rules).sink_to(out)

    red, blue = ("circle", "red"), ("circle", "blue")
    assert sorted(run(build, parallelism=2)[out]) == sorted([("round", red), ("round", blue), ("any", blue)])


def test_an_already_keyed_stream_is_not_exchanged_again() -> None:
    out = Collect()
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])

    def build(env: StreamExecutionEnvironment) -> None:
        readings = env.add_source(Script([("a", 3), ("b", 5), EPOCH, ("a", 4), ("b", -2)], type_info=pair))
        of_page()["heavy"](readings).sink_to(out)
        assert env.explain().count("hash from") == 1

    assert sorted(run(build, parallelism=2)[out]) == [("a", 3), ("a", 7), ("b", 5), ("b", 5)]


def test_records_are_routed_to_side_outputs() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        texts = env.from_collection(["7", "x", "5000", "8"], Types.STRING())
        for name, stream in zip(("small", "large", "wrong"), of_page()["sorted_out"](texts), strict=True):
            stream.sink_to(Collect(name))

    result = run(build)
    assert (result["small"], result["large"], result["wrong"]) == ([7, 8], [5000], ["x"])
