"""The loops of examples/components and of docs/datastream/loops.md."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest

from millstream.datastream import StreamExecutionEnvironment
from millstream.testing import CRASH, EPOCH, Collect, Script, run

ROOT = Path(__file__).resolve().parents[2]
JOB = runpy.run_path(str(ROOT / "examples" / "components" / "job.py"))


@pytest.mark.parametrize("parallelism", [1, 2])
def test_every_account_ends_in_the_group_of_its_smallest_member(parallelism: int) -> None:
    links = [JOB["link"](index) for index in range(200)]
    items: list[Any] = []
    for index, link in enumerate(links):
        items += [CRASH] if index == 77 else []
        items += [link, EPOCH] if index % 50 == 49 else [link]

    def build(env: StreamExecutionEnvironment) -> None:
        JOB["moves"](env.add_source(Script(items, type_info=JOB["LINK"]))).sink_to(Collect("moves"))

    result = run(build, parallelism=parallelism)
    group: dict[int, int] = {}
    for account, joined, _ in result["moves"]:
        assert joined < group.get(account, account), "an account only ever moves to a smaller one"
        group[account] = joined
    assert group == {account: account - account % 20 for account in range(200) if account % 20}
    assert max(rounds for _, _, rounds in result["moves"]) > 3


def test_lines_contain_the_account_its_group_and_the_rounds() -> None:
    assert JOB["line"]((17, 3, 1)) == "account    17  joins the group of     3  after 1 round"


def test_the_program_of_the_page_counts_collatz_steps() -> None:
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "datastream" / "loops.md").read_text(), re.DOTALL):
        exec(compile(block, "loops.md", "exec"), names)

    def build(env: StreamExecutionEnvironment) -> None:
        names["collatz"](env.add_source(Script([6, 7, EPOCH, 27]))).sink_to(Collect("steps"))

    assert sorted(run(build)["steps"]) == [(6, 8), (7, 16), (27, 111)]
