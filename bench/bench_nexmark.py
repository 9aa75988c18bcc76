"""`make bench-nexmark`: all of Nexmark here and on Flink 2.3, the same text over the same Parquet files.

    results   every query over fewer events: both must produce the same table, by count and checksum
    speed     processor time of each query, ours and Flink's; the better of Flink's heap and RocksDB state counts
    growth    q4, q9 and q20 over four times the events: the cost per event then

Flink runs in one JVM with two tasks, mini-batches, split distinct, reused objects, a checkpoint every ten seconds; ours
in two tasks on Spark, each epoch a checkpoint. The cost of each is the processor time of all its processes from the
start of the query to its end, after a warm-up run over fewer events. A query has all its turns (ours, Flink's heap,
Flink's RocksDB) before the next one, and each turn of Flink is a process of its own: an interrupted run leaves complete
queries, and a full heap affects no other query.

--events, --only q3,q4, --parts speed and --quick choose; --rocksdb-events measures RocksDB over fewer events (rates are
compared by event, and the page says how many they were). Figures of single queries accumulate in
bench/results/nexmark.json; `nexmark_page.py` writes docs/understand/nexmark.md and bench/results/nexmark.html from it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent
os.environ["PYTHONPATH"] = os.pathsep.join([str(FOLDER), str(FOLDER.parent / "src"), os.environ.get("PYTHONPATH", "")])
sys.path[:0] = [str(FOLDER), str(FOLDER.parent / "src")]

from bench_sql import Ours  # noqa: E402
from flink_peer import Flink  # noqa: E402
from measure import Machine, Report, at_least, at_most  # noqa: E402
from nexmark_events import NexmarkQuery, event_tables, query_of, write_events, write_side_input  # noqa: E402
from nexmark_page import OURS, rate_of, ratio_of, write_pages  # noqa: E402
from pyspark.sql import SparkSession  # noqa: E402

from millstream.spark.session import make_session  # noqa: E402

TASKS = 2
QUERIES = tuple(f"q{number}" for number in range(24))
# Flink rejects them: q6 has OVER on a changing table, and its file tables do not support lookup joins (q13).
BEYOND_FLINK = ("q6", "q13")
GROWING = ("q4", "q9", "q20")
BY_THE_CLOCK = ("q12",)  # its result depends on when it runs
INTO_FILES = ("q10",)  # its output is compared in tests/golden
# A state of gigabytes: RocksDB has memory for it (a mini cluster assigns 128 MB) and incremental checkpoints.
FLINK_STATE = {
    "hashmap": {"state.backend.type": "hashmap"},
    "rocksdb": {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": "true",
        "taskmanager.memory.managed.size": "4g",
    },
}
BACKENDS = tuple(FLINK_STATE)
PARTS = ("results", "speed", "growth")
FLINK_HEAP = "10g"
RESULTS = FOLDER / "results" / "nexmark.json"


@dataclass(frozen=True)
class Sizes:
    events: int = 20_000_000
    rocksdb_events: int = 20_000_000
    warm_events: int = 500_000
    compared_events: int = 100_000
    engines: tuple[str, ...] = (OURS, *BACKENDS)


QUICK = Sizes(events=500_000, rocksdb_events=500_000, warm_events=100_000, compared_events=50_000)


@contextmanager
def _events(count: int, files: int = TASKS) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="millstream-nexmark-") as folder:
        write_events(Path(folder) / "events", count, files)
        write_side_input(Path(folder) / "side_input")
        yield Path(folder)


def _define(do: Callable[[str], object], query: NexmarkQuery, folder: Path, output: Path) -> None:
    """The events of a folder, and the tables of a query that writes below `output`."""
    if (folder / "side_input").is_dir() and not (output / "side_input").exists():
        output.mkdir(parents=True, exist_ok=True)
        (output / "side_input").symlink_to(folder / "side_input")
    for statement in (*event_tables(folder / "events"), *query.statements(output)):
        do(statement)


# --- results ----------------------------------------------------------------------------------------------------------


def measure_results(report: Report, session: SparkSession, sizes: Sizes, names: Sequence[str], kept: Kept) -> None:
    """Both with one task, where ties are ordered as in the file."""
    with _events(sizes.compared_events, 1) as folder, Flink(1, heap="2g") as flink:
        ours = Ours(session, [flink.pid], tasks=1)
        for name in names:
            if name in (*BEYOND_FLINK, *BY_THE_CLOCK, *INTO_FILES):
                continue
            query = query_of(name)
            with _told(report, name):
                _define(flink.do, query, folder, folder / "flink")
                _define(ours.do, query, folder, folder / "ours")
                flink.collect(query.select, folder / "changes")
                theirs = _table(line.rstrip("\n") for line in (folder / "changes").open(encoding="utf-8"))
                mine = _table(_line(row) for row in ours.rows(query.select))
                equal = mine == theirs
                report.add(at_least(f"{name}, rows equal to Flink's", float(equal), 1, "", f"{theirs['rows']} rows"))
                if not equal:
                    report.note(f"{name}: Flink {theirs}, ours {mine}")
                kept.keep(name, "equal", {"events": sizes.compared_events, "flink": theirs, "ours": mine})
        ours.close()


def _line(row: Any) -> str:
    """A change as `Flink.collect` writes it."""
    return "\t".join([str(row.get_row_kind()), *(_text(value) for value in row)])


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.strftime("%Y-%m-%d %H:%M:%S.") + f"{value.microsecond // 1000:03d}"
    return "null" if value is None else str(value)


def _table(lines: Iterable[str]) -> dict[str, object]:
    """The result of changes: the number of rows, and an order-independent checksum."""
    counts: Counter[str] = Counter()
    for line in lines:
        kind, _, row = line.partition("\t")
        counts[row] += 1 if kind in ("+I", "+U") else -1
    if min(counts.values(), default=0) < 0:
        raise RuntimeError(f"taken away and never given: {min(counts, key=lambda row: counts[row])}")
    total = sum(int.from_bytes(sha256(row.encode()).digest()[:8]) * count for row, count in counts.items())
    return {"rows": counts.total(), "checksum": f"{total % (1 << 64):016x}"}


# --- speed ------------------------------------------------------------------------------------------------------------


def measure_speed(report: Report, session: SparkSession, sizes: Sizes, names: Sequence[str], kept: Kept) -> None:
    """Each engine once to warm up, once for the measurement, query by query."""
    with _events(sizes.warm_events) as warm, _events(sizes.events) as events, _fewer(sizes, events) as fewer:
        for name in names:
            for engine in sizes.engines:
                if engine == OURS or name not in BEYOND_FLINK:
                    with _told(report, f"{name}, {engine}"):
                        _measure_turn(report, session, sizes, name, engine, (warm, fewer[engine]), kept)
            ratio = ratio_of(kept.figures.get(name, {}))
            if ratio is not None:
                report.add(at_least(f"{name}, to Flink", ratio, 2))
    ratios = [ratio for name in QUERIES if (ratio := ratio_of(kept.figures.get(name, {}))) is not None]
    if ratios:
        mean = statistics.geometric_mean(ratios)
        report.add(at_least(f"geometric mean of {len(ratios)} queries", mean, 5))


@contextmanager
def _fewer(sizes: Sizes, events: Path) -> Iterator[dict[str, Path]]:
    """The events of each engine: RocksDB may have fewer."""
    folders = dict.fromkeys((OURS, *BACKENDS), events)
    if sizes.rocksdb_events == sizes.events or "rocksdb" not in sizes.engines:
        yield folders
        return
    with _events(sizes.rocksdb_events) as fewer:
        yield {**folders, "rocksdb": fewer}


def _measure_turn(
    report: Report,
    session: SparkSession,
    sizes: Sizes,
    name: str,
    engine: str,
    folders: Sequence[Path],
    kept: Kept,
) -> None:
    """One query on one engine."""
    query = query_of(name)
    if engine == OURS:
        cost = _our_cost(session, query, folders)
    else:
        with Flink(TASKS, heap=FLINK_HEAP) as flink:
            for key, value in FLINK_STATE[engine].items():
                flink.set(key, value)
            cost = _flinks_cost(flink, query, folders)
    events = sizes.rocksdb_events if engine == "rocksdb" else sizes.events
    figure = {"events": events, "cpu_s": cost[0], "wall_s": cost[1]}
    kept.keep(name, engine, figure)
    report.note(f"{name}, {engine}: {rate_of(figure):,.0f} k events a core-second, {cost[1]:.1f} s by the clock")


def _our_cost(session: SparkSession, query: NexmarkQuery, folders: Sequence[Path]) -> tuple[float, float]:
    """The cost over the last folder; the others warm up."""
    cost = (0.0, 0.0)
    for folder in folders:
        ours = Ours(session)
        try:
            _define(ours.do, query, folder, folder / "ours")
            cost = ours.cost(query.insert)
        finally:  # states are large, disks are small
            ours.close()
            shutil.rmtree(folder / "ours", ignore_errors=True)
    return cost


def _flinks_cost(flink: Flink, query: NexmarkQuery, folders: Sequence[Path]) -> tuple[float, float]:
    cost = (0.0, 0.0)
    for folder in folders:
        _define(flink.do, query, folder, folder / "flink")
        taken = flink.do(query.insert)
        cost = taken.cpu_s, taken.wall_s
        shutil.rmtree(folder / "flink", ignore_errors=True)
    return cost


def measure_growth(report: Report, session: SparkSession, sizes: Sizes, names: Sequence[str], kept: Kept) -> None:
    """The cost per event for a quarter of the events, and for all of them."""
    quarter = sizes.events // 4
    with _events(sizes.warm_events) as warm, _events(quarter) as few, _events(sizes.events) as many:
        for name in (name for name in names if name in GROWING):
            query = query_of(name)
            with _told(report, name):
                small = _our_cost(session, query, (warm, few))[0] / quarter
                large = _our_cost(session, query, (warm, many))[0] / sizes.events
                report.add(at_most(f"{name}, an event of 4 × the events", large / small, 1.2))
                kept.keep(name, "growth", {"events": sizes.events, "few_us": small * 1e6, "many_us": large * 1e6})


# --- stored figures ---------------------------------------------------------------------------------------------------


class Kept:
    """The figures of all queries so far, in a file; and on the pages below `root`, except in a smoke test."""

    def __init__(self, path: Path, root: Path | None) -> None:
        self._path, self._root = path, root
        self.figures: dict[str, dict[str, Any]] = json.loads(path.read_text()) if path.exists() else {}

    def keep(self, query: str, what: str, figure: dict[str, Any]) -> None:
        """Store a figure, with its time and machine."""
        measured = {"at": f"{datetime.now():%Y-%m-%d %H:%M}", "load": Machine.here().load}
        self.figures.setdefault(query, {})[what] = {**figure, **measured}
        self._path.parent.mkdir(exist_ok=True)
        self._path.write_text(json.dumps(self.figures, indent=1, sort_keys=True) + "\n")
        if self._root is not None:
            write_pages(self.figures, self._root)


@contextmanager
def _told(report: Report, name: str) -> Iterator[None]:
    """A failing query is reported, and has no figure; the others continue."""
    try:
        yield
    except Exception as error:  # whatever an engine raises
        report.add(at_least(f"{name} runs", 0, 1, "", str(error).splitlines()[0][:160]))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", action="store_true", help="print JSON in place of lines")
    parser.add_argument("--quick", action="store_true", help="smaller sizes: a smoke test, whose figures are not kept")
    parser.add_argument("--events", type=int, help="how many events are measured")
    parser.add_argument("--rocksdb-events", type=int, help="how many of them Flink on RocksDB has, if fewer")
    parser.add_argument("--only", default=",".join(QUERIES), help="these queries, as q3,q4")
    parser.add_argument("--parts", default=",".join(PARTS), help=f"these parts of {', '.join(PARTS)}")
    parser.add_argument("--engines", default=",".join((OURS, *BACKENDS)), help="speed of ours, hashmap, rocksdb")
    asked = parser.parse_args()
    sizes = QUICK if asked.quick else Sizes()
    sizes = replace(sizes, engines=tuple(asked.engines.split(",")))
    if asked.events:
        sizes = replace(sizes, events=asked.events, warm_events=min(sizes.warm_events, asked.events // 4))
    sizes = replace(sizes, rocksdb_events=min(asked.rocksdb_events or sizes.events, sizes.events))
    report = Report("bench-nexmark", as_json=asked.json, quick=asked.quick)
    kept = Kept(Path(tempfile.mkdtemp()) / "nexmark.json", None) if asked.quick else Kept(RESULTS, FOLDER.parent)
    logs = Path(tempfile.mkdtemp(prefix="millstream-bench-logs-"))
    session = make_session(f"local[{TASKS}]", {}, logs / "spark.log")
    measured = {"results": measure_results, "speed": measure_speed, "growth": measure_growth}
    try:
        for part in asked.parts.split(","):
            measured[part](report, session, sizes, asked.only.split(","), kept)
    finally:
        session.stop()
    return report.close()


if __name__ == "__main__":
    raise SystemExit(main())
