"""The demo's proof is only worth something if it can fail: it finds what is lost, doubled or foreign."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "examples" / "impressions"
RECORDS = 500


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    """`demo.py` as a module; like a program, it finds `job.py` beside itself."""
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("impressions_demo", FOLDER / "demo.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(FOLDER))


def exact_lines(demo: ModuleType) -> list[str]:
    events = [demo.parse(demo.impression(index)) for index in range(RECORDS)]
    return [demo.with_campaign(event) for event in events if demo.is_human(event)]


def write(folder: Path, name: str, lines: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def test_the_stream_is_the_same_however_often_it_is_read_and_has_bots_in_it(demo: ModuleType) -> None:
    assert [demo.impression(index) for index in range(50)] == [demo.impression(index) for index in range(50)]
    assert 0 < len(exact_lines(demo)) < RECORDS


def test_every_line_once_over_any_files_is_exact(demo: ModuleType, tmp_path: Path) -> None:
    lines = exact_lines(demo)
    write(tmp_path, "part-0.csv", lines[1::2])
    write(tmp_path / "later", "part-1.csv", lines[0::2])
    write(tmp_path / ".staged", "part-2.csv", lines[:9])
    verdict = demo.judge(RECORDS, tmp_path)
    assert verdict.exact and (verdict.lines, verdict.files) == (len(lines), 2)


def test_lost_doubled_and_foreign_lines_are_counted(demo: ModuleType, tmp_path: Path) -> None:
    lines = exact_lines(demo)
    write(tmp_path, "part-0.csv", lines[3:])
    write(tmp_path, "part-1.csv", [*lines[-2:], "nonsense"])
    verdict = demo.judge(RECORDS, tmp_path)
    assert not verdict.exact and (verdict.lost, verdict.doubled, verdict.foreign) == (3, 2, 1)


def test_no_output_at_all_is_not_exact(demo: ModuleType, tmp_path: Path) -> None:
    assert not demo.judge(RECORDS, tmp_path).exact
