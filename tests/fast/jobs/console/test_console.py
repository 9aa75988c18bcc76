"""The console: its output (golden text), and how it treats the program's streams while it is attached."""

from __future__ import annotations

import io
import logging
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console as RichConsole

from millstream.jobs.console.console import attach_console, console_mode
from millstream.jobs.console.console_view import ConsoleView, RateMeter, plain_line, render, status_line
from millstream.jobs.epochs.progress import JobProgress, OperatorProgress, ProgressBoard

ROOT = Path(__file__).resolve().parents[4]

OPERATORS = {
    "a": OperatorProgress("Source: impressions", 0, 412_330, 0.18),
    "b": OperatorProgress("parse", 412_330, 412_330, 0.72),
    "c": OperatorProgress("files", 371_022, 0, 1.3),
}
RUNNING = JobProgress(
    job_name="impressions",
    job_id="j1",
    store="file:///jobs/impressions",
    status="RUNNING",
    epoch=1041,
    published=1040,
    epoch_ms=118.4,
    records_in=412_330,
    records_out=371_022,
    watermark_ms=58_500,
    state_bytes=1536,
    state_rows=1200,
    restarts=1,
    last_error="ValueError: no number\n  at line 7",
    operators=OPERATORS,
)


def rendered(view: ConsoleView, width: int = 72) -> str:
    screen = io.StringIO()
    RichConsole(file=screen, width=width, color_system=None, legacy_windows=False).print(render(view))
    return screen.getvalue()


def test_the_panel_of_a_running_job() -> None:
    view = ConsoleView(
        RUNNING, now_ms=60_000, elapsed_ms=83_000, in_per_second=12_004, out_per_second=10_803, trail=(0, 5, 10)
    )
    assert (
        rendered(view)
        == """\
╭─ impressions  ● RUNNING ─────────────────────────────────────────────╮
│ in   12,004/s  412,330 total  ▁▅█                                    │
│ out  10,803/s  371,022 total                                         │
│ epoch 1,041 took 118 ms, published up to 1,040, running for 1 min 2… │
│ watermark: 00:00:58 UTC (1.5 s behind)                               │
│ state: 1.5 KiB, 1,200 row versions                                   │
│ restarts 1, store /jobs/impressions                                  │
│                                                                      │
│ operator                                in      out  busy            │
│ Source: impressions                      ·  412,330  ██░░░░░░░░  18% │
│ parse                              412,330  412,330  ███████░░░  72% │
│ files                              371,022        ·  ██████████ 100% │
│                                                                      │
│ last error  ValueError: no number                                    │
╰─ Ctrl-C finishes the epoch, then stops ──────────────────────────────╯
"""
    )


def test_the_panel_of_a_job_before_its_first_epoch() -> None:
    assert (
        rendered(ConsoleView(JobProgress("new", "j1", "s3://bucket/new")))
        == """\
╭─ new  ● CREATED ─────────────────────────────────────────────────────╮
│ in   0/s  0 total                                                    │
│ out  0/s  0 total                                                    │
│ epoch 0 took 0 ms, published up to 0, running for 0.0 s              │
│ watermark: none                                                      │
│ state: 0 B, 0 row versions                                           │
│ store s3://bucket/new                                                │
╰─ Ctrl-C finishes the epoch, then stops ──────────────────────────────╯
"""
    )


def test_a_notice_is_inside_the_panels_frame_and_an_ended_job_offers_no_stop() -> None:
    assert "╰─ finishing epoch 5 ─" in rendered(ConsoleView(RUNNING, notice="finishing epoch 5"))
    ended = rendered(ConsoleView(JobProgress("done", "j1", "x", status="FINISHED")))
    assert "Ctrl-C" not in ended and "● FINISHED" in ended


@pytest.mark.parametrize("width", [20, 40, 72, 200])
def test_the_panel_fits_any_width(width: int) -> None:
    assert all(len(line) <= width for line in rendered(ConsoleView(RUNNING, now_ms=60_000), width).splitlines())


def test_the_plain_form_has_all_fields_in_one_line() -> None:
    line = plain_line(ConsoleView(RUNNING, now_ms=60_000, in_per_second=12_004, out_per_second=10_803))
    assert line == (
        "impressions RUNNING  epoch 1041 (118 ms)  in 412,330 (12,004/s)  out 371,022 (10,803/s)  "
        "watermark 00:00:58 UTC (1.5 s behind)  state 1.5 KiB, 1,200 row versions  restarts 1  "
        "last error: ValueError: no number"
    )


@pytest.mark.parametrize(
    ("watermark_ms", "shown"),
    [
        (-500, "watermark 1969-12-31 23:59:59 UTC (1 min 0 s behind)"),
        (70_000, "watermark 00:01:10 UTC (10 s ahead)"),
        (2**63 - 1, "watermark end of input"),
    ],
)
def test_watermarks_of_another_day_of_the_future_and_of_the_end_are_distinguished(
    watermark_ms: int, shown: str
) -> None:
    progress = JobProgress("clicks", "j1", "jobs/a", watermark_ms=watermark_ms)
    assert plain_line(ConsoleView(progress, now_ms=60_000)).endswith(shown)


def test_the_rate_of_a_resumed_job_excludes_its_earlier_total() -> None:
    meter = RateMeter()
    meter.note(0, 0, 0)
    meter.note(1_000, 30_000, 20_000)
    assert meter.rates() == (0.0, 0.0)
    meter.note(2_000, 30_400, 20_300)
    assert meter.rates() == (400.0, 300.0)


def test_the_rate_of_an_idle_job_falls_to_zero() -> None:
    meter = RateMeter()
    for second in range(3):
        meter.note(second * 1000, 100 + second * 100, 0)
    assert meter.rates()[0] == 100.0
    for second in range(3, 9):
        meter.note(second * 1000, 300, 0)
    assert meter.rates()[0] == 0.0


@pytest.mark.parametrize(
    ("setting", "terminal", "mode"),
    [
        ("auto", True, "line"),
        ("auto", False, "off"),
        ("plain", True, "plain"),
        ("rich", True, "rich"),
        ("rich", False, "plain"),
        ("off", True, "off"),
    ],
)
def test_the_form_depends_on_the_setting_and_the_terminal(setting: str, terminal: bool, mode: str) -> None:
    assert console_mode(setting, terminal) == mode


# --- attached -------------------------------------------------------------------------------------------------


def test_plain_lines_are_printed_on_changes_and_end_with_the_last_state() -> None:
    board, screen = ProgressBoard(JobProgress("clicks", "j1", "x", status="RUNNING")), io.StringIO()
    console = attach_console(board, "plain", screen)
    board.change(status="FINISHED", epoch=3)
    console.close()
    console.close()
    (line,) = screen.getvalue().splitlines()
    assert re.fullmatch(r"\d\d:\d\d:\d\d clicks FINISHED  epoch 3 \(0 ms\)  in 0 \(0/s\)  out 0 \(0/s\)", line)


def test_without_a_console_only_notices_are_shown() -> None:
    board, screen = ProgressBoard(JobProgress("clicks", "j1", "x")), io.StringIO()
    console = attach_console(board, "off", screen)
    board.change(epoch=1)
    console.notice("finishing epoch 2")
    console.close()
    assert screen.getvalue() == "finishing epoch 2\n"


def test_a_panel_does_not_replace_streams_that_are_not_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    board, screen = ProgressBoard(JobProgress("clicks", "j1", "x")), io.StringIO()
    console = attach_console(board, "rich", screen)
    print("to a file")
    console.close()
    assert capsys.readouterr().out == "to a file\n" and "to a file" not in screen.getvalue()


PROGRAM = """
import logging, sys, time
from millstream.jobs.console.console import attach_console
from millstream.jobs.epochs.progress import JobProgress, ProgressBoard
logging.basicConfig(format="LOG %(message)s")
board = ProgressBoard(JobProgress("clicks", "j1", "x", status="RUNNING"))
before = sys.stdout, sys.stderr
console = attach_console(board, "rich", sys.stderr)
for n in range(3):
    print("line", n, "x" * 200)
    sys.stderr.write("half ")
    time.sleep(0.2)
    sys.stderr.write("whole\\n")
    logging.warning("careful %d", n)
print("\\x1b[31mred\\x1b[0m [bold]as is[/bold]")
sys.stdout.write("no newline")
board.change(status="FINISHED", epoch=9)
console.close()
print("after", (sys.stdout, sys.stderr) == before, logging.getLogger().handlers[0].stream is before[1])
"""


def in_a_terminal(program: str) -> str:
    """The output of a program at a terminal of 80 columns."""
    main, other = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "TERM": "xterm", "COLUMNS": "80", "LINES": "40"}
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=other, stdout=other, stderr=other, env=environment
    )
    os.close(other)
    written, deadline = b"", time.monotonic() + 50
    while time.monotonic() < deadline:
        if select.select([main], [], [], 0.2)[0]:
            try:
                written += os.read(main, 65_536)
            except OSError:  # Linux reports a closed other side this way
                break
    os.close(main)
    assert process.wait(10) == 0, written.decode()
    return written.decode().replace("\r\n", "\n")


def test_printed_lines_appear_complete_above_the_panel() -> None:
    written = in_a_terminal(PROGRAM)
    lines, logs = [f"line {n} {'x' * 200}\n" for n in range(3)], [f"LOG careful {n}\n" for n in range(3)]
    for expected in (*lines, *logs, "half whole\n"):
        before, _, after = written.partition(expected)
        assert after, expected
        # The panel is erased (2K clears a terminal's line) before a line is written, so the line never follows the
        # frame.
        assert not before or before.endswith(("\n", "\x1b[2K\x1b[J")), repr(before[-80:] + expected)
    assert written.count("half whole\n") == 3 and "half \n" not in written
    assert "\x1b[31mred\x1b[0m [bold]as is[/bold]\n" in written
    assert "no newline\n" in written
    assert written.rstrip().endswith("after True True")
    panel = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written)
    assert "● RUNNING" in panel and "● FINISHED" in panel[panel.rindex("╭") :]
    assert "\x1b[?25l" not in written, "the cursor is never hidden: a killed job could not restore it"
    assert written.rindex("\x1b[?7h") > written.rindex("\x1b[?7l"), "line wrapping is restored"


def test_other_log_handlers_still_receive_records_while_a_panel_is_shown() -> None:
    handlers = logging.getLogger().handlers[:]
    board = ProgressBoard(JobProgress("clicks", "j1", "x"))
    attach_console(board, "rich", io.StringIO()).close()
    assert logging.getLogger().handlers == handlers


@pytest.mark.parametrize(
    ("behind", "caught_up_in_ms", "shown"),
    [(0, 0, "caught up"), (3_000, None, "3,000 behind, not falling"), (3_000, 61_000, "3,000 behind, caught up in")],
)
def test_the_panel_shows_the_backlog_and_when_the_job_will_have_caught_up(
    behind: int, caught_up_in_ms: int | None, shown: str
) -> None:
    progress = JobProgress("clicks", "j1", "jobs/a", status="RUNNING", behind=behind, caught_up_in_ms=caught_up_in_ms)
    view = ConsoleView(progress)
    assert f"input: {shown}" in rendered(view)
    assert ("behind" in plain_line(view)) == ("behind" in status_line(view, 200)) == bool(behind)
