"""The SQL client shows results in pages that wait for a key."""

from __future__ import annotations

import io
import os
import pty
import tty
from collections.abc import Iterable, Iterator

import pytest

from millstream.cli.sql_client.screen import Pages, read_key


def pages(keys: Iterable[str], height: int = 4, width: int = 80) -> tuple[Pages, io.StringIO]:
    output, left = io.StringIO(), iter(keys)
    return Pages(output, height, width, lambda: next(left)), output


def shown_lines(output: io.StringIO) -> list[str]:
    text = output.getvalue().replace(Pages.PROMPT, "").replace("\r" + " " * len(Pages.PROMPT) + "\r", "")
    return text.splitlines()


@pytest.mark.parametrize(("keys", "count"), [("q", 3), (" q", 6), ("\rq", 4), ("\r\r q", 8), ("    ", 10)])
def test_a_page_waits_for_a_key(keys: str, count: int) -> None:
    pager, output = pages(keys)
    is_wanted = pager.show(map(str, range(10)))
    assert shown_lines(output) == [str(n) for n in range(count)]
    assert is_wanted == (count == 10)


def test_wrapped_lines_count_with_their_height_on_a_small_terminal() -> None:
    pager, output = pages("q", height=7, width=10)
    assert not pager.show(["x" * 25, "千" * 6, "a\nb", "never seen"])
    assert shown_lines(output) == ["x" * 25, "千" * 6, "a", "b"]


@pytest.mark.skipif(os.name != "posix", reason="terminals of Unix")
def test_an_arrow_is_one_key_and_typed_ahead_input_is_preserved(monkeypatch: pytest.MonkeyPatch) -> None:
    master_fd, terminal_fd = pty.openpty()
    with os.fdopen(terminal_fd, "rb", buffering=0) as keyboard, os.fdopen(master_fd, "wb", buffering=0) as fingers:
        tty.setcbreak(keyboard.fileno())
        monkeypatch.setattr("sys.stdin", keyboard)
        fingers.write(b"\x1b[B\x1bOB q")
        assert [read_key() for _ in range(4)] == ["\x1b[B", "\x1bOB", " ", "q"]
    pager, output = pages(["\x1b[B", "\x1bOB", "q"])
    assert not pager.show(map(str, range(10))) and len(shown_lines(output)) == 5


def test_rows_are_not_fetched_while_a_page_waits() -> None:
    fetched: list[int] = []

    def rows() -> Iterator[str]:
        for number in range(100):
            fetched.append(number)
            yield str(number)

    pager, _ = pages("q")
    pager.show(rows())
    assert len(fetched) <= 5


def test_a_short_result_does_not_prompt() -> None:
    pager, output = pages("")
    assert pager.show(["a", "b"]) and output.getvalue() == "a\nb\n"
