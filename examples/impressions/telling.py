"""The demo's screens: answers of the running job, and the verdicts on the files."""

from __future__ import annotations

from collections.abc import Sequence

from asking import Answer, OpenWindow
from job import WINDOW, bar, window_text
from judge import AnswersVerdict, CountVerdict, WindowVerdict
from rich.console import Console, Group
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

# The final screen of the demo, with its proof, fits 24 rows.
WINDOWS_SHOWN = 3

# --- answers --------------------------------------------------------------------------------------------------


def answer_shown(answer: Answer) -> Padding:
    """An answer: its epoch, its age, and each window with its result so far."""
    head = Text.assemble(
        (f"ad {answer.ad}", "bold"), f" as of epoch {answer.epoch}, which is {answer.age_ms / 1000:.1f} s old"
    )
    windows = [window_line(window, answer.watermark_ms) for window in answer.windows]
    return indented(Group(head, *(windows or [Text("no open window: nobody has seen it lately")])))


def indented(what: Text | Group) -> Padding:
    return Padding(what, (0, 0, 0, 4), expand=False)


def window_line(window: OpenWindow, watermark_ms: int) -> Text:
    share = (watermark_ms + 1 - window.start_ms) / WINDOW.to_millis()
    return Text.assemble(
        f"{window_text(window.start_ms)}  {bar(min(1.0, max(0.0, share)))} {'filling' if share < 1 else 'closed '}  ",
        (f"{window.impressions:,} impressions so far", "bold green"),
        f", seen for {window.seen_ms / 1000:.1f} s",
    )


# --- verdicts -------------------------------------------------------------------------------------------------


def window_table(verdict: WindowVerdict) -> Panel:
    """The windows most recently closed, as the files have them."""
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    table.add_column("window", no_wrap=True)
    for name in ("ads", "impressions", "updates", "by late ones", "too late"):
        table.add_column(name, justify="right")
    for window in verdict.windows[-WINDOWS_SHOWN:]:
        counts = (window.ads, window.impressions, window.updates, window.late, window.missing)
        table.add_row(window_text(window.start_ms), *(f"{count:,}" for count in counts))
    return Panel(table, title="[bold]The last windows (UTC), as the files have them", title_align="left")


def show(
    screen: Console,
    records: int,
    count: CountVerdict,
    windows: WindowVerdict,
    answers: AnswersVerdict,
    took_s: float,
    look_around: Sequence[str],
) -> None:
    headline = f"{records:,} records, 1 crash, {count.lost:,} lost, {count.doubled:,} doubled"
    if count.foreign:
        headline += f", {count.foreign:,} lines nobody expected"
    counted = f"{count.ads:,} ads, each counted 1, 2, 3, … without a gap"
    if count.miscounted:
        counted = f"{count.miscounted:,} of {count.ads:,} ads miscounted"
    exact = count.exact and windows.exact and answers.exact
    colour = "green" if exact else "red"
    body = Text.assemble(
        (f"{headline}\n{counted}\n{windows_text(windows)}\n{answers_text(answers)}", f"bold {colour}"),
        f"\n{windows.late:,} late impressions made {windows.updates:,} updates of windows that had closed; "
        f"{windows.dropped:,} came too late and were dropped. {count.lines:,} impressions (the bots are left out) in "
        f"{count.files:,} files, after {took_s:.0f} s in all.",
        ("\n\nLook around:  " + "\n              ".join(look_around), "dim"),
    )
    title = "[bold]Exactly once" if exact else "[bold]NOT exact"
    screen.print(Panel(body, title=title, title_align="left", border_style=colour))


def windows_text(verdict: WindowVerdict) -> str:
    if verdict.wrong:
        return f"{verdict.wrong:,} windows of an ad have a wrong result"
    if verdict.missing != verdict.dropped:
        return (
            f"{verdict.missing:,} impressions are missing in windows, and {verdict.dropped:,} were counted as dropped"
        )
    ads = sum(window.ads for window in verdict.windows)
    return f"{ads:,} windows of an ad, the last result of each right but for what was dropped"


def answers_text(verdict: AnswersVerdict) -> str:
    asked = f"{verdict.before:,} answers before the crash and {verdict.after:,} after it"
    if verdict.gone_back:
        return f"{asked}, {verdict.gone_back:,} of them told less than the one before"
    if verdict.wrong:
        return f"{asked}, {verdict.wrong:,} of them told more than there was in the end"
    return f"{asked}, none of them went back"
