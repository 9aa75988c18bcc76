"""What an epoch cost, as its manifest tells it: times, records, sizes, per operator and task. Pure.

The statistics stand under `counters["epoch"]` of a manifest, as plain JSON with the unit in every name, and say which
epoch they are of (`number`): a manifest that repeats another's counters, as one that restores does, has none of its
own. How long the commit and the publishing of an epoch took is known only afterwards, so the next manifest tells it,
under `before`.

Their size is bounded: per operator the sums, and of its tasks each one while there are few (`TASKS_MAX`), else the
smallest, the mean, the largest and who that was.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from millstream.checkpoint.manifest import Manifest
from millstream.jobs.epochs.input_plan import InputPlan
from millstream.jobs.epochs.outcome import EpochOutcome, TaskAccount
from millstream.runtime.task.barrier import SplitRead
from millstream.state.stored.accounts import StoredFile, accounts_of

__all__ = [
    "TASKS_MAX",
    "TASK_COLUMNS",
    "EpochTimes",
    "PastEpoch",
    "epoch_statistics",
    "input_lags",
    "named_tasks",
    "spread",
    "statistics_of",
    "with_statistics",
]

TASKS_MAX = 8
TASK_COLUMNS = ("in", "out", "user_us", "read_us", "write_us", "staging_us", "new_rows", "new_bytes")
"""What is known of one task of one operator, in the order in which it is kept behind the task's number."""
_TIMES = ("user", "read", "write", "staging")


@dataclass(frozen=True)
class PastEpoch:
    """What became of an epoch after its manifest was made; None where it was not seen."""

    epoch: int
    commit_ms: float | None = None
    publish_ms: float | None = None


@dataclass(frozen=True)
class EpochTimes:
    """An epoch as its driver saw it. `duration_ms`: from the trigger until its manifest was made. `failures`: how often
    it failed before."""

    trigger_ms: int
    duration_ms: float
    run_ms: float = 0.0
    failures: int = 0
    before: PastEpoch | None = None


def with_statistics(manifest: Manifest, statistics: Mapping[str, Any]) -> Manifest:
    """The manifest with the statistics of its own epoch in place of any other."""
    return manifest.with_counters({**manifest.counters, "epoch": dict(statistics)})


def statistics_of(manifest: Manifest) -> dict[str, Any] | None:
    """The statistics of the manifest's own epoch; None if it has none (an older Millstream, a restored manifest)."""
    found: Any = manifest.counters.get("epoch")
    return found if isinstance(found, dict) and found.get("number") == manifest.epoch else None


def epoch_statistics(
    manifest: Manifest,
    parent: Manifest | None,
    times: EpochTimes,
    outcome: EpochOutcome | None = None,
    *,
    now_ms: int | None = None,
    lags: bool = False,
    sinks: Collection[str] = (),
) -> dict[str, Any]:
    """The statistics of the epoch that `manifest` commits. No outcome: it is a closing one, which ran nothing.

    `now_ms`: the epoch's processing time. `lags`: more input was there than the epoch was to read.
    """
    told: dict[str, Any] = {"number": manifest.epoch}
    if times.before is not None:
        told["before"] = {key: value for key, value in vars(times.before).items() if value is not None}
    if outcome is None:
        return told
    files, known = _files(manifest), {named.file.name for named in _files(parent)}
    operators = {
        uid: _operator(uid, outcome.tasks, counts, [named for named in files if named.uid == uid], known)
        for uid, counts in outcome.operators.items()
    }
    return {
        **told,
        "trigger_ms": times.trigger_ms,
        "now_ms": now_ms,
        "duration_ms": round(times.duration_ms, 3),
        "failures": times.failures,
        "run_ms": round(times.run_ms, 3),
        "rounds": _rounds(outcome.tasks),
        "lags": lags,
        "in": sum(outcome.operators[uid]["out"] for uid in manifest.sources if uid in outcome.operators),
        "in_bytes": sum(split.bytes for splits in outcome.sources.values() for split in splits.values()),
        "out": sum(outcome.operators[uid]["in"] for uid in sinks if uid in outcome.operators),
        **{key: sum(one[key] for one in operators.values()) for key in ("rows", "bytes", "new_rows", "new_bytes")},
        "compaction_debt_bytes": _compaction_debt(manifest),
        "stages": list(_stages(outcome.tasks)),
        "operators": operators,
    }


def input_lags(planned: InputPlan, read: Mapping[str, Mapping[str, SplitRead]]) -> bool:
    """Whether a split was read as far as its share of the budget went: there is probably more than that.

    `read` is what the sources' tasks told, by uid and split.
    """
    return bool(planned.unread) or any(
        split.records >= planned.shares[uid][name] for uid, splits in read.items() for name, split in splits.items()
    )


def spread(values: Sequence[float]) -> dict[str, float]:
    """The smallest, the mean and the largest, and the place of the largest.

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
    """The statistics with the figures of every task under their names, for people and other programs."""
    operators = {
        uid: {
            **one,
            "tasks": [dict(zip(("task", *TASK_COLUMNS), row, strict=True)) for row in one.get("tasks", ())],
        }
        for uid, one in statistics.get("operators", {}).items()
    }
    return {**statistics, "operators": operators}


# --- operators and tasks --------------------------------------------------------------------------------------


class _NamedFile(NamedTuple):
    """A file of state, and the subtask of which operator names it."""

    uid: str
    subtask: int
    file: StoredFile


def _operator(
    uid: str,
    tasks: Sequence[TaskAccount],
    counts: Mapping[str, int],
    files: Sequence[_NamedFile],
    known: Collection[str],
) -> dict[str, Any]:
    whole = {file.name: (file.rows, file.bytes) for _, _, file in files}
    new = {name: facts for name, facts in whole.items() if name not in known}
    columns: dict[int, list[int]] = {}
    for task in tasks:  # of several rounds, if the program has loops
        if uid in task.operators:
            mine = task.operators[uid]
            row = [mine["in"], mine["out"], *(mine.get(f"{part}_ns", 0) // 1000 for part in _TIMES), 0, 0]
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
    """Per stage, how long its tasks took and waited for one another, over all rounds."""
    stages: dict[int, dict[int, list[int]]] = {}
    for task in tasks:
        times = stages.setdefault(task.stage, {}).setdefault(task.subtask, [0, 0])
        times[0] += task.took_ns // 1000
        times[1] += task.alignment_ns // 1000
    for _, of_stage in sorted(stages.items()):
        took, aligned = zip(*(times for _, times in sorted(of_stage.items())), strict=True)
        yield {"tasks": len(took), "took_us": spread(took), "alignment_us": spread(aligned)}


def _compaction_debt(manifest: Manifest) -> int:
    """The most bytes that any subtask has overdue to be merged: the slowest task is what an epoch waits for."""
    accounts = (account for operator in accounts_of(manifest).values() for account in operator.subtasks.values())
    return max((account.compaction_debt_bytes for account in accounts), default=0)


def _rounds(tasks: Sequence[TaskAccount]) -> int:
    """How often the plan was run: as often as any of its tasks."""
    runs: dict[tuple[int, int], int] = {}
    for task in tasks:
        runs[task.stage, task.subtask] = runs.get((task.stage, task.subtask), 0) + 1
    return max(runs.values(), default=0)


def _files(manifest: Manifest | None) -> list[_NamedFile]:
    """Every file of state a manifest names, keyed, broadcast and of functions; once for each subtask that lists it."""
    return [
        _NamedFile(uid, subtask, file)
        for uid, operator in accounts_of(manifest).items()
        for accounts in (operator.subtasks, operator.functions)
        for subtask, account in accounts.items()
        for file in account.files
    ]
