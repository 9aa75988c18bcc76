"""The live dashboard of examples/dashboard: early results, final ones and corrections, of scripted sales."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Row
from millstream.datastream import StreamExecutionEnvironment
from millstream.testing import CRASH, EPOCH, Collect, Result, Script, Watermark, run

JOB = runpy.run_path(str(Path(__file__).resolve().parents[2] / "examples" / "dashboard" / "job.py"))


def dashboard_lines(*items: Any, parallelism: int = 1) -> Result:
    def build(env: StreamExecutionEnvironment) -> None:
        dashboard_lines = JOB["turnover"](
            env.from_source(Script(items, type_info=JOB["SALE"]), JOB["in_time"](), "sales")
        )
        dashboard_lines.sink_to(Collect("told"))
        dashboard_lines.get_side_output(JOB["TOO_LATE"]).sink_to(Collect("lost"))

    return run(build, parallelism=parallelism)


def north(at_s: float, cents: int) -> Row:
    return Row(shop="north", cents=cents, at_ms=int(at_s * 1_000))


def stages(result: Result) -> list[tuple[int, str]]:
    """The stages emitted for the first minute."""
    return [(row.cents, row.stage) for row in result["told"] if row.minute_ms == 0]


def test_a_minute_is_emitted_every_ten_seconds_then_final_then_corrected() -> None:
    result = dashboard_lines(
        north(3, 100), Watermark(9_999), north(4, 50), Watermark(10_000),
        north(15, 200), Watermark(20_000),
        north(59, 1), Watermark(59_999),
        north(58, 10), EPOCH, north(70, 5), Watermark(89_998),
        north(2, 3), Watermark(90_000),
        north(1, 1_000), EPOCH,
    )  # fmt: skip
    assert stages(result) == [
        (150, "so far"), (350, "so far"), (351, "final"), (361, "corrected"), (364, "corrected"),
    ]  # fmt: skip
    assert result["lost"] == [north(1, 1_000)]


def test_an_unchanged_result_is_not_emitted_again_except_as_final() -> None:
    result = dashboard_lines(north(3, 100), Watermark(10_000), north(61, 1), Watermark(45_000), north(62, 1), EPOCH)
    assert stages(result) == [(100, "so far"), (100, "final")]


def test_nothing_is_emitted_for_a_minute_before_its_first_ten_seconds() -> None:
    assert stages(dashboard_lines(north(3, 100), Watermark(9_999), north(65, 1), EPOCH)) == [(100, "final")]


def test_a_late_sale_that_changes_no_turnover_is_no_correction() -> None:
    result = dashboard_lines(north(3, 100), Watermark(59_999), north(4, 0), EPOCH, north(61, 1), Watermark(62_000))
    assert stages(result) == [(100, "final")]


@pytest.mark.parametrize("parallelism", [1, 2])
def test_the_newest_line_of_every_shop_and_minute_is_correct_through_crashes(parallelism: int) -> None:
    sales = [JOB["sale"](index) for index in range(1_700)]
    items: list[Any] = []
    for index, sale in enumerate(sales):
        items += [CRASH] if index in (333, 1_111) else []
        items += [sale, EPOCH] if index % 50 == 49 else [sale]
    result = dashboard_lines(*items, parallelism=parallelism)
    assert result.restarts == 2
    assert {row.stage for row in result["told"]} == {"so far", "final", "corrected"}
    lost = result["lost"]
    assert sorted(sale.at_ms for sale in lost) == [sales[index].at_ms for index in (799, 1_599)]
    expected: dict[tuple[str, int], int] = {}
    for sale in sales:
        if sale not in lost:
            place = (sale.shop, sale.at_ms // 60_000 * 60_000)
            expected[place] = expected.get(place, 0) + sale.cents
    assert {(row.shop, row.minute_ms): row.cents for row in result["told"]} == expected


def test_lines_contain_the_minute_the_shop_the_amount_and_the_stage() -> None:
    assert JOB["line"](Row(shop="north", minute_ms=3_660_000, cents=12_345, stage="final")) == (
        "01:01  north       123.45  final"
    )
    assert JOB["lost_line"](north(61, 463)) == "00:01  north         4.63"
