"""Metrics: counters, meters, distributions and gauges, per operator."""

from __future__ import annotations

from millstream.metrics.metricbase import Counter, Distribution, Gauge, Meter, Metric, MetricGroup
from millstream.pyflink_names import add_pyflink_names

__all__ = ["Counter", "Distribution", "Gauge", "Meter", "Metric", "MetricGroup"]

add_pyflink_names(globals())
