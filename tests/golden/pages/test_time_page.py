"""docs/datastream/time.md: watermarks over several files are assigned at the source, with the page's figures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from millstream.datastream import StreamExecutionEnvironment
from millstream.testing import Collect, run

PAGE = Path(__file__).resolve().parents[3] / "docs" / "datastream" / "time.md"
NINE_MS = 1_000_000_000 * 1000
CLICKS_PER_FILE = 3_000


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The definitions of the section, in a folder with its four files: an hour's clicks in each, in order."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "clicks").mkdir()
    for hour in range(4):
        times = [NINE_MS + hour * 3_600_000 + at * 3_600_000 // CLICKS_PER_FILE for at in range(CLICKS_PER_FILE)]
        lines = "".join(f"{at_ms},page-{at_ms % 7}\n" for at_ms in times)
        (tmp_path / "clicks" / f"{9 + hour:02}.txt").write_text(lines)
    names: dict[str, Any] = {}
    section = PAGE.read_text(encoding="utf-8").partition("## Watermarks over several files")[2]
    for block in re.findall(r"```python\n(.*?)```", section.partition("\n## ")[0], re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), names)
    return names


def counts(page: dict[str, Any], program: Any, parallelism: int) -> tuple[int, int]:
    """The number of clicks counted in windows, and of late ones."""
    counted, late = Collect(), Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        minutes = program(env)
        minutes.sink_to(counted)
        minutes.get_side_output(page["TOO_LATE"]).sink_to(late)

    result = run(build, parallelism=parallelism, epoch_records=500)
    return sum(row.clicks for row in result[counted]), len(result[late])


@pytest.mark.parametrize("parallelism", [1, 2, 4])
def test_watermarks_assigned_at_the_source_make_nothing_late(page: dict[str, Any], parallelism: int) -> None:
    assert counts(page, page["right"], parallelism) == (12_000, 0)


def test_watermarks_assigned_after_a_map_make_the_documented_number_late(page: dict[str, Any]) -> None:
    told = re.search(r"yet ([\d,]+) of the 12,000 clicks go to the late output", PAGE.read_text(encoding="utf-8"))
    counted, late = counts(page, page["wrong"], parallelism=2)
    assert counted + late == 12_000
    assert told is not None and late == int(told.group(1).replace(",", ""))
