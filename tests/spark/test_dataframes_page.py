"""The programs of docs/connectors/dataframes.md give what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

PAGE = Path(__file__).resolve().parents[2] / "docs" / "connectors" / "dataframes.md"


def test_frames_go_in_and_out_as_the_page_shows(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for program in re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        program = program.replace('f"totals/', f'f"{tmp_path}/totals/')  # the JVM may have begun in another folder
        exec(compile(program, "dataframes.md", "exec"), {"__name__": "__main__"})
    [written] = (tmp_path / "totals").iterdir()
    rows = [tuple(row) for row in spark.read.parquet(str(written)).collect()]
    assert sorted(rows) == [("ann", 30), ("ann", 50), ("bo", 5)]
    assert [line.split() for line in capfd.readouterr().out.splitlines()[-3:]] == [
        ["ad", "ms"],
        ["0", "a", "430"],
        ["1", "b", "40"],
    ]
