"""docs/start/tutorial.md without Spark: its test passes, and its changed program resumes the state of the first.

Its commands run in tests/spark/test_tutorial.py.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import cloudpickle
import pytest

from millstream import query
from millstream.common import Row
from millstream.datastream import StreamExecutionEnvironment
from millstream.testing import Collect, Script, run

PAGE = Path(__file__).resolve().parents[3] / "docs" / "start" / "tutorial.md"


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, ModuleType]]:
    """The programs of the page that can be imported, saved under the names the page uses."""
    monkeypatch.syspath_prepend(str(tmp_path))
    for program in re.findall(r"```python\n(# .*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        (tmp_path / program.partition("\n")[0].removeprefix("# ")).write_text(program, encoding="utf-8")
    modules = {name: importlib.import_module(name) for name in ("views", "views2", "test_views")}
    for module in modules.values():
        cloudpickle.register_pickle_by_value(module)
    yield modules
    for name, module in modules.items():
        cloudpickle.unregister_pickle_by_value(module)
        del sys.modules[name]


def test_the_test_of_the_page_passes(programs: dict[str, ModuleType]) -> None:
    programs["test_views"].test_views_are_numbered_per_ad_also_through_a_crash()


def test_the_changed_program_resumes_the_state_of_the_first(programs: dict[str, ModuleType]) -> None:
    views, out = programs["views"], Collect()
    script = Script([Row("ad-1", 120), Row("ad-2", 40), Row("ad-1", 310), Row("ad-1", 500)], type_info=views.VIEW)

    def numbered(count: Any, epochs: int | None = None) -> list[Any]:
        def build(env: StreamExecutionEnvironment) -> None:
            views.program(env.add_source(script).uid("views"), count).sink_to(out).uid("out")

        return run(build, store="tutorial-page", epoch_records=3, epochs=epochs)[out]

    assert numbered(views.Count(), epochs=1) == ["ad-1 view 1", "ad-1 view 2"]
    assert numbered(programs["views2"].CountAndTime()) == ["ad-1 view 3, 500 ms"]
    assert query.open("memory://tutorial-page").newest().get("views-per-ad", "ad-1") == 3
