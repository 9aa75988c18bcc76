"""The console's view of a job, and how it is rendered. Pure: takes a view, returns a panel or a line of text.

Rates are the console's own, over the last seconds: the rate of a single epoch fluctuates too much, and does not drop
when the job is idle.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from millstream.jobs.console.amounts import bytes_text, count_text, epoch_time_text, rate_text, span_text, time_text
from millstream.jobs.console.metric_texts import metric_texts
from millstream.jobs.console.operator_table import operator_table
from millstream.jobs.epochs.progress import JobProgress
from millstream.records.watermarks import MAX_WATERMARK

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table
    from rich.text import Text

__all__ = ["ConsoleView", "RateMeter", "cut", "first_line", "plain_line", "render", "status_line"]

_WINDOW_MS = 3_000
_TRAIL_STEP_MS = 500
_TRAIL_LENGTH = 32
_BARS = "▁▂▃▄▅▆▇█"
_FRAME_ROWS, _FRAME_COLUMNS = 2, 4
# The busiest operators rank between the watermark (4) and the size of the state (6).
_OPERATORS_IMPORTANCE, _OPERATORS_MIN = 5, 3
_METRICS_FIRST = 2
"""The metrics of this many operators rank as high as the operators; others are shown if there is room."""
_STATUS_STYLES = {
    "CREATED": "cyan",
    "RUNNING": "bold green",
    "RESTARTING": "bold yellow",
    "STOPPING": "bold yellow",
    "FAILED": "bold red",
    "CANCELED": "bold red",
    "SUSPENDED": "bold yellow",
    "FINISHED": "bold blue",
}
_ENDED = ("FINISHED", "SUSPENDED", "FAILED", "CANCELED")


@dataclass(frozen=True)
class ConsoleView:
    """A job's progress with the console's own data: the time, how long the console is attached, and its rates."""

    progress: JobProgress
    now_ms: int = 0
    elapsed_ms: int = 0
    in_per_second: float = 0.0
    out_per_second: float = 0.0
    trail: tuple[float, ...] = ()
    notice: str = ""


class RateMeter:
    """Records per second over the last seconds, computed from sampled totals.

    >>> meter = RateMeter()
    >>> for second in range(4):
    ...     meter.note(second * 1000, records_in=second * 50, records_out=second * 10)
    >>> meter.rates()
    (50.0, 10.0)
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int, int]] = deque()
        self._trail: deque[float] = deque(maxlen=_TRAIL_LENGTH)
        self._trail_ms: int | None = None

    def note(self, now_ms: int, records_in: int, records_out: int) -> None:
        """Samples the totals at `now_ms`."""
        if records_in == 0 and not self._seen:
            # A resumed job's first total includes earlier runs, so it only serves as the baseline.
            return
        self._seen.append((now_ms, records_in, records_out))
        while len(self._seen) > 2 and now_ms - self._seen[1][0] >= _WINDOW_MS:
            self._seen.popleft()
        if self._trail_ms is None or now_ms - self._trail_ms >= _TRAIL_STEP_MS:
            self._trail.append(self.rates()[0])
            self._trail_ms = now_ms

    def rates(self) -> tuple[float, float]:
        """Records in and out per second."""
        if len(self._seen) < 2:
            return (0.0, 0.0)
        (start_ms, in_then, out_then), (end_ms, in_now, out_now) = self._seen[0], self._seen[-1]
        seconds = max(end_ms - start_ms, 1) / 1000
        return ((in_now - in_then) / seconds, (out_now - out_then) / seconds)

    @property
    def trail(self) -> tuple[float, ...]:
        """The rate of records in, every half second, oldest first."""
        return tuple(self._trail)


def plain_line(view: ConsoleView, *, with_error: bool = True, with_metrics: bool = True) -> str:
    """The view as one line for logs and pipes, with the last error and the metrics, if any.

    >>> progress = JobProgress("clicks", "j1", "jobs/a", status="RUNNING", epoch=7, epoch_ms=118, records_in=1200)
    >>> plain_line(ConsoleView(progress, in_per_second=400))
    'clicks RUNNING  epoch 7 (118 ms)  in 1,200 (400/s)  out 0 (0/s)'
    """
    progress = view.progress
    parts = [f"{progress.job_name} {progress.status}", *_obstacles(progress)]
    parts.append(f"epoch {progress.epoch} ({epoch_time_text(progress.epoch_ms)})")
    parts.append(f"in {count_text(progress.records_in)} ({rate_text(view.in_per_second)})")
    parts.append(f"out {count_text(progress.records_out)} ({rate_text(view.out_per_second)})")
    if progress.behind:
        parts.append(_behind(progress))
    if progress.watermark_ms is not None:
        parts.append(f"watermark {_watermark(view)}")
    if progress.state_bytes or progress.in_loops:
        parts.append(f"state {_state(progress)}")
    if progress.restarts:
        parts.append(f"restarts {progress.restarts}")
    if with_metrics and (metrics := metric_texts(progress)):
        parts.append(f"metrics {'; '.join(metrics)}")
    if with_error and progress.last_error and not progress.publish_tries and progress.status != "FAILED":
        parts.append(f"last error: {first_line(progress.last_error)}")
    return "  ".join(parts)


def status_line(view: ConsoleView, columns: int) -> str:
    """The view in one terminal row: most important figures first, truncated at the end.

    >>> progress = JobProgress("clicks", "j1", "jobs/a", status="RUNNING", epoch=7, epoch_ms=118, records_in=1200)
    >>> status_line(ConsoleView(progress, elapsed_ms=3_000, in_per_second=400), columns=60)
    'clicks RUNNING 3 s  epoch 7  in 1,200 (400/s)  out 0 (0/s)'
    """
    progress = view.progress
    # Whole seconds: the line changes once a second.
    elapsed = span_text(view.elapsed_ms) if view.elapsed_ms >= 10_000 else f"{view.elapsed_ms // 1000} s"
    parts = [f"{progress.job_name} {progress.status} {elapsed}", *_obstacles(progress)]
    if view.notice:
        parts.append(view.notice)
    if progress.last_error and progress.status != "RUNNING":
        parts.append(f"last error: {first_line(progress.last_error)}")
    parts += [f"epoch {count_text(progress.epoch)}" if progress.epoch else "first epoch"]
    parts.append(f"in {count_text(progress.records_in)} ({rate_text(view.in_per_second)})")
    parts.append(f"out {count_text(progress.records_out)} ({rate_text(view.out_per_second)})")
    if progress.behind:
        parts.append(_behind(progress))
    if progress.watermark_ms is not None:
        parts.append(f"watermark {_watermark(view)}")
    return cut("  ".join(parts), columns)


def cut(text: str, columns: int) -> str:
    """Truncates text to one row. The last column stays free: some terminals wrap after it.

    >>> cut("0123456789", 11), cut("0123456789", 8)
    ('0123456789', '012345…')
    """
    return text if len(text) < columns else text[: max(columns - 2, 0)] + "…"


def render(view: ConsoleView, rows_max: int = 1_000, columns: int = 80) -> RenderableType:
    """The view as a Rich panel of limited size; the least important rows are omitted first.

    People look for the last error and the records in and out; the store's address is known already.
    """
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    progress = view.progress
    style = _STATUS_STYLES.get(progress.status, "white")
    footer = "" if progress.status in _ENDED else view.notice or "Ctrl-C finishes the epoch, then stops"
    return Panel(
        Group(*_body(view, rows_max - _FRAME_ROWS, columns - _FRAME_COLUMNS)),
        title=Text.assemble((progress.job_name, "bold"), "  ", (f"● {progress.status}", style)),
        title_align="left",
        subtitle=Text(footer, "bold yellow" if view.notice else "dim") if footer else None,
        subtitle_align="left",
        border_style=style.removeprefix("bold "),
        padding=(0, 1),
    )


def _body(view: ConsoleView, rows_max: int, columns: int) -> list[RenderableType]:
    """The content of the frame, from top to bottom, in at most `rows_max` rows."""
    from rich.text import Text

    operators = view.progress.operators
    lines = _lines(view)
    left = rows_max
    fitting: list[_Line] = []
    operator_rows = 0
    for line in sorted(lines, key=lambda line: line.importance):
        if line.importance > _OPERATORS_IMPORTANCE and operators and not operator_rows and left > 1:
            operator_rows = min(len(operators), _OPERATORS_MIN, left - 1)
            left -= operator_rows + 1  # and their heading
        if line.rows <= left:
            fitting.append(line)
            left -= line.rows
    more_operators = min(left, len(operators) - operator_rows) if operator_rows else 0
    left -= more_operators
    above = [line.text for line in lines if line in fitting and line.place == "above"]
    below = [line.text for line in lines if line in fitting and line.place == "below"]
    blanks = [Text()] * min(left, bool(operator_rows) + bool(below))  # between the parts, where there is room
    shown = list(operators.values())
    table = [operator_table(shown, operator_rows + more_operators, columns)] if operator_rows else []
    return [
        *above,
        *(blanks[:1] if operator_rows else []),
        *table,
        *(blanks[bool(operator_rows) :] if below else []),
        *below,
    ]


@dataclass(frozen=True)
class _Line:
    """A part of the panel. Parts with the smallest importance number are omitted last."""

    importance: int
    text: RenderableType
    place: Literal["above", "below"] = "above"
    rows: int = 1


def _lines(view: ConsoleView) -> list[_Line]:
    """All possible rows of the panel except the operators, in order."""
    from rich.text import Text

    progress = view.progress

    def line(importance: int, text: Text | str, place: Literal["above", "below"] = "above") -> _Line:
        shown = Text(text) if isinstance(text, str) else text
        shown.no_wrap, shown.overflow = True, "ellipsis"
        return _Line(importance, shown, place)

    epoch = (
        f"epoch {count_text(progress.epoch)} took {epoch_time_text(progress.epoch_ms)}, published up to "
        f"{count_text(progress.published)}, running for {span_text(view.elapsed_ms)}"
    )
    restarts = f"restarts {progress.restarts}, " if progress.restarts else ""
    lines = [_Line(0, _flow(view), rows=2), line(2, epoch), line(4, f"watermark: {_watermark(view)}")]
    lines.append(line(6, f"state: {_state(progress)}"))
    lines += [line(1, Text(obstacle, "yellow")) for obstacle in _obstacles(progress)]
    if progress.behind is not None:
        lines.append(line(3, f"input: {_behind(progress)}"))
    if progress.stayed_share is not None:
        lines.append(line(6, f"placement: {_stayed(progress.stayed_share)} of tasks stayed"))
    if progress.query_url:
        lines.append(line(3, f"queries: {progress.query_url}"))
    metrics = metric_texts(progress)
    lines += [line(5 if number < _METRICS_FIRST else 8, text) for number, text in enumerate(metrics)]
    store = Text.assemble((restarts, "yellow"), (f"store {_short_store(progress.store)}", "dim"))
    lines.append(line(7, store))
    if progress.last_error and progress.status != "FAILED":  # the job's final error is shown below the panel
        error = Text.assemble(("last error  ", "red"), first_line(progress.last_error))
        lines.append(line(1, error, "below"))
    return lines


def _flow(view: ConsoleView) -> Table:
    """Records in and out: the rate, the total, and the rate's recent history."""
    from rich.table import Table
    from rich.text import Text

    progress = view.progress
    grid = Table.grid(padding=(0, 2), expand=True)
    grid.add_column(no_wrap=True)
    grid.add_column(no_wrap=True, justify="right")
    grid.add_column(no_wrap=True, justify="right")
    grid.add_column(no_wrap=True, ratio=1, overflow="crop")
    into, out = Text(rate_text(view.in_per_second), "bold cyan"), Text(rate_text(view.out_per_second), "bold magenta")
    grid.add_row("in", into, f"{count_text(progress.records_in)} total", Text(_sparkline(view.trail), "cyan"))
    grid.add_row("out", out, f"{count_text(progress.records_out)} total", "")
    return grid


def _sparkline(trail: tuple[float, ...]) -> str:
    top = max(trail, default=0.0)
    if top <= 0:
        return ""
    return "".join(_BARS[min(int(rate / top * len(_BARS)), len(_BARS) - 1)] for rate in trail)


def _watermark(view: ConsoleView) -> str:
    at_ms = view.progress.watermark_ms
    if at_ms is None:
        return "none"
    if at_ms >= MAX_WATERMARK:
        return "end of input"
    lag_ms = view.now_ms - at_ms
    distance = f"{span_text(lag_ms)} behind" if lag_ms >= 0 else f"{span_text(-lag_ms)} ahead"
    return f"{time_text(at_ms, view.now_ms)} UTC ({distance})"


def _obstacles(progress: JobProgress) -> tuple[str, ...]:
    """Reports that the store is unreachable, that output cannot be published, or that event time is stalled.

    >>> _obstacles(JobProgress("clicks", "j1", "s3://b/a", store_unreachable=True, paused=True, ahead=12))
    ('paused, the store does not answer: 12 epochs wait to be committed',)
    >>> _obstacles(JobProgress("clicks", "j1", "jobs/a", published=6, unpublished="No topic.", publish_tries=3))
    ('epoch 7 is not published after 3 tries: No topic.',)
    >>> _obstacles(JobProgress("clicks", "j1", "jobs/a", time_awaits=("clicks",)))
    ("event time is stalled: it waits for 'clicks'",)
    """
    paused = "paused, " if progress.paused else ""
    if progress.store_unreachable:
        return (f"{paused}the store does not answer: {progress.ahead} epochs wait to be committed",)
    if progress.publish_tries:
        tries = "1 try" if progress.publish_tries == 1 else f"{progress.publish_tries} tries"
        epoch = count_text(progress.published + 1)
        return (f"{paused}epoch {epoch} is not published after {tries}: {first_line(progress.unpublished)}",)
    if progress.time_awaits:
        return (f"event time is stalled: it waits for {', '.join(map(repr, progress.time_awaits))}",)
    return ()


def _behind(progress: JobProgress) -> str:
    """The backlog of the sources, and when it will reach zero."""
    if not progress.behind:
        return "caught up"
    if progress.caught_up_in_ms is None:
        return f"{count_text(progress.behind)} behind, not falling"
    return f"{count_text(progress.behind)} behind, caught up in {span_text(progress.caught_up_in_ms)}"


def _stayed(share: float) -> str:
    """Rounded down: 100 % means all of them.

    >>> _stayed(0.999), _stayed(1)
    ('99 %', '100 %')
    """
    return f"{int(share * 100)} %"


def _state(progress: JobProgress) -> str:
    in_loops = f", {count_text(progress.in_loops)} records in loops" if progress.in_loops else ""
    # A key written in three epochs has three versions until compaction, so these rows are not keys.
    return f"{bytes_text(progress.state_bytes)}, {count_text(progress.state_rows)} row versions{in_loops}"


def first_line(text: str) -> str:
    """The first line of a string."""
    return text.strip().splitlines()[0] if text.strip() else ""


def _short_store(url: str) -> str:
    """The folder of a local store; the address of any other."""
    return url.removeprefix("file://")
