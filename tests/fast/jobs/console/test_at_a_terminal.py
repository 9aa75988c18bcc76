"""The console at a terminal: at 80×24 and 120×40, in terminals of both kinds, while their windows are resized.

The screenshots are in `captures`, one file each, and were reviewed by eye; a changed screenshot is a changed file. To
rewrite them for a new review: MILLSTREAM_CAPTURES=write pytest tests/fast/jobs/console/test_at_a_terminal.py
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from screens.terminal import Screen, Terminal

ROOT = Path(__file__).resolve().parents[4]
CAPTURES = Path(__file__).parent / "captures"

STEPS = ((24, 60), (24, 100), (12, 100), (40, 120), (40, 61), (20, 61), (24, 80), (24, 50), (24, 80), (23, 52))
STEPS += ((24, 80),)
PROGRAM = """
import sys
from millstream.jobs.console.console import attach_console
from millstream.jobs.epochs.progress import JobProgress, OperatorProgress, ProgressBoard

names = "Source: impressions", "parse", "without bots", "number per ad", "windows per ad", "files", "closed", "filling"
operators = {n: OperatorProgress(n, 412_330 - i, 371_022 - i, i / 10) for i, n in enumerate(names)}
board = ProgressBoard(JobProgress(
    "impressions", "j1", "file:///home/ann/work/.millstream/impressions", status="RUNNING", epoch=1041, published=1040,
    epoch_ms=118.4, records_in=412_330, records_out=371_022, watermark_ms=58_500, state_bytes=1536, state_rows=1200,
    query_url="http://127.0.0.1:38671", operators=operators,
))
print("$ before the job")
console = attach_console(board, sys.argv[1], sys.stderr, now_ms=lambda: 60_000)
printed = 0
for command, argument in map(str.split, sys.stdin):
    if command == "print":
        for printed in range(printed + 1, printed + int(argument) + 1):
            print(f"line {printed} of the program")
    elif command == "fail":
        board.change(last_error=f"ValueError: {argument}")
    elif command == "notice":
        console.notice(argument)
    else:
        board.change(status="FINISHED")
        break
console.close()
print("after the job")
"""


@contextmanager
def job(mode: str, rows: int, columns: int, *, breaks_rows: bool = True) -> Iterator[Terminal]:
    # The name by which xterm announces that it truncates rows.
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), **({} if breaks_rows else {"XTERM_VERSION": "390"})}
    command = [sys.executable, "-c", PROGRAM, mode]
    terminal = Terminal(
        command, rows=rows, columns=columns, breaks_rows=breaks_rows, echoes=False, environment=environment
    )
    try:
        yield terminal
    finally:
        terminal.close()


def print_lines(terminal: Terminal, count: int, last: int) -> None:
    """Let the program print until its line is visible with the console below it."""
    terminal.type(f"print {count}")
    terminal.read_until(lambda screen: f"line {last} of the program" in screen.text and is_whole(screen))


def panel(screen: Screen) -> list[str]:
    """The rows of the panel, of which there is one, without fragments of another."""
    (top,) = (at for at, line in enumerate(screen.lines) if line.startswith("╭"))
    (bottom,) = (at for at, line in enumerate(screen.lines) if line.startswith("╰"))
    assert [at for at, line in enumerate(screen.lines) if line.startswith("│")] == [*range(top + 1, bottom)]
    return screen.lines[top : bottom + 1]


def is_whole(screen: Screen) -> bool:
    """Whether the output ends with a complete panel of the screen's width, or a line."""
    last = screen.text.rpartition("\n")[2]
    return (last.startswith("╰") and len(last) == screen.columns - 1) or last.startswith("impressions RUNNING")


def matches(name: str, screen: Screen) -> None:
    """The screen equals the reviewed screenshot."""
    edge = f"+{'-' * screen.columns}+"
    picture = "\n".join([edge, *(f"|{line:{screen.columns}}|" for line in screen.lines), edge, ""])
    file = CAPTURES / f"{name}.txt"
    if os.environ.get("MILLSTREAM_CAPTURES") == "write":
        file.write_text(picture, encoding="utf-8")
    assert picture == file.read_text(encoding="utf-8")


@pytest.mark.parametrize(("rows", "columns"), [(24, 80), (40, 120)])
def test_the_panel_takes_half_of_the_screen_and_leaves_the_rest_to_the_program(rows: int, columns: int) -> None:
    with job("rich", rows, columns) as terminal:
        print_lines(terminal, 50, last=50)
        assert len(panel(terminal.screen)) <= rows // 2
        assert sum("of the program" in line for line in terminal.screen.lines) >= rows // 2
        matches(f"panel-{columns}x{rows}", terminal.screen)
        terminal.type("fail broken")
        terminal.read_until("last error  ValueError: broken")
        assert len(panel(terminal.screen)) <= rows // 2
        matches(f"panel-{columns}x{rows}-error", terminal.screen)
        terminal.type("finish now")
        assert terminal.read_to_end() == 0
        assert "● FINISHED" in panel(terminal.screen)[0] and terminal.screen.text.endswith("after the job")
        assert [f"line {n} of the program" for n in range(1, 51)] == [
            line for line in terminal.screen.all_text.splitlines() if line.startswith("line ")
        ]


@pytest.mark.slow
@pytest.mark.parametrize("breaks_rows", [True, False], ids=["rows are broken", "rows are cut"])
@pytest.mark.parametrize("mode", ["rich", "line"])
def test_resizing_leaves_no_fragments(mode: str, breaks_rows: bool) -> None:
    """By steps of at most half of the width or height: a console of half the screen stays visible then, however a
    terminal wraps its rows.
    """
    with job(mode, 24, 80, breaks_rows=breaks_rows) as terminal:
        print_lines(terminal, 5, last=5)
        for rows, columns in STEPS:
            terminal.resize(rows, columns)
            terminal.read_until(is_redrawn(mode, rows, columns), timeout_s=30)
        print_lines(terminal, 2, last=7)
        # Each line once, in order, and no console but the visible one; earlier lines of the screen remain.
        console = panel(terminal.screen) if mode == "rich" else [terminal.screen.text.splitlines()[-1]]
        lines = [f"line {n} of the program" for n in range(1, 8)]
        assert terminal.screen.all_text.splitlines() == ["$ before the job", *lines, *console]
        matches(f"{mode}-after-resizing-{'broken' if breaks_rows else 'cut'}", terminal.screen)
        terminal.type("finish now")
        assert terminal.read_to_end() == 0


def is_redrawn(mode: str, rows: int, columns: int) -> Callable[[Screen], bool]:
    """Whether the screen has one console, drawn for this size."""

    def is_current(screen: Screen) -> bool:
        if mode == "rich" and (rows - 1) // 2 >= 5:
            frame = [at for at, line in enumerate(screen.lines) if "╭" in line or "╰" in line]
            return is_whole(screen) and len(frame) == 2 and frame[1] - frame[0] < rows // 2
        lines = [line for line in screen.lines if "impressions RUNNING" in line or "in 412,330" in line]
        return len(lines) == 1 and len(lines[0]) < columns and screen.text.endswith(lines[0])

    return is_current


def test_the_line_is_one_row_and_is_erased_at_the_end(tmp_path: Path) -> None:
    with job("line", 24, 80) as terminal:
        print_lines(terminal, 3, last=3)
        matches("line-80x24", terminal.screen)
        terminal.type("notice finishing")
        terminal.read_until("impressions RUNNING 0 s  finishing  epoch 1,041")
        terminal.type("finish now")
        assert terminal.read_to_end() == 0
    lines = [f"line {n} of the program" for n in (1, 2, 3)]
    assert terminal.screen.text.splitlines() == ["$ before the job", *lines, "after the job"]


def test_a_small_terminal_shows_the_line_instead_of_the_panel() -> None:
    with job("rich", 8, 60) as terminal:
        print_lines(terminal, 3, last=3)
        assert terminal.screen.text.splitlines()[-1].startswith("impressions RUNNING")
