"""The program and the questions of docs/queries.md run as they are printed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from millstream.common import Row, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.testing import EPOCH, Script, run

PAGE = Path(__file__).resolve().parents[2] / "docs" / "queries.md"


def test_the_page_asks_what_its_program_keeps() -> None:
    page: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, "queries.md", "exec"), page)
    clicks = [Row(user="ann", at=5, cents=30), Row(user="ann", at=9, cents=20), EPOCH, Row(user="bo", at=9, cents=1)]

    def build(env: StreamExecutionEnvironment) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda click, _: click["at"])
        stream = env.add_source(Script(clicks, type_info=page["CLICK"]))
        page["program"](stream.assign_timestamps_and_watermarks(strategy))

    run(build, store="test-queries-page", epochs=1)
    told = page["about"]("memory://test-queries-page", "ann")
    assert told.pop("epoch") >= 1
    assert told == {"clicks": 2, "last": Row(user="ann", at=9, cents=20), "hours": [(0, 3_600_000, 50)]}
