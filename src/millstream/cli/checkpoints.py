"""`millstream checkpoints`: the epochs a job retains, their cost, and one of them in detail.

Everything is read from manifests; the job may be running or not. An epoch that is removed while the command reads is
omitted: it is no longer retained.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, TextIO

from millstream.checkpoint.leases import system_ms
from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.checkpoint.savepoints import open_job_store
from millstream.cli.job_argument import find_snapshot_name
from millstream.cli.refusals import refuse
from millstream.cli.tables import print_table
from millstream.errors import MillstreamError, StoreError
from millstream.jobs.console.amounts import bytes_text, count_text, epoch_time_text, time_text
from millstream.jobs.console.metric_texts import metrics_by_operator, metrics_text
from millstream.jobs.epochs.epoch_history import EpochEntry, Summary, history, summary
from millstream.jobs.epochs.epoch_statistics import TASK_COLUMNS, named_tasks, statistics_of
from millstream.records.watermarks import MAX_WATERMARK, MIN_WATERMARK
from millstream.state.stored.accounts import OperatorAccount, accounts_of
from millstream.storage.names import job_name
from millstream.storage.store import Store

__all__ = ["show_checkpoints"]


def show_checkpoints(
    job: str,
    *,
    epoch: int | None = None,
    last: int | None = None,
    as_json: bool = False,
    screen: TextIO | None = None,
    now_ms: int | None = None,
) -> int:
    """Print the history of a job, or one `epoch` of it (also as JOB@EPOCH); returns the exit code."""
    screen = screen or sys.stdout
    now_ms = system_ms() if now_ms is None else now_ms
    try:
        name = find_snapshot_name(job)
        log = _log(open_job_store(name.store, read_only=True), name.store)
        newest: list[Manifest] = []
        entries = history(_noting_newest(_manifests(log), newest))
        if epoch is None and isinstance(name.at, int):
            epoch = name.at
        if epoch is None:
            metrics = _metrics(newest[0]) if newest else {}
            _print_history(entries, metrics, last, as_json, screen, now_ms)
        else:
            _print_epoch(_manifest_of(log, epoch, name.store), entries, as_json, screen, now_ms)
    except MillstreamError as error:
        return refuse(error)
    return 0


def _log(store: Store, job: str) -> ManifestLog:
    if not store.exists(job_name()) and not store.list("manifests"):
        raise StoreError(f"{job} holds no job. Use the store of one; `millstream list` shows where they are")
    return ManifestLog(store)


def _manifests(log: ManifestLog) -> Iterator[Manifest]:
    manifests = (log.read_if_present(epoch) for epoch in log.epochs())
    return (manifest for manifest in manifests if manifest is not None)  # a running job may have removed some


def _noting_newest(manifests: Iterator[Manifest], newest: list[Manifest]) -> Iterator[Manifest]:
    """The manifests; stores only the newest in `newest`."""
    for manifest in manifests:
        if not newest or manifest.epoch > newest[0].epoch:
            newest[:] = [manifest]
        yield manifest


def _metrics(manifest: Manifest) -> dict[str, Any]:
    """The counts of the program's functions until then, by operator."""
    counters: Any = manifest.counters
    names = {uid: manifest.operator_name(uid) for uid in counters.get("operators", {})}
    return metrics_by_operator(counters.get("metrics", {}), names)


def _manifest_of(log: ManifestLog, epoch: int, job: str) -> Manifest:
    manifest = log.read_if_present(epoch) if epoch > 0 else None
    if manifest is not None:
        return manifest
    retained = log.epochs()
    epochs = f"{retained[0]} to {retained[-1]}" if retained else "none"
    raise StoreError(f"{job} has no epoch {epoch}; retained are {epochs}. See millstream.retention.epochs")


# --- all epochs -----------------------------------------------------------------------------------------------

_HEADINGS = ("epoch", "triggered", "took", "run", "publish", "in", "out", "new state", "state", "status")
_RIGHT = frozenset(_HEADINGS) - {"status"}
_OPTIONAL = ("run", "new state", "publish", "triggered")


def _print_history(
    entries: Sequence[EpochEntry],
    metrics: Mapping[str, Any],
    last: int | None,
    as_json: bool,
    screen: TextIO,
    now_ms: int,
) -> None:
    totals = summary(entries)
    entries_shown = entries if last is None else entries[-last:] if last > 0 else []
    if as_json:
        figures = {measure: asdict(figure) for measure, figure in totals.items()}
        epochs = [asdict(entry) for entry in entries_shown]
        print(json.dumps({"epochs": epochs, "summary": figures, "metrics": metrics}), file=screen)
        return
    if not entries:
        print("no epoch yet", file=screen)
        return
    cells = [_cells(entry, now_ms) for entry in entries_shown]
    print_table(_HEADINGS, cells, screen, right=_RIGHT, texts=("status",), optional=_OPTIONAL)
    print(file=screen)
    rows = [_summary_cells(measure, figure) for measure, figure in totals.items()]
    headings = (f"of {len(entries)} epochs", "min", "avg", "p99", "max")
    print_table(headings, rows, screen, right=headings[1:])
    for number, (operator, counted) in enumerate(metrics.items()):
        print(f"{'' if number else chr(10)}metrics of {metrics_text(operator, counted)}", file=screen)


def _cells(entry: EpochEntry, now_ms: int) -> tuple[str, ...]:
    status = entry.status
    if entry.failures:
        status += f" after {entry.failures} failed"
    if entry.behind and entry.lags:
        status += f", {count_text(entry.behind)} records behind"
    elif entry.lags:
        status += ", input lags"
    return (
        str(entry.epoch),
        "-" if entry.trigger_ms is None else time_text(entry.trigger_ms, now_ms),
        _time(entry.duration_ms),
        _time(entry.run_ms),
        _time(entry.publish_ms),
        _count(entry.records_in),
        _count(entry.records_out),
        _size(entry.new_bytes),
        _size(entry.state_bytes),
        status,
    )


_MEASURES = {
    "duration_ms": "took",
    "run_ms": "run",
    "commit_ms": "commit",
    "publish_ms": "publish",
    "records_in": "in",
    "records_out": "out",
    "new_bytes": "new state",
    "requests": "requests",
}


def _summary_cells(measure: str, figure: Summary) -> tuple[str, ...]:
    show = _time if measure.endswith("_ms") else _size if measure.endswith("_bytes") else _count
    return (_MEASURES[measure], show(figure.min), show(figure.avg), show(figure.p99), show(figure.max))


def _time(span_ms: float | None) -> str:
    if span_ms is None:
        return "-"
    return f"{span_ms:.1f} ms" if span_ms < 10 else epoch_time_text(span_ms)


def _count(count: float | None) -> str:
    return "-" if count is None else count_text(round(count))


def _size(size_bytes: float | None) -> str:
    return "-" if size_bytes is None else bytes_text(round(size_bytes))


# --- one epoch ------------------------------------------------------------------------------------------------

_OPERATOR_HEADINGS = (
    "operator",
    "task",
    "in",
    "out",
    "user code",
    "state read",
    "state write",
    "staging",
    "new versions",
    "new state",
    "row versions",
    "state",
    "watermark",
)
_OPTIONAL_OF_OPERATORS = (
    "staging",
    "new versions",
    "state read",
    "state write",
    "row versions",
    "new state",
    "watermark",
    "user code",
)
_SPREAD = ("min", "avg", "max")


def _print_epoch(manifest: Manifest, entries: Sequence[EpochEntry], as_json: bool, screen: TextIO, now_ms: int) -> None:
    statistics = statistics_of(manifest)
    entry = next((entry for entry in entries if entry.epoch == manifest.epoch), None) or history([manifest])[0]
    if as_json:
        with_names = None if statistics is None else named_tasks(statistics)
        print(json.dumps({**asdict(entry), "statistics": with_names, "metrics": _metrics(manifest)}), file=screen)
        return
    if statistics is None or "operators" not in statistics:
        print(f"epoch {manifest.epoch}: {entry.status}; it has no statistics of its own", file=screen)
        return
    processing = time_text(statistics["now_ms"], now_ms)
    print(
        f"epoch {manifest.epoch}: {entry.status}; triggered {time_text(statistics['trigger_ms'], now_ms)}, processing "
        f"time {processing}; took {_time(entry.duration_ms)}: run {_time(entry.run_ms)} in {entry.rounds} round(s), "
        f"commit {_time(entry.commit_ms)}, publish {_time(entry.publish_ms)}; {entry.failures} failed before"
        f"{_requests(statistics)}{_stays(entry)}",
        file=screen,
    )
    print(file=screen)
    stages = [_stage_cells(number, stage) for number, stage in enumerate(statistics["stages"])]
    headings = ("stage", "tasks", "took min", "avg", "max", "slowest", "alignment max")
    print_table(headings, stages, screen, right=headings)
    print(file=screen)
    operators = statistics["operators"].items()
    rows = [row for uid, figures in operators for row in _operator_rows(manifest, uid, figures, now_ms)]
    right = frozenset(_OPERATOR_HEADINGS) - {"operator", "task"}
    print_table(_OPERATOR_HEADINGS, rows, screen, right=right, texts=("operator",), optional=_OPTIONAL_OF_OPERATORS)
    for operator, metrics in _metrics(manifest).items():
        print(f"\nmetrics of {metrics_text(operator, metrics)}", file=screen)


def _requests(statistics: Mapping[str, Any]) -> str:
    counts = statistics.get("requests")
    return (
        ""
        if counts is None
        else f"; {sum(counts.values())} requests to object stores, {counts['driver']} by the driver"
    )


def _stays(entry: EpochEntry) -> str:
    """On a cluster: how many tasks ran in the same process as before."""
    return "" if entry.tasks is None else f"; {entry.tasks_stayed} of {entry.tasks} tasks stayed where they were"


def _stage_cells(number: int, stage: Mapping[str, Any]) -> tuple[str, ...]:
    elapsed, alignment = stage["took_us"], stage["alignment_us"]
    times = (_time(elapsed[which] / 1000) for which in _SPREAD)
    return (str(number), str(stage["tasks"]), *times, f"task {elapsed['slowest']}", _time(alignment["max"] / 1000))


def _operator_rows(manifest: Manifest, uid: str, figures: Mapping[str, Any], now_ms: int) -> Iterator[tuple[str, ...]]:
    name = manifest.operator_name(uid)
    watermark = _watermark(accounts_of(manifest).get(uid, OperatorAccount()).watermark, now_ms)
    whole = [figures[column] for column in TASK_COLUMNS]
    yield (name, "all", *_task_cells(whole), _count(figures["rows"]), _size(figures["bytes"]), watermark)
    if "spread" in figures:
        for which in _SPREAD:
            values = [figures["spread"][column][which] for column in TASK_COLUMNS]
            yield ("", f"{which} of {figures['count']}", *_task_cells(values), "", "", "")
    elif len(figures["tasks"]) > 1:
        for subtask, *values in figures["tasks"]:
            yield ("", str(subtask), *_task_cells(values), "", "", "")


def _task_cells(values: Sequence[float]) -> tuple[str, ...]:
    records_in, records_out, *times, new_rows, new_bytes = values
    spent = (_time(span_us / 1000) for span_us in times)
    return (_count(records_in), _count(records_out), *spent, _count(new_rows), _size(new_bytes))


def _watermark(watermark: int | None, now_ms: int) -> str:
    if watermark is None or watermark == MIN_WATERMARK:
        return "-"
    return "end" if watermark == MAX_WATERMARK else time_text(watermark, now_ms)
