"""The program of docs/operate/queries.md, run as printed, for tests of its queries."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from millstream.common import Row, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.testing import EPOCH, Script, run

__all__ = ["run_queries_page"]

_PAGE = Path(__file__).resolve().parents[2] / "docs" / "operate" / "queries.md"
_CLICKS = [Row(user="ann", at=5, cents=30), Row(user="ann", at=9, cents=20), EPOCH, Row(user="bo", at=9, cents=1)]


def run_queries_page(store: str) -> dict[str, Any]:
    """Run one epoch of its program in an in-memory store; returns all definitions of the page."""
    page: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", _PAGE.read_text(), re.DOTALL):
        exec(compile(block, "queries.md", "exec"), page)

    def build(env: StreamExecutionEnvironment) -> None:
        strategy = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda click, _: click["at"])
        stream = env.add_source(Script(_CLICKS, type_info=page["CLICK"]))
        page["program"](stream.assign_timestamps_and_watermarks(strategy))

    run(build, store=store, epochs=1)
    return page
