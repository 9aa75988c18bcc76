"""Statistics of an epoch in its manifest: times, records, sizes, per operator and task.

The statistics are stored under `counters["epoch"]` of a manifest, as plain JSON with the unit in every name, with the
epoch they describe (`number`): a manifest that repeats the counters of another one, such as a restored manifest, has no
statistics. The durations of an epoch's commit and publishing are known only afterwards, so the next manifest holds
them, under `before`.

Their size is bounded. An operator has its sums, and figures of each task if there are at most `TASKS_MAX` tasks,
otherwise the minimum, the mean, the maximum and the slowest task.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

from millstream.checkpoint.manifest import Manifest
from millstream.jobs.epochs.input_plan import InputPlan
from millstream.jobs.epochs.outcome import EpochOutcome, TaskAccount
from millstream.runtime.exchange.messages import SplitRead
from millstream.state.stored.accounts import StoredFile, accounts_of
from millstream.storage.request_counts import REQUESTS

__all__ = [
    "TASKS_MAX",
    "TASK_COLUMNS",
    "EpochTimes",
    "EpochWatch",
    "NamedFile",
    "PastEpoch",
    "files_of_state",
    "named_tasks",
    "spread",
    "statistics_of",
    "with_statistics",
]

TASKS_MAX = 8
TASK_COLUMNS = ("in", "out", "user_us", "read_us", "write_us", "staging_us", "new_rows", "new_bytes")
"""The figures of one task of one operator, in the order in which they are stored after the task's number."""
_TIMES = ("user", "read", "write", "staging")


@dataclass(frozen=True)
class PastEpoch:
    """The commit and publishing times of an earlier epoch; None where they were not measured."""

    epoch: int
    commit_ms: float | None = None
    publish_ms: float | None = None


@dataclass(frozen=True)
class EpochTimes:
    """The times of an epoch, measured by its driver. `duration_ms`: from the trigger until its manifest was made.
    `failures`: how often it failed before. `requests`: the driver's requests to object stores since the previous
    manifest was made."""

    trigger_ms: int
    duration_ms: float
    run_ms: float = 0.0
    failures: int = 0
    before: PastEpoch | None = None
    requests: int = 0


class EpochWatch:
    """Measures the epochs of a driver: trigger, run time, and the commit and publishing of the previous epoch.

    It uses a monotonic clock, and only statistics depend on it. The publishing thread records the time of
    publishing, before the next epoch ends.
    """

    def __init__(self) -> None:
        self._trigger_ms = 0
        self._created = self._triggered = self._ended = time.monotonic()
        self._started = self._ended
        self.run_ms = 0.0
        self._failures = 0
        self._epoch: int | None = None
        self._commit_ms: float | None = None
        self._published: tuple[int, float] | None = None
        self._requests_before = self._requests_reported = REQUESTS.unclaimed()

    def trigger(self, now_ms: int) -> None:
        """The driver is about to query the sources."""
        self._trigger_ms, self._triggered = now_ms, time.monotonic()

    @contextmanager
    def running(self) -> Iterator[None]:
        """Measures how long an epoch's tasks run, in all rounds."""
        self._started = time.monotonic()
        try:
            yield
        finally:
            self.run_ms = _since_ms(self._started)

    def failed(self) -> None:
        """The epoch will be run again."""
        self._failures += 1

    @contextmanager
    def committing(self) -> Iterator[None]:
        """Measures the creation of a manifest."""
        started = time.monotonic()
        self._commit_ms = None
        yield
        self._commit_ms = _since_ms(started)

    def acknowledged(self) -> None:
        """An epoch has ended, and is committed while the next ones run."""
        self._failures, self._ended = 0, time.monotonic()
        self._requests_before = self._requests_reported

    def committed(self, epoch: int) -> None:
        """A manifest is committed."""
        self._epoch = epoch
        self.acknowledged()

    def committed_ahead(self, epoch: int, elapsed_ms: float) -> None:
        """A manifest of acknowledged epochs is committed."""
        self._epoch, self._commit_ms = epoch, elapsed_ms

    def published(self, epoch: int, elapsed_ms: float) -> None:
        """An epoch's output is visible."""
        self._published = (epoch, elapsed_ms)

    def pause_ms(self, min_interval_ms: int, min_pause_ms: int) -> float:
        """How long to wait until the next epoch may start, after the start and the end of the last one."""
        if self._epoch is None and self._ended == self._created:
            return 0.0
        return max(0.0, min_interval_ms - _since_ms(self._started), min_pause_ms - _since_ms(self._ended))

    def running_s(self) -> float:
        """The time since the tasks of the epoch were started."""
        return time.monotonic() - self._started

    def past(self) -> PastEpoch | None:
        """The times of the newest committed epoch."""
        if self._epoch is None:
            return None
        published = self._published
        publish_ms = published[1] if published is not None and published[0] == self._epoch else None
        return PastEpoch(self._epoch, _rounded(self._commit_ms), _rounded(publish_ms))

    def times(self) -> EpochTimes:
        """The times of the epoch whose manifest is being made."""
        before = self.past()
        self._requests_reported = REQUESTS.unclaimed()
        requests = self._requests_reported - self._requests_before
        return EpochTimes(self._trigger_ms, _since_ms(self._triggered), self.run_ms, self._failures, before, requests)


def _since_ms(moment: float) -> float:
    return (time.monotonic() - moment) * 1000


def _rounded(span_ms: float | None) -> float | None:
    return None if span_ms is None else round(span_ms, 3)


def with_statistics(
    manifest: Manifest,
    parent: Manifest | None,
    times: EpochTimes,
    outcome: EpochOutcome | None = None,
    planned: InputPlan | None = None,
    sinks: Collection[str] = (),
) -> Manifest:
    """The manifest with the statistics of its own epoch instead of any others.

    Without an outcome and a plan it is a closing manifest, for which no tasks ran. `sinks`: the uids of the job's
    sinks.
    """
    statistics: dict[str, Any] = {"number": manifest.epoch}
    if times.before is not None:
        statistics["before"] = {key: value for key, value in vars(times.before).items() if value is not None}
    if outcome is not None and planned is not None:
        statistics |= _statistics_of_run(manifest, parent, times, outcome, planned, sinks)
    return manifest.with_counters({**manifest.counters, "epoch": statistics})


def statistics_of(manifest: Manifest) -> dict[str, Any] | None:
    """The statistics of the manifest's own epoch; None if it has none (an older Millstream, a restored manifest)."""
    statistics: Any = manifest.counters.get("epoch")
    return statistics if isinstance(statistics, dict) and statistics.get("number") == manifest.epoch else None


def _statistics_of_run(
    manifest: Manifest,
    parent: Manifest | None,
    times: EpochTimes,
    outcome: EpochOutcome,
    planned: InputPlan,
    sinks: Collection[str],
) -> dict[str, Any]:
    files, known = files_of_state(manifest), {named.file.name for named in files_of_state(parent)}
    operators = {
        uid: _operator(uid, outcome.tasks, counts, [named for named in files if named.uid == uid], known)
        for uid, counts in outcome.operators.items()
    }
    return {
        "trigger_ms": times.trigger_ms,
        "now_ms": planned.now_ms,
        "duration_ms": round(times.duration_ms, 3),
        "failures": times.failures,
        "run_ms": round(times.run_ms, 3),
        "rounds": _rounds(outcome.tasks),
        "lags": _input_lags(planned, outcome.sources),
        **({"behind": dict(planned.behind)} if planned.behind else {}),
        "in": sum(outcome.operators[uid]["out"] for uid in manifest.sources if uid in outcome.operators),
        "in_bytes": sum(split.bytes for splits in outcome.sources.values() for split in splits.values()),
        "out": sum(outcome.operators[uid]["in"] for uid in sinks if uid in outcome.operators),
        **_state_sizes(files, known),
        "compaction_debt_bytes": _compaction_debt(manifest),
        **_requests(times, outcome.tasks),
        **_stays(outcome.tasks),
        "stages": list(_stages(outcome.tasks)),
        "operators": operators,
    }


def _state_sizes(files: Sequence[NamedFile], known: Collection[str]) -> dict[str, int]:
    """Counts all state, each file once, whether or not its operator had input."""
    whole = {named.file.name: named.file for named in files}
    new = [file for name, file in whole.items() if name not in known]
    return {
        "rows": sum(file.rows for file in whole.values()),
        "bytes": sum(file.bytes for file in whole.values()),
        "new_rows": sum(file.rows for file in new),
        "new_bytes": sum(file.bytes for file in new),
    }


def _input_lags(planned: InputPlan, read: Mapping[str, Mapping[str, SplitRead]]) -> bool:
    """Whether a split was read up to its share of the budget, or up to its limit on bytes: more input is probably
    waiting.

    `read` is what the tasks of the sources reported, by uid and split.
    """
    if planned.unread:
        return True
    stops = {
        (uid, part.split.name): part.stop for uid, parts in planned.reads.items() for part in parts if part.bytes_max
    }
    return any(
        split.records >= planned.shares[uid][name] or split.offset != stops.get((uid, name), split.offset)
        for uid, splits in read.items()
        for name, split in splits.items()
    )


def spread(values: Sequence[float]) -> dict[str, float]:
    """The minimum, the mean and the maximum, and the index of the maximum.

    >>> spread([4, 9, 2])
    {'min': 2, 'avg': 5, 'max': 9, 'slowest': 1}
    """
    largest = max(values)
    return {
        "min": min(values),
        "avg": round(sum(values) / len(values)),
        "max": largest,
        "slowest": values.index(largest),
    }


def named_tasks(statistics: Mapping[str, Any]) -> dict[str, Any]:
    """The statistics with the figures of every task by name, for display and for other programs."""
    operators = {
        uid: {
            **figures,
            "tasks": [dict(zip(("task", *TASK_COLUMNS), row, strict=True)) for row in figures.get("tasks", ())],
        }
        for uid, figures in statistics.get("operators", {}).items()
    }
    return {**statistics, "operators": operators}


# --- operators and tasks --------------------------------------------------------------------------------------


class NamedFile(NamedTuple):
    """A state file, with the operator and subtask that list it."""

    uid: str
    subtask: int
    file: StoredFile


def _operator(
    uid: str,
    tasks: Sequence[TaskAccount],
    counts: Mapping[str, int],
    files: Sequence[NamedFile],
    known: Collection[str],
) -> dict[str, Any]:
    whole = {file.name: (file.rows, file.bytes) for _, _, file in files}
    new = {name: facts for name, facts in whole.items() if name not in known}
    columns: dict[int, list[int]] = {}
    for task in tasks:  # of several rounds, if the program has loops
        if uid in task.operators:
            counted = task.operators[uid]
            row = [counted["in"], counted["out"], *(counted.get(f"{part}_ns", 0) // 1000 for part in _TIMES), 0, 0]
            old = columns.get(task.subtask, [0] * len(row))
            columns[task.subtask] = [a + b for a, b in zip(old, row, strict=True)]
    for _, subtask, file in files:
        if file.name in new and subtask in columns:
            columns[subtask][-2] += file.rows
            columns[subtask][-1] += file.bytes
    return {
        "in": counts["in"],
        "out": counts["out"],
        **{f"{part}_us": counts.get(f"{part}_ns", 0) // 1000 for part in _TIMES},
        "rows": sum(rows for rows, _ in whole.values()),
        "bytes": sum(size for _, size in whole.values()),
        "new_rows": sum(rows for rows, _ in new.values()),
        "new_bytes": sum(size for _, size in new.values()),
        **_tasks(columns),
    }


def _tasks(columns: Mapping[int, list[int]]) -> dict[str, Any]:
    ordered = sorted(columns.items())
    if len(ordered) <= TASKS_MAX:
        return {"tasks": [[subtask, *row] for subtask, row in ordered]}
    rows = [row for _, row in ordered]
    return {
        "spread": {name: spread([row[number] for row in rows]) for number, name in enumerate(TASK_COLUMNS)},
        "count": len(rows),
    }


def _stages(tasks: Sequence[TaskAccount]) -> Iterator[dict[str, Any]]:
    """Per stage, the time its tasks took and waited for one another, over all rounds."""
    stages: dict[int, dict[int, list[int]]] = {}
    for task in tasks:
        times = stages.setdefault(task.stage, {}).setdefault(task.subtask, [0, 0])
        times[0] += task.elapsed_ns // 1000
        times[1] += task.alignment_ns // 1000
    for _, of_stage in sorted(stages.items()):
        elapsed, aligned = zip(*(times for _, times in sorted(of_stage.items())), strict=True)
        yield {"tasks": len(elapsed), "took_us": spread(elapsed), "alignment_us": spread(aligned)}


def _requests(times: EpochTimes, tasks: Sequence[TaskAccount]) -> dict[str, Any]:
    """Requests to object stores; empty without any."""
    by_tasks = sum(task.requests for task in tasks)
    return {"requests": {"driver": times.requests, "tasks": by_tasks}} if times.requests + by_tasks else {}


def _stays(tasks: Sequence[TaskAccount]) -> dict[str, int]:
    """On a cluster: how many tasks ran before, and how many of those in the same process; empty on one machine."""
    stays = [task.stayed for task in tasks if task.stayed is not None]
    return {"tasks": len(stays), "tasks_stayed": sum(stays)} if stays else {}


def _compaction_debt(manifest: Manifest) -> int:
    """The largest compaction backlog of any subtask, in bytes: an epoch waits for its slowest task."""
    accounts = (account for operator in accounts_of(manifest).values() for account in operator.subtasks.values())
    return max((account.compaction_debt_bytes for account in accounts), default=0)


def _rounds(tasks: Sequence[TaskAccount]) -> int:
    """How often the plan was run: the most runs of any of its tasks."""
    runs: dict[tuple[int, int], int] = {}
    for task in tasks:
        runs[task.stage, task.subtask] = runs.get((task.stage, task.subtask), 0) + 1
    return max(runs.values(), default=0)


def files_of_state(manifest: Manifest | None) -> list[NamedFile]:
    """Every file of keyed, broadcast and function state in a manifest, once for each subtask that lists it."""
    return [
        NamedFile(uid, subtask, file)
        for uid, operator in accounts_of(manifest).items()
        for accounts in (operator.subtasks, operator.functions)
        for subtask, account in accounts.items()
        for file in account.files
    ]
