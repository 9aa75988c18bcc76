"""Formats the metrics of the program's functions for people, by operator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from millstream.jobs.console.amounts import count_text
from millstream.jobs.epochs.progress import JobProgress

__all__ = ["metric_texts", "metrics_by_operator", "metrics_text"]

_QUIET_WHILE_ZERO = "num"
"""The prefix of Flink's own metrics. They are shown once they count something."""


def metric_texts(progress: JobProgress) -> list[str]:
    """One string for each operator that has metrics.

    >>> from millstream.jobs.epochs.progress import OperatorProgress
    >>> metrics = {"m.bad": {"counter": 1200}, "m.size": {"distribution": [2, 5, 1, 4]}, "m.numLate": {"counter": 0}}
    >>> progress = JobProgress("j", "1", "s", operators={"m": OperatorProgress("Parse")}, metrics=metrics)
    >>> metric_texts(progress)
    ['Parse: bad 1,200, size 2 (1 to 4, mean 2.5)']
    """
    names = {uid: operator.name for uid, operator in progress.operators.items()}
    return [
        metrics_text(operator, metrics) for operator, metrics in metrics_by_operator(progress.metrics, names).items()
    ]


def metrics_text(operator: str, metrics: Mapping[str, Any]) -> str:
    """The metrics of one operator as one line."""
    return f"{operator}: {', '.join(f'{name} {_text(entry)}' for name, entry in metrics.items())}"


def metrics_by_operator(metrics: Mapping[str, Any], names: Mapping[str, str]) -> dict[str, dict[str, Any]]:
    """The metrics of each operator, by its name or, where two share one, by name and uid. `names`: the operators' names
    by uid.

    >>> metrics_by_operator({"a.b.n": {"counter": 3}}, {"a": "outer", "a.b": "inner"})
    {'inner': {'n': {'counter': 3}}}
    """
    shared = {name for name in names.values() if list(names.values()).count(name) > 1}
    by_operator: dict[str, dict[str, Any]] = {}
    for full_name, entry in sorted(metrics.items()):
        uids = [uid for uid in names if full_name.startswith(f"{uid}.")]
        uid = max(uids, key=len, default="")
        name = full_name.removeprefix(f"{uid}.")
        if name.startswith(_QUIET_WHILE_ZERO) and not entry.get("counter", 1):
            continue
        operator = names.get(uid, "")
        by_operator.setdefault(f"{operator} ({uid})" if operator in shared else operator, {})[name] = entry
    return by_operator


def _text(entry: Mapping[str, Any]) -> str:
    kind, value = next(iter(entry.items()))
    if kind == "distribution":
        count, total, least, most = value
        return f"{count_text(count)} ({least:g} to {most:g}, mean {total / count:g})" if count else "0"
    return count_text(value) if type(value) is int else str(value)
