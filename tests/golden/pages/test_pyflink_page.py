"""The programs of docs/start/coming-from-pyflink.md run as printed, and its claims hold."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from millstream.common import Encoder, Row, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink
from millstream.errors import JobFailedError
from millstream.testing import Collect, run

PAGE = Path(__file__).resolve().parents[3] / "docs" / "start" / "coming-from-pyflink.md"


def test_the_programs_of_the_page_run_and_their_claims_hold() -> None:
    names: dict[str, Any] = {"__name__": "coming_from_pyflink"}
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 3
    for block in blocks:
        exec(compile(block, PAGE.name, "exec"), names)
    assert sorted(names["result"][names["out"]]) == [
        ("be", 1), ("be", 2), ("not", 1), ("or", 1), ("to", 1), ("to", 2)
    ]  # fmt: skip


def test_an_out_of_range_number_fails_the_job_as_documented() -> None:
    assert "(2³¹ as an INT) fails the job" in PAGE.read_text(encoding="utf-8")

    def program(env: StreamExecutionEnvironment) -> None:
        env.from_collection([2**31 - 1], Types.INT()).map(lambda n: n + 1, Types.INT()).sink_to(Collect())

    with pytest.raises(JobFailedError, match="2147483648"):
        run(program)


def texts_of_page() -> dict[str, tuple[Any, str]]:
    """The value and its text, by the type, of each row of the page's table."""
    table = PAGE.read_text(encoding="utf-8").partition("| type | value | text |")[2]
    rows = re.findall(r"^\| `?(.+?)`? \| `(.+?)` \| `(.+?)`", table, re.MULTILINE)
    return {kind: (eval(value, {"Row": Row}), text) for kind, value, text in rows}


@pytest.mark.parametrize(
    ("kind", "type_info"),
    [
        ("TUPLE([STRING, INT, BOOLEAN])", Types.TUPLE([Types.STRING(), Types.INT(), Types.BOOLEAN()])),
        ("DOUBLE", Types.DOUBLE()),
        ("LIST(INT)", Types.LIST(Types.INT())),
        ("MAP(STRING, INT)", Types.MAP(Types.STRING(), Types.INT())),
        ("ROW([STRING, BOOLEAN])", Types.ROW([Types.STRING(), Types.BOOLEAN()])),
        ("none", None),
    ],
)
def test_files_contain_the_documented_texts(kind: str, type_info: Any, tmp_path: Path) -> None:
    value, expected = texts_of_page()[kind]

    def program(env: StreamExecutionEnvironment) -> None:
        sink = FileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
        sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        env.from_collection([value], type_info).sink_to(sink.build())

    run(program)
    [part] = tmp_path.glob("part-*")
    assert part.read_text() == f"{expected}\n"
