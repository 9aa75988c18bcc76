"""The command line of a benchmark with parts: the selected ones, their size, and one Spark session for all."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

from measure import Report
from pyspark.sql import SparkSession

from millstream.spark.session import make_session

__all__ = ["run_parts"]

Sizes = TypeVar("Sizes")


def run_parts(
    name: str,
    description: str,
    parts: Mapping[str, Callable[[Report, SparkSession, Sizes], None]],
    sizes: Sizes,
    quick: Sizes,
    *,
    tasks: int,
    without_spark: Mapping[str, Callable[[Report, Sizes], None]] | None = None,
    choices: Callable[[argparse.ArgumentParser], None] = lambda parser: None,
    chosen_sizes: Callable[[Sizes, argparse.Namespace], Sizes] = lambda sizes, asked: sizes,
) -> int:
    """Run the requested measurements, those without Spark first; the exit code says whether every requirement holds.

    `choices` adds the benchmark's own options, `chosen_sizes` puts the chosen values into its sizes.
    """
    alone = without_spark or {}
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", action="store_true", help="print JSON in place of lines")
    parser.add_argument("--quick", action="store_true", help="smaller sizes: a smoke test")
    parser.add_argument("--only", choices=(*parts, *alone), action="append", help="measure this part (repeatable)")
    choices(parser)
    asked = parser.parse_args()
    chosen, measured = asked.only or (*parts, *alone), chosen_sizes(quick if asked.quick else sizes, asked)
    report = Report(name, as_json=asked.json, quick=asked.quick)
    for part in dict.fromkeys(part for part in chosen if part in alone):
        alone[part](report, measured)
    on_spark = [parts[part] for part in chosen if part in parts]
    if on_spark:
        logs = Path(tempfile.mkdtemp(prefix="millstream-bench-logs-"))
        session = make_session(f"local[{tasks}]", {}, logs / "spark.log")
        try:
            for measure in on_spark:
                measure(report, session, measured)
        finally:
            session.stop()
    return report.close()
