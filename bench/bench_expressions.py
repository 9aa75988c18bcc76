"""`python bench/bench_expressions.py`: SQL expressions inside a task, in millions of rows a second and core.

Each line is one program over a batch of 65,536 bids of Nexmark, as a task runs it: parsed, bound, compiled once, run
many times. Processor time is measured, so that a busy machine matters little. The bounds are half of the figures at the
time the implementation was chosen; --json for machines, --quick for a smoke test.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Sequence
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "src")]

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
from measure import Report, at_least  # noqa: E402

from millstream.expressions.data_types import DataTypes  # noqa: E402
from millstream.expressions.row_expressions import RowExpression  # noqa: E402
from millstream.planner.binding.expressions import bind_expression  # noqa: E402
from millstream.planner.binding.scope import NamedSource, Scope  # noqa: E402
from millstream.planner.relations import Field  # noqa: E402
from millstream.planner.session import PlannerSession  # noqa: E402
from millstream.runtime.expressions.compile import compile_program  # noqa: E402
from millstream.runtime.expressions.kernel import SessionFacts  # noqa: E402
from millstream.runtime.expressions.program import Program  # noqa: E402
from millstream.sql.parser import parse_expression  # noqa: E402

ROWS = 65_536
URLS = 10_004
FIELDS = (
    Field("auction", DataTypes.BIGINT()),
    Field("bidder", DataTypes.BIGINT()),
    Field("price", DataTypes.BIGINT()),
    Field("channel", DataTypes.STRING()),
    Field("url", DataTypes.STRING()),
    Field("moment", DataTypes.TIMESTAMP(3)),
)
CHANNEL_ID = r"REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)"
CASES: tuple[tuple[str, Sequence[str], str | None, float], ...] = (
    ("q1: 0.908 * price", ["0.908 * price"], None, 100),
    ("q2: filter MOD(auction, 123) = 0", ["auction", "price"], "MOD(auction, 123) = 0", 125),
    (
        "q14: CASE on HOUR, 3 texts",
        [
            "CASE WHEN HOUR(moment) >= 8 AND HOUR(moment) <= 18 THEN 'dayTime' "
            "WHEN HOUR(moment) <= 6 OR HOUR(moment) >= 20 THEN 'nightTime' ELSE 'otherTime' END"
        ],
        None,
        15,
    ),
    ("q14: decimal range", ["auction"], "0.908 * price > 1000000 AND 0.908 * price < 50000000", 50),
    ("q21: REGEXP_EXTRACT", [CHANNEL_ID], None, 3.5),
    (
        "q21: whole",
        [
            "CASE WHEN LOWER(channel) = 'apple' THEN '0' WHEN LOWER(channel) = 'google' THEN '1' "
            f"WHEN LOWER(channel) = 'facebook' THEN '2' WHEN LOWER(channel) = 'baidu' THEN '3' ELSE {CHANNEL_ID} END"
        ],
        f"{CHANNEL_ID} IS NOT NULL OR LOWER(channel) IN ('apple', 'google', 'facebook', 'baidu')",
        2,
    ),
    (
        "q22: SPLIT_INDEX × 3",
        ["SPLIT_INDEX(url, '/', 3)", "SPLIT_INDEX(url, '/', 4)", "SPLIT_INDEX(url, '/', 5)"],
        None,
        3.3,
    ),
    ("q10: DATE_FORMAT × 2", ["DATE_FORMAT(moment, 'yyyy-MM-dd')", "DATE_FORMAT(moment, 'HH:mm')"], None, 5),
    ("LOWER(channel) IN (…)", ["LOWER(channel) IN ('apple', 'google')"], None, 15),
    ("CASE WHEN price <> 0 THEN 1 / price END", ["CASE WHEN price <> 0 THEN 1000000 / price END"], None, 40),
    ("price + bidder * 2", ["price + bidder * 2"], None, 200),
    ("CAST(price AS STRING)", ["CAST(price AS STRING)"], None, 5),
    ("CAST(text AS BIGINT)", ["CAST(CAST(price AS STRING) AS BIGINT)"], None, 3),
)


def bids(rows: int) -> list[pa.Array]:
    """Columns of bids; urls and channels come from a pool, as Nexmark's do."""
    random = np.random.default_rng(7)
    pool = pa.array([f"https://www.nexmark.com/{i:x}/item/x.htm?query=1&channel_id={i * 37}" for i in range(URLS)])
    channels = pa.array(["apple", "google", "facebook", "baidu", *(f"channel-{i}" for i in range(URLS - 4))])
    chosen = pa.array(random.integers(0, URLS, rows))
    moments = 1_700_000_000_000 + np.cumsum(random.integers(0, 4, rows))
    return [
        pa.array(random.integers(1_000, 2_000_000, rows)),
        pa.array(random.integers(1_000, 500_000, rows)),
        pa.array(random.integers(0, 100_000_000, rows)),
        channels.take(chosen),
        pool.take(chosen),
        pa.array(moments, pa.timestamp("ms")),
    ]


def program_of(outputs: Sequence[str], condition: str | None) -> Program:
    """The program of expressions in SQL over the columns of a bid."""
    scope, session = Scope((NamedSource(FIELDS),)), PlannerSession()

    def bound(text: str) -> RowExpression:
        return bind_expression(parse_expression(text), scope, session)

    types = [field.type for field in FIELDS]
    return compile_program([bound(text) for text in outputs], types, bound(condition) if condition else None)


def rate(program: Program, columns: Sequence[pa.Array], budget_s: float) -> float:
    """Millions of rows per second of processor time: the median of some rounds."""
    facts = SessionFacts()
    rows = len(columns[0])
    program.run(columns, rows, facts)
    rounds: list[float] = []
    for _ in range(5):
        count, started = 0, time.process_time()
        while count < 3 or time.process_time() - started < budget_s / 5:
            program.run(columns, rows, facts)
            count += 1
        rounds.append(count * rows / (time.process_time() - started) / 1e6)
    return statistics.median(rounds)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--only", default="", help="cases whose name has this text")
    arguments = parser.parse_args()
    pa.set_cpu_count(1)
    report = Report("expressions", as_json=arguments.json, quick=arguments.quick)
    columns = bids(ROWS)
    for name, outputs, condition, bound in CASES:
        if arguments.only in name:
            figure = rate(program_of(outputs, condition), columns, 0.1 if arguments.quick else 1.0)
            report.add(at_least(name, figure, bound, "M/s"))
    small = [column.slice(0, 100) for column in columns]
    program = program_of(*CASES[5][1:3])
    figure = 100 / rate(program, small, 0.3) / 1e3
    report.note(f"q21 on a batch of 100 rows: {figure:.2f} ms")
    return report.close()


if __name__ == "__main__":
    sys.exit(main())
