"""The programs of docs/datastream/windows.md and examples/dashboard run as printed."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from programs.window_scripts import timed

from millstream.common import Row, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.testing import Collect, Script, Watermark, run

ROOT = Path(__file__).resolve().parents[3]


def of_page() -> dict[str, Any]:
    """The definitions of the page's code blocks, in sequence."""
    names: dict[str, Any] = {}
    page = (ROOT / "docs" / "datastream" / "windows.md").read_text()
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        exec(compile(block, "windows.md", "exec"), names)
    return names


def test_the_programs_of_the_page_emit_turnovers() -> None:
    page = of_page()
    sales = [("north", 5, 1_000), Watermark(12_000), ("north", 7, 2_000), ("river", 1, 30_000)]

    def rows(program: Any) -> list[Any]:
        out = Collect()

        def build(env: StreamExecutionEnvironment) -> None:
            pair = Types.ROW_NAMED(["shop", "cents"], [Types.STRING(), Types.LONG()])
            stream = env.from_source(Script(sales), timed(), "sales").map(lambda s: Row(shop=s[0], cents=s[1]), pair)
            program(stream).sink_to(out)

        return run(build)[out]

    def results(program: Any) -> list[tuple[str, int]]:
        return [(row[0], row[1]) for row in rows(program)]

    assert sorted(results(page["turnover"])) == [("north", 12), ("river", 1)]
    assert sorted(tuple(row) for row in rows(page["figures"])) == [
        ("north", 0, 60_000, 2, 12, pytest.approx(0.12)),
        ("river", 0, 60_000, 1, 1, pytest.approx(0.01)),
    ]
    live = results(page["live"])
    assert live[0] == ("north", 5) and live[-1] in (("north", 12), ("river", 1)) and len(live) > 3


def test_the_dashboard_distinguishes_early_final_and_corrected_results() -> None:
    job = runpy.run_path(str(ROOT / "examples" / "dashboard" / "job.py"))
    sales = [job["sale"](index) for index in range(600)]
    out, lost = Collect(), Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        in_time = WatermarkStrategy.for_bounded_out_of_orderness(job["PATIENCE"])
        stamped = in_time.with_timestamp_assigner(lambda sale, _: sale.at_ms)
        told = job["turnover"](env.from_source(Script(sales, type_info=job["SALE"]), stamped, "sales"))
        told.sink_to(out)
        told.get_side_output(job["TOO_LATE"]).sink_to(lost)

    result = run(build, epoch_records=20, parallelism=2)
    stages = [row.stage for row in result[out]]
    assert {"so far", "final", "corrected"} == set(stages)
    last = {(row.shop, row.minute_ms): row.cents for row in result[out]}
    expected: dict[tuple[str, int], int] = {}
    for one in sales:
        place = (one.shop, one.at_ms // 60_000 * 60_000)
        expected[place] = expected.get(place, 0) + one.cents
    assert last == expected and result[lost] == []
