"""The programs of docs/connectors/files.md run as printed, and write what the page claims."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Row
from millstream.datastream import StreamExecutionEnvironment
from millstream.testing import Collect, run

PAGE = Path(__file__).resolve().parents[3] / "docs" / "connectors" / "files.md"


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The definitions of the page, in a folder with its files."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs" / "_hidden").mkdir(parents=True)
    (tmp_path / "logs" / "a.txt").write_text("WARN it  smokes\nINFO all well\n")
    (tmp_path / "logs" / "_hidden" / "b.txt").write_text("not read\n")
    (tmp_path / "sales.csv").write_text('shop,cents\nnorth,120\n"river, left",40\n"river\nright",100\n')
    (tmp_path / "sales.json").write_text('{"shop": "north", "cents": 60}\nnothing\n{"shop": "river", "cents": 20}\n')
    names: dict[str, Any] = {}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        exec(compile(block, PAGE.name, "exec"), names)
    return names


def files(folder: str) -> dict[str, str]:
    """The files a reader sees, by folder."""
    visible = [path for path in Path("out", folder).rglob("*") if path.is_file() and "/." not in path.as_posix()]
    return {path.parent.relative_to(f"out/{folder}").as_posix(): path.read_text() for path in visible}


def collected(program: Any, epochs: int | None = None) -> list[Any]:
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        program(env).sink_to(out)

    return run(build, epochs=epochs)[out]


def test_lines_are_read_from_the_visible_files_of_a_folder(page: dict[str, Any]) -> None:
    assert collected(page["read_lines"]) == ["WARN it  smokes", "INFO all well"]
    assert collected(page["watch_lines"], epochs=1) == ["WARN it  smokes", "INFO all well"]


def test_lines_are_written_into_the_folder_of_the_hour(page: dict[str, Any]) -> None:
    run(page["write_lines"])
    [(hour, text)] = files("lines").items()
    assert re.fullmatch(r"\d{4}-\d\d-\d\d--\d\d", hour) and text == "WARN IT  SMOKES\nINFO ALL WELL\n"


def test_folders_and_names_are_configurable(page: dict[str, Any]) -> None:
    run(page["write_by_level"])
    assert files("levels") == {"warn": "WARN it  smokes\n", "info": "INFO all well\n"}
    assert all(re.fullmatch(r"log-.*\.txt", path.name) for path in Path("out/levels").glob("*/*.*"))


def test_an_encoder_defines_the_bytes(page: dict[str, Any]) -> None:
    run(page["write_tabbed"])
    assert list(files("tabbed").values()) == ["WARN\tit\tsmokes\nINFO\tall\twell\n"]


def test_csv_is_read_and_written_with_its_header(page: dict[str, Any]) -> None:
    run(page["csv_to_csv"])
    [text] = files("csv").values()
    assert [line.strip('"') for line in text.splitlines()] == ["shop,cents", "north,120", "river", 'right",100']


def test_json_is_read_and_written_by_lines(page: dict[str, Any]) -> None:
    run(page["json_to_json"])
    assert files("json") == {".": '{"shop":"north","cents":120}\n{"shop":"river","cents":40}\n'}


def test_parquet_is_written_and_read(page: dict[str, Any]) -> None:
    run(page["write_parquet"])
    assert collected(page["read_parquet"]) == [Row(shop="north", cents=120), Row(shop="river", cents=40)]


def test_avro_and_orc_are_written_and_read(page: dict[str, Any]) -> None:
    run(page["write_avro_and_orc"])
    rows = [Row(shop="north", cents=120), Row(shop="river", cents=40)]
    assert sorted(collected(page["read_avro_and_orc"]), key=str) == sorted(rows + rows, key=str)


def test_small_files_are_compacted_before_publishing(page: dict[str, Any]) -> None:
    run(page["write_few_files"], epoch_records=1)
    assert files("few") == {".": "WARN it  smokes\nINFO all well\n"}
    assert len([path for path in Path("out/few").iterdir() if path.name.startswith("part-")]) == 1
