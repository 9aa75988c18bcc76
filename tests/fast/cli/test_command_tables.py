"""Tables in a terminal: a row occupies one line at any terminal width."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from rich.cells import cell_len

from millstream.cli.tables import aligned_text, print_table

HEADINGS = ("job", "id", "status", "records", "store")
ROWS = [
    ("clicks", "0123abcd", "FAILED: 'Parse' failed: ZeroDivisionError: integer division or modulo by zero", "1", "a"),
    ("orders of the day\nand more", "4567cdef", "RUNNING", "1,234,567", "/very/long/folder/of/stores/that/goes/on/b"),
    ("注文", "89abcdef", "FINISHED", "12", "s3://bucket/with/a/long/name/clicks"),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def printed_table(columns: int, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("TERM", "xterm-256color")
    screen = Terminal()
    texts, optional = ("job", "status", "store"), ("id", "records")
    print_table(HEADINGS, ROWS, screen, right=("records",), texts=texts, optional=optional, styles={"job": "bold"})
    return re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()).splitlines()


@pytest.mark.parametrize("columns", [50, 60, 80, 120, 200])
def test_no_row_of_a_table_wraps(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    heading, *rows = printed_table(columns, monkeypatch)
    assert heading.split()[0] == "job" and len(rows) - len(ROWS) in (0, 1)
    assert all(cell_len(line) < columns for line in (heading, *rows[: len(ROWS)]))
    assert [row.split()[0][:2] for row in rows[: len(ROWS)]] == ["cl", "or", "注文"]


def test_truncation_is_marked_and_numbers_are_never_truncated(monkeypatch: pytest.MonkeyPatch) -> None:
    narrow, wide = printed_table(48, monkeypatch), printed_table(120, monkeypatch)
    assert "1,234,567" in wide[2] and not any("no room for" in line for line in wide)
    assert "(no room for: id" in narrow[-1]
    assert "1,234,567" in narrow[2] or "records" in narrow[-1]
    assert "…" in narrow[1]


def test_a_pipe_receives_the_complete_table(tmp_path: Path) -> None:
    screen = io.StringIO()
    print_table(HEADINGS, ROWS, screen, right=("records",), texts=("store",), optional=("id",))
    assert all(cell.replace("\n", " ") in screen.getvalue() for row in ROWS for cell in row)


def test_control_characters_in_names_do_not_break_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [("clicks\tof\r\nthe day", "7"), ("a\x1b[2J\x07b\u2028", "1,200"), ("注文👍", "12")]
    monkeypatch.setenv("COLUMNS", "60")
    screen = Terminal()
    print_table(("job", "records"), rows, screen, right=("records",), texts=("job",))
    in_a_terminal = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue()).splitlines()
    in_a_pipe = aligned_text(("job", "records"), rows, ("records",)).splitlines()
    for heading, *lines in (in_a_terminal, in_a_pipe):
        assert len(lines) == len(rows) and all(line.isprintable() for line in lines)
        assert {cell_len(line) for line in lines} == {cell_len(heading)}
