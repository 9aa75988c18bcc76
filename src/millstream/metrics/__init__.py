"""Metrics: counters, meters, distributions and gauges, per operator."""

from __future__ import annotations

from millstream.metrics.metricbase import Counter, Distribution, Gauge, Meter, Metric, MetricGroup

__all__ = ["Counter", "Distribution", "Gauge", "Meter", "Metric", "MetricGroup"]
