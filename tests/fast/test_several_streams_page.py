"""The programs of docs/several-streams.md run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from millstream.common import WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.testing import EPOCH, Collect, Script, run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "several-streams.md"


def of_page() -> dict[str, Any]:
    """What the code blocks of the page define, one after the other."""
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, "several-streams.md", "exec"), names)
    return names


def test_orders_are_paid_or_told_as_unpaid() -> None:
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
