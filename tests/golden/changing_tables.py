"""Changing tables for tests: random changelogs cut into epochs, a query over them, and the batch engine's answer.

The oracle is DuckDB over the prefix of the changes that an epoch's manifest records as read: after every epoch the
query's emitted changes, applied, must equal the same SQL text over that prefix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import duckdb
from first_values import FirstValues
from inputs.fresh_names import fresh_name
from timed_tables import TimedTable, ran
from timed_views import LATEST, TimedView

from millstream.checkpoint.manifest import Manifest
from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.table import StreamTableEnvironment
from millstream.testing import CRASH, EPOCH, Collect, Result, Script, run
from millstream.testing.collecting import Collected

COLUMNS = ("k", "v", "s", "x")
TYPE = Types.ROW_NAMED(list(COLUMNS), [Types.INT(), Types.LONG(), Types.STRING(), Types.DOUBLE()])
ADDED = (RowKind.INSERT, RowKind.UPDATE_AFTER)
MACROS = (
    "CREATE MACRO COLLECT(each) AS COALESCE(LIST(each) FILTER (WHERE each IS NOT NULL), [])",
    "CREATE MACRO JSON_ARRAYAGG(each) AS "
    "COALESCE(CAST(TO_JSON(LIST(each) FILTER (WHERE each IS NOT NULL)) AS VARCHAR), '[]')",
)
Contents = Mapping[str, Sequence[tuple[Any, ...]]]
Comparable = Callable[[tuple[Any, ...]], tuple[Any, ...]]


@dataclass
class Changelog:
    """The changes of a table, in epochs."""

    epochs: list[list[Row]] = field(default_factory=list)

    def script(self, crashes: Sequence[int] = ()) -> list[Any]:
        """As a script; the task fails once at the end of these epochs."""
        items: list[Any] = []
        for number, rows in enumerate(self.epochs):
            items += rows
            items += [CRASH] if number in crashes else []
            items.append(EPOCH)
        return items


def rows_left(changes: Any) -> list[tuple[Any, ...]]:
    """The remaining rows; retracting an absent row fails, even if only the sign of a zero differs."""
    counts: Counter[str] = Counter()
    rows: dict[str, tuple[Any, ...]] = {}
    for change in changes:
        row = tuple(change)
        written = repr(row)  # 0.0 and -0.0 are equal, but distinguishable
        if change.get_row_kind() in ADDED:
            counts[written] += 1
            rows[written] = row
        else:
            assert counts[written] > 0, f"{row} is taken away and is not there"
            counts[written] -= 1
    return [rows[written] for written in counts.elements()]


def materialised(changes: Any) -> Counter[tuple[Any, ...]]:
    """The remaining rows as a multiset."""
    return Counter(rows_left(changes))


def random_changelog(
    random: Random, epochs: int, rows_max: int, *, only_grows: bool, keys: int = 4, both_zeros: bool = False
) -> Changelog:
    """Changes of rows with NULLs, doubles and updates. `both_zeros`: every other zero is -0.0."""
    changelog, live = Changelog(), []
    for _ in range(epochs):
        changes: list[Row] = []
        for _ in range(random.randrange(rows_max + 1)):
            action = "add" if only_grows or not live else random.choice(("add", "add", "update", "delete"))
            if action != "add":
                gone = live.pop(random.randrange(len(live)))
                kind = RowKind.UPDATE_BEFORE if action == "update" else RowKind.DELETE
                changes.append(_row(gone, kind))
            if action != "delete":
                made = _random_row(random, keys)
                if both_zeros and made[3] == 0 and random.random() < 0.5:
                    made = (*made[:3], -0.0)
                live.append(made)
                changes.append(_row(made, RowKind.UPDATE_AFTER if action == "update" else RowKind.INSERT))
        changelog.epochs.append(changes)
    return changelog


def _row(values: tuple[Any, ...], kind: RowKind) -> Row:
    row = Row(*values)
    row.set_row_kind(kind)
    return row


def _random_row(random: Random, keys: int) -> tuple[Any, ...]:
    def or_null(value: Any) -> Any:
        return None if random.random() < 0.12 else value

    return (
        or_null(random.randrange(keys)),
        or_null(random.randrange(-9, 10)),
        or_null(random.choice(("a", "b", "c", ""))),
        or_null(random.randrange(-4, 5) / 2),
    )


@dataclass(frozen=True)
class RunPlan:
    """How a job runs: its parallelism, and the epochs at whose end it fails once. If it stops after some epochs it is
    restored at another parallelism. `epoch_records`: epochs are also cut after this many records of a table.
    """

    parallelism: int = 1
    crashes: tuple[int, ...] = ()
    stops_after: int | None = None
    then_parallelism: int = 1
    epoch_records: int | None = None

    @classmethod
    def random(cls, random: Random, epochs: int) -> RunPlan:
        """A random plan."""
        return cls(
            random.randrange(1, 4),
            tuple(number for number in range(epochs) if random.random() < 0.15),
            random.randrange(1, epochs) if random.random() < 0.4 else None,
            random.randrange(1, 4),
            random.choice((None, None, None, 4)),
        )

    def phases(self) -> list[tuple[int, int | None]]:
        """Each run's parallelism, and the number of epochs after which it stops."""
        stopped = [] if self.stops_after is None else [(self.parallelism, self.stops_after)]
        return [*stopped, (self.then_parallelism if stopped else self.parallelism, None)]


def check_every_epoch(
    query: str,
    tables: Mapping[str, Changelog],
    life: RunPlan,
    *,
    only_grows: bool,
    views: Mapping[str, FirstValues] | None = None,
    comparable: Comparable = tuple,
    oracle: str | None = None,
) -> None:
    """Run the query over the tables and compare its result with DuckDB's after every epoch.

    `views` are computed here from the tables. `comparable` normalises the rows of both. `oracle` is the query in
    DuckDB's dialect.
    """
    crashes = [life.crashes, *[()] * len(tables)]
    scripts = {name: table.script(at) for (name, table), at in zip(tables.items(), crashes, strict=False)}
    store = fresh_name("changing")

    def run_for(parallelism: int, epochs: int | None) -> tuple[Result, Collect]:
        out = Collect()
        build = partial(_add_query, query, scripts, out, only_grows, views=views)
        how = {"epochs": epochs, "epoch_records": life.epoch_records}
        return run(build, parallelism=parallelism, store=store, **how), out

    def contents(number: int, manifest: Manifest) -> Contents:
        read = {name: _read(manifest, name, scripts[name]) for name in tables}
        rows = {name: rows_left(changes) for name, changes in read.items()}
        return rows | {name: view.rows(read[view.table]) for name, view in (views or {}).items()}

    _compare(oracle or query, *_run_phases(life, run_for), contents, comparable, f"{life}: {query}; {views}")


def check_timed_query(
    query: str,
    views: Mapping[str, TimedView],
    tables: Mapping[str, TimedTable],
    life: RunPlan,
    comparable: Comparable,
) -> None:
    """The same for a query over views of timed tables, each of which computes its own contents."""
    store = fresh_name("timed")
    queries = {"latest": LATEST} | {name: view.query for name, view in views.items()}

    def run_for(parallelism: int, epochs: int | None) -> tuple[Result, Collect]:
        return ran(query, tables, views=queries, parallelism=parallelism, epochs=epochs, store=store)

    by_view = {name: view.contents(tables) for name, view in views.items()}

    def contents(number: int, manifest: Manifest) -> Contents:
        return {name: [row for at, row in rows if at <= number] for name, rows in by_view.items()}

    _compare(query, *_run_phases(life, run_for), contents, comparable, f"{life}: {query}; {queries}")


def _run_phases(
    life: RunPlan, run_for: Callable[[int, int | None], tuple[Result, Collect]]
) -> tuple[list[Collected], list[Manifest]]:
    """The changes that a job emitted in all its runs, and the manifests of epochs that read input."""
    changes: list[Collected] = []
    manifests: list[Manifest] = []
    for parallelism, epochs in life.phases():
        result, out = run_for(parallelism, epochs)
        changes += result.of(out)
        manifests += result.manifests
        if result.status == "FINISHED":
            break
    return changes, [manifest for manifest in manifests if manifest.status in ("RUNNING", "DRAINED")]


def _compare(
    query: str,
    changes: Sequence[Collected],
    manifests: Sequence[Manifest],
    contents: Callable[[int, Manifest], Contents],
    comparable: Comparable,
    story: str,
) -> None:
    """Compare the applied changes with DuckDB's answer over the tables' contents after every epoch."""
    with duckdb.connect() as database:
        database.execute("SET threads = 1")
        for macro in MACROS:
            database.execute(macro)
        for number, manifest in enumerate(manifests):
            left = rows_left(record.value for record in changes if record.epoch <= manifest.epoch)
            given = Counter(map(comparable, left))
            expected = Counter(map(comparable, answer(database, query, contents(number, manifest))))
            assert given == expected, (
                f"epoch {manifest.epoch}: {given - expected} too much, {expected - given} missing. {story}"
            )


def _add_query(
    query: str,
    scripts: Mapping[str, list[Any]],
    out: Collect,
    only_grows: bool,
    env: Any,
    *,
    views: Mapping[str, FirstValues] | None = None,
) -> None:
    t_env = StreamTableEnvironment.create(env)
    for name, script in scripts.items():
        stream = env.add_source(Script(script, type_info=TYPE), type_info=TYPE).uid(name)
        table = t_env.from_data_stream(stream) if only_grows else t_env.from_changelog_stream(stream)
        t_env.create_temporary_view(name, table)
    for name, view in (views or {}).items():
        t_env.create_temporary_view(name, t_env.sql_query(view.query))
    t_env.to_changelog_stream(t_env.sql_query(query)).sink_to(out)


def _read(manifest: Manifest, name: str, script: Sequence[Any]) -> list[Row]:
    """The changes of a table read by the end of an epoch."""
    offset = manifest.sources[name]["script-0"].offset
    return [item for item in script[:offset] if isinstance(item, Row)]


def answer(
    database: duckdb.DuckDBPyConnection, query: str, tables: Mapping[str, Sequence[tuple[Any, ...]]]
) -> list[tuple[Any, ...]]:
    """DuckDB's answer."""
    for name, rows in tables.items():
        database.execute(f"CREATE OR REPLACE TABLE {name} (k INTEGER, v BIGINT, s VARCHAR, x DOUBLE)")
        if rows:
            values = ", ".join(f"({', '.join(map(_literal, row))})" for row in rows)
            database.execute(f"INSERT INTO {name} VALUES {values}")
    return [tuple(row) for row in database.execute(query).fetchall()]


def _literal(value: Any) -> str:
    return "NULL" if value is None else repr(value)
