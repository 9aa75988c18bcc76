"""`make bench-sql`: SQL here and on Flink 2.3, the same text over the same Parquet files, by processor time.

    queries   Nexmark's queries of append-only tables, and windows of 1 M and of 100 keys
    results   the same queries over fewer bids, into files: both must produce the same rows
    functions Python functions, per row and of pandas Series, against PyFlink's

The function of query 14 is a Java class on Flink and one over columns here; its cost per row is reported as well.

Flink runs in one JVM with two tasks, mini-batches, reused objects, state on its heap, a checkpoint every ten seconds;
ours in two tasks on Spark, in epochs of up to 8 M records, each of which is a checkpoint and shorter than that. The
cost of each is the processor time of all its processes from the start of the query to its end, after a warm-up run.
Choose parts with --only, queries with --query, ours without Flink with --alone; --quick for a smoke test.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
os.environ["PYTHONPATH"] = os.pathsep.join([str(FOLDER), str(FOLDER.parent / "src"), os.environ.get("PYTHONPATH", "")])
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "src")]

import duckdb  # noqa: E402
import letter_counts  # noqa: E402
from flink_peer import Flink  # noqa: E402
from kafka_pyflink import installed_pyflink  # noqa: E402
from measure import Report, at_least, timed_s  # noqa: E402
from parts import run_parts  # noqa: E402
from processor_time import taken_s  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402
from sql_functions import TABLES, per_row, per_series  # noqa: E402
from sql_queries import QUERIES, Query, bid_tables, write_bids  # noqa: E402

from millstream.datastream import StreamExecutionEnvironment  # noqa: E402
from millstream.table import DataTypes, StreamTableEnvironment  # noqa: E402
from millstream.table.udf import udf  # noqa: E402

TASKS = 2
SETTINGS = {"millstream.epoch.max-records": "8000000", "millstream.epoch.max-bytes": str(2 << 30)}


@dataclass(frozen=True)
class Sizes:
    bids: int = 20_000_000
    warm_bids: int = 2_000_000
    compared_bids: int = 200_000
    function_rows: int = 20_000_000
    queries: tuple[str, ...] = ()  # of these names; none: all
    alone: bool = False  # without Flink and PyFlink: rates and no ratios


QUICK = Sizes(bids=1_000_000, warm_bids=500_000, compared_bids=50_000, function_rows=2_000_000)


class Ours:
    """An environment on the session that measures the cost of statements."""

    def __init__(self, session: SparkSession, without: Sequence[int] = (), tasks: int = TASKS) -> None:
        self._without = without  # other child processes of this one
        environment = StreamExecutionEnvironment.get_execution_environment()
        environment.set_parallelism(tasks)
        environment.use_spark_session(session)
        self._store = tempfile.mkdtemp(prefix="millstream-bench-")
        self.tables = StreamTableEnvironment.create(environment)
        for key, value in SETTINGS.items():
            self.tables.get_config().set(key, value)
        self.define("count_char", letter_counts.in_columns)
        self._runs = 0

    def define(self, name: str, function: Any) -> None:
        """Register a function of the program; replaces one of that name."""
        self.tables.drop_temporary_system_function(name)
        self.tables.create_temporary_system_function(name, function)

    def do(self, statement: str) -> None:
        self.tables.execute_sql(statement)

    def cost(self, statement: str) -> tuple[float, float]:
        """The processor time and the wall-clock time of a statement that starts a job."""
        self._take_new_store()
        before = taken_s(os.getpid(), self._without)
        took_s = timed_s(lambda: self.tables.execute_sql(statement).wait())
        return taken_s(os.getpid(), self._without) - before, took_s

    def rows(self, query: str) -> Iterator[Any]:
        """The changes emitted by a query."""
        self._take_new_store()
        with self.tables.execute_sql(query).collect() as rows:
            yield from rows

    def _take_new_store(self) -> None:
        self._runs += 1
        self.tables.get_config().set("millstream.store", f"{self._store}/{self._runs}")

    def close(self) -> None:
        shutil.rmtree(self._store, ignore_errors=True)


@contextmanager
def _bids(count: int) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="millstream-bids-") as folder:
        write_bids(Path(folder), count)
        yield Path(folder)


def _sink(query: Query, name: str, options: str) -> str:
    return f"CREATE TABLE {name} ({query.columns}) WITH ({options})"


def _timed_sink(query: Query, name: str, folder: str) -> str:
    """The sink during measurements: a blackhole, unless the query is about files."""
    if query.files is None:
        return _sink(query, name, "'connector' = 'blackhole'")
    return f"CREATE TABLE {name} ({query.columns}) {query.files.format(folder=folder)}"


def measure_queries(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Each query once to warm up, once for the measurement, on both."""
    ratios: list[float] = []
    with (
        _bids(sizes.warm_bids) as warm,
        _bids(sizes.bids) as all_bids,
        tempfile.TemporaryDirectory(prefix="millstream-results-") as results,
        nullcontext() if sizes.alone else Flink(TASKS) as flink,
    ):
        ours = Ours(session, [] if flink is None else [flink.pid])
        engines: dict[str, Ours | Flink] = {"ours": ours} if flink is None else {"flink": flink, "ours": ours}
        for number, query in enumerate(_chosen(sizes)):
            for name, engine in engines.items():
                engine.do(_timed_sink(query, f"result_{number}", f"{results}/{name}"))
            insert = f"INSERT INTO result_{number} {query.select}"
            costs: dict[str, tuple[float, float]] = {}
            for bids in (warm, all_bids):
                for engine in engines.values():
                    for statement in bid_tables(bids):
                        engine.do(statement)
                for name in engines:  # the output of the previous run must not be read by this one
                    shutil.rmtree(Path(results) / name, ignore_errors=True)
                if flink is not None:
                    flink_cost = flink.do(insert)
                    costs["flink"] = (flink_cost.cpu_s, flink_cost.wall_s)
                costs["ours"] = ours.cost(insert)
            if flink is not None:
                ratio = costs["flink"][0] / costs["ours"][0]
                if query.is_nexmark:
                    ratios.append(ratio)
                report.add(at_least(f"{query.name}, to Flink", ratio, query.bound))
            rates = {name: f"{name} {sizes.bids / cost[0] / 1e6:.2f}, {cost[1]:.1f} s" for name, cost in costs.items()}
            report.note(f"{query.name}: M bids a core-second, by the clock: {'; '.join(rates.values())}")
            if "count_char" in query.select:
                _note_per_row(report, ours, insert, sizes, costs.get("flink"))
        ours.close()
    if len(ratios) == sum(query.is_nexmark for query in QUERIES):
        report.add(at_least("geometric mean of Nexmark's", statistics.geometric_mean(ratios), 6))


def _note_per_row(
    report: Report, ours: Ours, insert: str, sizes: Sizes, flink_cost: tuple[float, float] | None
) -> None:
    """The same query with its function called for every row: the more expensive form, reported in addition."""
    ours.define("count_char", letter_counts.per_row)
    taken_s, _ = ours.cost(insert)
    ours.define("count_char", letter_counts.in_columns)
    ratio = "" if flink_cost is None else f", {flink_cost[0] / taken_s:.1f} × to Flink"
    report.note(f"with its function called per row: {sizes.bids / taken_s / 1e6:.2f}{ratio}")


def _chosen(sizes: Sizes) -> list[Query]:
    return [query for query in QUERIES if not sizes.queries or query.name in sizes.queries]


def _add_choices(parser: argparse.ArgumentParser) -> None:
    names = [query.name for query in QUERIES]
    parser.add_argument("--query", choices=names, action="append", default=[], help="this query (repeatable)")
    parser.add_argument("--alone", action="store_true", help="ours alone: rates, no ratios")


def _with_choices(sizes: Sizes, asked: argparse.Namespace) -> Sizes:
    return replace(sizes, queries=tuple(asked.query), alone=asked.alone)


def measure_results(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Both write Parquet; DuckDB compares."""
    with (
        _bids(sizes.compared_bids) as bids,
        Flink(TASKS) as flink,
        tempfile.TemporaryDirectory(prefix="millstream-results-") as folder,
    ):
        ours = Ours(session, [flink.pid])
        for engine in (flink, ours):
            for statement in bid_tables(bids):
                engine.do(statement)
        equal = compared = 0
        for number, query in enumerate(_chosen(sizes)):
            if query.by_the_clock:
                continue
            for name, engine in (("flink", flink), ("ours", ours)):
                path = f"{folder}/{name}/{number}"
                options = f"'connector' = 'filesystem', 'path' = 'file://{path}', 'format' = 'parquet'"
                engine.do(_sink(query, f"result_{number}", options))
            insert = f"INSERT INTO result_{number} {query.select}"
            flink.do(insert)
            ours.cost(insert)
            compared += 1
            difference = _difference(f"{folder}/flink/{number}/**", f"{folder}/ours/{number}/**")
            equal += difference == 0
            if difference:
                report.note(f"{query.name}: {difference} rows differ")
        ours.close()
    report.add(at_least("queries with equal results", equal / compared, 1, "", f"{equal} of {compared}"))


def measure_functions(report: Report, session: SparkSession, sizes: Sizes) -> None:
    """Python functions, per row and of pandas Series, against PyFlink in its faster mode."""
    python = None if sizes.alone else installed_pyflink()
    ours = Ours(session)
    for kind, function, bound in (("general", per_row, 20), ("pandas", per_series, 5)):
        ours.define("f", udf(function, result_type=DataTypes.BIGINT(), func_type=kind))
        cost = (0.0, 0.0)
        for rows in (sizes.function_rows // 10, sizes.function_rows):
            for statement in TABLES:
                ours.do(statement.format(rows=rows))
            cost = ours.cost("INSERT INTO taken SELECT f(n, m) FROM numbers")
        mine = cost[0] / sizes.function_rows
        if python is None:
            report.note(f"Python function, {kind}: {1e-3 / mine:,.0f} k rows a core-second")
            continue
        rows = sizes.function_rows if kind == "pandas" else sizes.function_rows // 10
        # Thread mode runs no pandas functions.
        modes = ("process",) if kind == "pandas" else ("process", "thread")
        theirs = {mode: _pyflink_cpu_s(python, rows, kind, mode) / rows for mode in modes}
        report.add(at_least(f"Python function, {kind}, to PyFlink's", min(theirs.values()) / mine, bound))
        shown = ", ".join(f"{mode} {1e-3 / each:,.0f} k" for mode, each in theirs.items())
        report.note(f"{1e-3 / mine:,.0f} k rows a core-second; PyFlink {shown}")
    ours.close()


def _pyflink_cpu_s(python: Path, rows: int, kind: str, mode: str) -> float:
    """The processor time of PyFlink's second run, with all its processes."""
    command = [str(python), str(FOLDER / "sql_pyflink_child.py"), str(rows), kind, mode]
    # In thread mode the JVM starts an interpreter that resolves packages, and the functions, on this path alone.
    packages = next((python.parent.parent / "lib").glob("python*/site-packages"))
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(packages), str(FOLDER)])}
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment)
    assert child.stdout is not None
    marks = [taken_s(child.pid) for line in child.stdout if line.startswith("took ")]
    child.wait()
    if len(marks) != 2:
        raise RuntimeError(f"PyFlink did not run: {' '.join(command)}")
    return marks[1] - marks[0]


def _difference(one: str, two: str) -> int:
    """Rows that are in one set of files and not in the other, with their counts."""

    def rows(pattern: str) -> str:
        files = [str(path) for path in Path(pattern.removesuffix("/**")).rglob("*") if _is_result(path)]
        return f"(SELECT * FROM read_parquet({files}))"

    query = (
        f"SELECT COUNT(*) FROM (({rows(one)} EXCEPT ALL {rows(two)}) UNION ALL ({rows(two)} EXCEPT ALL {rows(one)}))"
    )
    return int(duckdb.sql(query).fetchall()[0][0])


def _is_result(path: Path) -> bool:
    return path.is_file() and not any(part.startswith((".", "_")) for part in path.parts[-3:])


if __name__ == "__main__":
    raise SystemExit(
        run_parts(
            "bench-sql",
            (__doc__ or "").splitlines()[0],
            {"results": measure_results, "queries": measure_queries, "functions": measure_functions},
            Sizes(),
            QUICK,
            tasks=TASKS,
            choices=_add_choices,
            chosen_sizes=_with_choices,
        )
    )
