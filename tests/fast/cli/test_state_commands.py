"""`millstream state` and `millstream verify`: what they print, and the exit codes scripts rely on."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json
from functools import cache
from typing import Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from millstream.cli.main import app
from millstream.cli.state import key_from_text, show_catalog, show_difference, show_rows
from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import ProgramError
from millstream.storage import open_store
from millstream.testing import EPOCH, Collect, ManualClock, Script, run

STORE = "memory://test-state-commands"


@cache
def store() -> str:
    pair = Types.TUPLE([Types.STRING(), Types.LONG()])

    def build(env: StreamExecutionEnvironment) -> None:
        pairs = env.add_source(Script([("a", 1), ("b", 2), EPOCH, ("a", 5), ("c", 7)], type_info=pair))
        pairs.key_by(0).sum(1).uid("sums").name("sum up").sink_to(Collect())

    run(build, store=STORE.removeprefix("memory://"), clock=ManualClock(1_000), job_name="sums of words")
    return STORE


def printed(show: Any, *args: Any, **options: Any) -> str:
    screen = io.StringIO()
    assert show(*args, **options, screen=screen) == 0
    return screen.getvalue()


def test_ls_names_operators_states_types_and_sizes() -> None:
    text = printed(show_catalog, f"{store()}@2", as_json=False, now_ms=13_000)
    first, headings, row = text.splitlines()
    assert first == "job 'sums of words', epoch 2, DRAINED, committed 12 s ago"
    assert headings.split() == ["operator", "uid", "state", "kind", "key", "value", "rows", "size", "files"]
    assert row.startswith("sum up    sums  result  value  string  struct<f0: string, f1: int64>     4")
    [told] = map(json.loads, printed(show_catalog, f"{store()}@2", as_json=True).splitlines())
    assert (told["operator"], told["uid"], told["name"], told["segments"]) == ("sum up", "sums", "result", 2)


def test_show_prints_rows_as_text_json_and_csv() -> None:
    rows = printed(show_rows, f"{store()}@1", "sums", "result").splitlines()
    assert rows[0].split() == ["key", "value"]
    assert sorted(rows[1:]) == ['a    {"f0": "a", "f1": 1}', 'b    {"f0": "b", "f1": 2}']
    as_json = [json.loads(line) for line in printed(show_rows, store(), "sum up", "result", as_json=True).splitlines()]
    assert {row["key"]: row["value"]["f1"] for row in as_json} == {"a": 6, "b": 2, "c": 7}
    as_csv = list(csv.DictReader(io.StringIO(printed(show_rows, store(), "sums", "result", as_csv=True))))
    assert {row["key"]: json.loads(row["value"])["f1"] for row in as_csv} == {"a": 6, "b": 2, "c": 7}


def test_show_finds_one_key_and_says_when_there_are_more_rows(capsys: pytest.CaptureFixture[str]) -> None:
    [line] = printed(show_rows, store(), "sums", "result", key="c", as_json=True).splitlines()
    assert json.loads(line)["value"] == {"f0": "c", "f1": 7}
    assert len(printed(show_rows, store(), "sums", "result", limit=1).splitlines()) == 2
    assert "(1 rows shown; there are more" in capsys.readouterr().err


def test_diff_counts_by_state_or_prints_rows() -> None:
    headings, row = printed(show_difference, f"{store()}@1", f"{store()}@2", None, None).splitlines()
    assert headings.split() == ["operator", "uid", "state", "added", "removed", "changed"]
    assert row.split() == ["sum", "up", "sums", "result", "1", "0", "1"]
    lines = printed(show_difference, f"{store()}@1", f"{store()}@2", "sums", "result", as_json=True).splitlines()
    changes = {row["key"]: (row["change"], row["before"], row["after"]) for row in map(json.loads, lines)}
    assert changes == {
        "a": ("changed", {"f0": "a", "f1": 1}, {"f0": "a", "f1": 6}),
        "c": ("added", None, {"f0": "c", "f1": 7}),
    }
    assert printed(show_difference, f"{store()}@2", f"{store()}@2", "sum up", None) == "no state has changed\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["state", "show", STORE, "smus", "result"], 2, "Did you mean 'sums'?"),
        (["state", "show", STORE, "sums", "resutl"], 2, "Did you mean 'result'? It has: 'result'."),
        (["state", "diff", f"{STORE}@1", f"{STORE}@2", "smus"], 2, "has no operator 'smus'"),
        (["state", "ls", "memory://test-state-commands-none"], 2, "contains neither a job nor a savepoint"),
        (["state", "ls", f"{STORE}@99"], 2, "has no epoch 99"),
        (["verify", "memory://test-state-commands-none"], 2, "contains neither a job nor a savepoint"),
        (["verify", STORE], 0, "3 of 3 epochs are whole"),
        (["verify", STORE, "--json"], 0, '"whole": true'),
    ],
)
def test_the_command_line_answers_with_an_exit_code(arguments: list[str], code: int, said: str) -> None:
    store()
    result = CliRunner().invoke(app, arguments)
    assert (result.exit_code, said in result.output) == (code, True), result.output


def test_damage_is_exit_code_1() -> None:
    place = open_store(store())
    [file, *_] = place.list("segments")
    data = place.get(file)
    place.put(file, data[:-3])
    try:
        for arguments in (["verify", STORE], ["state", "show", STORE, "sums", "result"]):
            result = CliRunner().invoke(app, arguments)
            assert result.exit_code == 1 and file in result.output
    finally:
        place.put(file, data)


def test_keys_are_typed_as_the_state_has_them() -> None:
    def key(kind: pa.DataType, text: str) -> Any:
        return key_from_text(pa.field("key", kind), text)

    assert key(pa.float64(), "1.5") == 1.5 and key(pa.bool_(), "True") is True and key(pa.binary(), "x") == b"x"
    assert key(pa.date32(), "2026-11-15") == dt.date(2026, 11, 15)
    assert key(pa.struct({"a": pa.int64()}), '{"a": 1}') == {"a": 1}
    several = pa.field("key", pa.binary(), metadata={"millstream.encoding": "key"})
    assert key_from_text(several, "(1, 'x')") == (1, "x") and key_from_text(several, "plain") == "plain"
    with pytest.raises(ProgramError, match="--key 'x' is not of type int64"):
        key(pa.int64(), "x")
