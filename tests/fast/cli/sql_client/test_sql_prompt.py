"""The prompt of the SQL client: what is completed, coloured, taken for a whole statement, and kept in the history."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from millstream.cli.sql_client import prompt
from millstream.cli.sql_client.colours import styled
from millstream.cli.sql_client.completion import KnownNames, suggestions

NAMES = KnownNames(
    {"bid": ["auction", "price", "select"], "bidder": ["id"], "my table": ["a"]},
    {"PRINTF": "PRINTF(format, …)", "POSITION": "POSITION(part IN text)"},
    ["SELECT", "FROM", "PRIMARY"],
)


@given(st.text(alphabet="SELECT FROM'`-/*+ab1.5\n", max_size=40))
def test_coloured_pieces_are_the_text(text: str) -> None:
    assert "".join(piece for _, piece in styled(text)) == text


class RecordingClient:
    """A client that notes what it is told."""

    has_quit = False

    def __init__(self) -> None:
        self.statements: list[str] = []

    def names(self) -> KnownNames:
        return NAMES

    def run_statement(self, text: str, place: str | None = None) -> bool:
        self.statements.append(text)
        self.has_quit = text.lower() == "quit"
        return "wrong" not in text


def typed(keys: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> RecordingClient:
    monkeypatch.setenv("XDG_STATE_HOME", str(folder))
    client = RecordingClient()
    with create_pipe_input() as keyboard, create_app_session(input=keyboard, output=DummyOutput()):
        keyboard.send_text(keys)
        prompt.converse(client)  # type: ignore[arg-type]
    return client


def test_what_stands_behind_the_cursor_counts_and_the_menu_tells_more() -> None:
    names = prompt._Names(lambda: NAMES)
    whole = Document("SELECT b.pri FROM bid AS b", len("SELECT b.pri"))
    (found,) = names.get_completions(whole, CompleteEvent())
    assert (found.text, found.start_position, found.display_meta_text) == ("price", -3, "column of b")


def test_a_statement_is_typed_over_several_lines(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    client = typed("SELECT 1,\r  ';'\r;\rquit\r", monkeypatch, tmp_path)
    assert client.statements == ["SELECT 1,\n  ';'", "quit"]


def test_statements_behind_one_that_fails_are_not_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    client = typed("SELECT 1; SELECT wrong; SELECT 3;\rquit;\r", monkeypatch, tmp_path)
    assert [statement.strip() for statement in client.statements] == ["SELECT 1", "SELECT wrong", "quit"]


def test_ctrl_c_drops_what_was_typed_and_ctrl_d_leaves(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    client = typed("SELECT what\x03SELECT 2;\r\x04", monkeypatch, tmp_path)
    assert client.statements == ["SELECT 2"]


def test_history_is_kept_for_the_user_alone_and_without_secrets(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    typed("SELECT 5;\rSET 'properties.sasl.password' = 'hush';\rquit\r", monkeypatch, tmp_path)
    path = prompt.history_path()
    assert path.is_relative_to(tmp_path) and path.stat().st_mode & 0o077 == 0
    assert "SELECT 5;" in path.read_text() and "hush" not in path.read_text()


def test_where_no_history_can_be_kept_statements_are_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "millstream").write_text("a file where the folder should be")
    assert typed("SELECT 5;\rquit\r", monkeypatch, tmp_path).statements == ["SELECT 5", "quit"]
    assert "is not saved" in capsys.readouterr().out


@pytest.mark.parametrize(
    "text",
    ["SELECT '" + "x" * 300_000 + "' FROM bid WHERE p", "SELECT * FROM (" * 500 + "p", "SELECT " + "p, " * 5_000 + "p"],
    ids=["a long text", "queries in queries", "many columns"],
)
def test_long_statements_are_completed(text: str) -> None:
    assert "price" in [each.text for each in suggestions(text, KnownNames({"bid": ["auction", "price"]}))]
