"""The metrics of one task, and their aggregation in the driver.

A task's registry creates metrics by name: `operator.group.name`. At the end of an epoch `snapshot` returns the changes
since the last one, as plain JSON; the driver adds them up with `merge`, a pure function. Tasks send increments, not
totals: a task that is retried, or moves to another worker, is thus counted once, because only the snapshot of the
committed attempt is merged.

Each entry carries its kind: `{"counter": 3}`, `{"meter": 3, "span_s": 60}`,
`{"distribution": [count, sum, min, max]}`, `{"gauge": value}`. Entries of different kinds cannot be merged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, TypeVar

from millstream.errors import ProgramError
from millstream.metrics.metricbase import Counter, Distribution, Gauge, Meter, Metric, MetricGroup

__all__ = ["MetricRegistry", "merge"]

Json: TypeAlias = Any
Snapshot: TypeAlias = dict[str, Json]


class _ReportingMetric(Metric):
    """A metric that reports its change since the last report; None if there was none."""

    def report(self) -> Json | None:
        raise NotImplementedError


class TaskCounter(Counter, _ReportingMetric):
    """A counter in a task.

    >>> counter = TaskCounter()
    >>> counter.inc(3); counter.dec()
    >>> counter.report(), counter.report(), counter.get_count()
    ({'counter': 2}, None, 2)
    """

    def __init__(self) -> None:
        self._count = 0
        self._reported_count: int | None = None

    def inc(self, n: int = 1) -> None:
        self._count += n

    def dec(self, n: int = 1) -> None:
        self._count -= n

    def get_count(self) -> int:
        return self._count

    def report(self) -> Json | None:
        change = self._count - (self._reported_count or 0)
        if self._reported_count is not None and not change:
            return None
        self._reported_count = self._count
        return {"counter": change}


class TaskMeter(Meter, _ReportingMetric):
    """A meter in a task; the driver, which has the clock, computes the rate."""

    def __init__(self, time_span_in_seconds: int) -> None:
        self._events = TaskCounter()
        self._span_s = time_span_in_seconds

    def mark_event(self, value: int = 1) -> None:
        self._events.inc(value)

    def get_count(self) -> int:
        return self._events.get_count()

    def report(self) -> Json | None:
        change = self._events.report()
        return None if change is None else {"meter": change["counter"], "span_s": self._span_s}


class TaskDistribution(Distribution, _ReportingMetric):
    """A distribution in a task."""

    def __init__(self) -> None:
        self._fresh = True
        self._start()

    def _start(self) -> None:
        self._count = 0
        self._sum: float = 0
        self._min: float | None = None
        self._max: float | None = None

    def update(self, value: float) -> None:
        self._count += 1
        self._sum += value
        if self._min is None or value < self._min:
            self._min = value
        if self._max is None or value > self._max:
            self._max = value

    def report(self) -> Json | None:
        if not self._count and not self._fresh:
            return None
        report = {"distribution": [self._count, self._sum, self._min, self._max]}
        self._fresh = False
        self._start()
        return report


class TaskGauge(Gauge, _ReportingMetric):
    """A gauge in a task. A gauge that fails reports this as its value: a metric must not stop the job."""

    def __init__(self, read_value: Callable[[], Any]) -> None:
        self.read_value = read_value

    def get_value(self) -> Any:
        return self.read_value()

    def report(self) -> Json | None:
        try:
            value = self.read_value()
        except Exception as error:
            return {"gauge": f"failed: {type(error).__name__}: {error}"}
        return {"gauge": value if value is None or isinstance(value, (bool, int, float, str)) else str(value)}


T = TypeVar("T", bound=_ReportingMetric)


class MetricRegistry:
    """All metrics of one task.

    >>> registry = MetricRegistry()
    >>> registry.group("parse").add_group("lines").counter("bad").inc()
    >>> registry.snapshot()
    {'parse.lines.bad': {'counter': 1}}
    >>> registry.snapshot()
    {}
    """

    def __init__(self) -> None:
        self._metrics: dict[str, _ReportingMetric] = {}

    def group(self, operator_uid: str) -> MetricGroup:
        """The group of one operator."""
        return _TaskMetricGroup(self, operator_uid)

    def snapshot(self) -> Snapshot:
        """The changes since the last snapshot. A new metric is included once even if it is unused."""
        reports = ((name, metric.report()) for name, metric in self._metrics.items())
        return {name: report for name, report in reports if report is not None}

    def register(self, scope: str, kind: type[T], make: Callable[[], T]) -> T:
        """The metric of this name, created if it is new."""
        metric = self._metrics.get(scope)
        if metric is None:
            metric = self._metrics[scope] = make()
        if not isinstance(metric, kind):
            raise ProgramError(
                f"metric '{scope}' is already a {type(metric).__name__.removeprefix('Task').lower()}, "
                f"found a request for a {kind.__name__.removeprefix('Task').lower()}. Rename one of them."
            )
        return metric


class _TaskMetricGroup(MetricGroup):
    def __init__(self, registry: MetricRegistry, scope: str) -> None:
        self._registry = registry
        self._scope = scope

    def add_group(self, name: str, extra: str | None = None) -> MetricGroup:
        inner = f"{self._scope}.{name}" if extra is None else f"{self._scope}.{name}.{extra}"
        return _TaskMetricGroup(self._registry, inner)

    def counter(self, name: str) -> Counter:
        return self._registry.register(f"{self._scope}.{name}", TaskCounter, TaskCounter)

    def gauge(self, name: str, obj: Callable[[], Any]) -> None:
        # A function that is reopened registers again, and the new instance replaces the old one.
        self._registry.register(f"{self._scope}.{name}", TaskGauge, lambda: TaskGauge(obj)).read_value = obj

    def meter(self, name: str, time_span_in_seconds: int = 60) -> Meter:
        return self._registry.register(f"{self._scope}.{name}", TaskMeter, lambda: TaskMeter(time_span_in_seconds))

    def distribution(self, name: str) -> Distribution:
        return self._registry.register(f"{self._scope}.{name}", TaskDistribution, TaskDistribution)


def merge(total: Mapping[str, Json], delta: Mapping[str, Json]) -> Snapshot:
    """Adds a snapshot to totals and returns new totals.

    >>> merge({"op.n": {"counter": 2}}, {"op.n": {"counter": 3}, "op.g": {"gauge": 1}})
    {'op.n': {'counter': 5}, 'op.g': {'gauge': 1}}
    """
    merged = dict(total)
    for name, entry in delta.items():
        merged[name] = _add(name, merged[name], entry) if name in merged else entry
    return merged


def _add(name: str, old: Mapping[str, Json], new: Mapping[str, Json]) -> Json:
    kind = next(iter(new))
    if kind not in old:
        raise ProgramError(f"metric '{name}' was a {next(iter(old))} and is now a {kind}. Rename the new one.")
    if kind == "gauge":
        return new
    if kind == "distribution":
        (n, total, low, high), (m, more, least, most) = old[kind], new[kind]
        return {kind: [n + m, total + more, _pick(min, low, least), _pick(max, high, most)]}
    return {**new, kind: old[kind] + new[kind]}


def _pick(choose: Callable[..., float], a: float | None, b: float | None) -> float | None:
    present = [number for number in (a, b) if number is not None]
    return choose(present) if present else None
