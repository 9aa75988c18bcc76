"""A job with an archived table, watched after every operation of a store: at any moment and any retained epoch, the
table contains the result of the changes up to that epoch.

The changes are applied to a plain dictionary too, which is the truth. An epoch's manifest says how far it has read.
Stores are in memory, so that every operation on them, by tasks, driver or publisher, is a moment to check, or to crash.
"""

from __future__ import annotations

import datetime as dt
import itertools
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pyarrow as pa

from millstream import query
from millstream.checkpoint.job_record import read as read_job_record
from millstream.common import Configuration
from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import JobFailedError, MillstreamError
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.query.errors import NoEpochError, UnknownStateError
from millstream.runtime.task.local import LocalRunner
from millstream.storage.memory import MemoryStore
from millstream.storage.names import epoch_of_manifest
from millstream.table import Schema, StreamTableEnvironment
from millstream.testing import EPOCH, ManualClock, Pause, Script, Watermark, run
from stores.lagging_store import LaggingStore

ROW = Types.ROW_NAMED(["t", "k", "v"], [Types.SQL_TIMESTAMP(), Types.INT(), Types.LONG()])
NUMBERS = itertools.count()
SECOND = 1_000
Rows = Counter[tuple[int, int, int]]


@dataclass(frozen=True)
class Kind:
    """A kind of table: its key, and the column by which it is archived."""

    key: tuple[str, ...]
    by: str | None
    after_s: int = 5
    every_s: int = 2
    has_archive: bool = True

    def create(self, archive: str, format: str = "parquet") -> str:
        if not self.has_archive:
            return (
                "CREATE TABLE kept (t TIMESTAMP(3) NOT NULL, k INT NOT NULL, v BIGINT, PRIMARY KEY "
                f"({', '.join(self.key)}) NOT ENFORCED) WITH ('connector' = 'state')"
            )
        key = f", PRIMARY KEY ({', '.join(self.key)}) NOT ENFORCED" if self.key else ""
        by = f"'archive.by' = '{self.by}', " if self.by else ""
        return (
            f"CREATE TABLE kept (t TIMESTAMP(3) NOT NULL, k INT NOT NULL, v BIGINT{key}) WITH ('connector' = 'state', "
            f"'archive.path' = '{archive}', 'archive.format' = '{format}', {by}"
            f"'archive.after' = '{self.after_s} s', 'archive.every' = '{self.every_s} s')"
        )


KINDS = {
    "time in the key": Kind(("t", "k"), "t"),
    "time beside the key": Kind(("k",), "t"),
    "by the clock": Kind(("k",), None),
    "counted by time": Kind((), "t"),
    "counted by the clock": Kind((), None),
}


@dataclass
class Changes:
    """A script, and the rows of the table after each of its items."""

    script: list[Any] = field(default_factory=list)
    after: list[Rows] = field(default_factory=lambda: [Counter()])

    def add(self, item: Any, rows: Rows) -> None:
        self.script.append(item)
        self.after.append(Counter(rows))


def random_changes(random: Random, kind: Kind, epochs: int, size: int = 6) -> Changes:
    """Rows are inserted, updated and deleted, some of them late, while the watermark advances."""
    changes, rows, now = Changes(), Counter(), 0
    places = [("t", "k", "v").index(name) for name in kind.key]
    for _ in range(epochs):
        for _ in range(random.randrange(size + 1)):
            t = max(0, now - random.choice((0, 0, 1, 4, 12, 30)))
            row = (t, random.randrange(3), random.randrange(3))
            name = tuple(row[at] for at in places)
            same = [each for each in rows if places and tuple(each[at] for at in places) == name]
            if rows and random.random() < 0.3:
                gone = random.choice(sorted(rows))
                rows[gone] -= 1
                rows += Counter()
                changes.add(changed_row(RowKind.DELETE, gone), rows)
            elif same:
                changes.add(changed_row(RowKind.UPDATE_BEFORE, same[0]), rows - Counter(same))
                rows = rows - Counter(same) + Counter([row])
                changes.add(changed_row(RowKind.UPDATE_AFTER, row), rows)
            else:
                rows[row] += 1
                changes.add(changed_row(RowKind.INSERT, row), rows)
        step = random.choice((0, 1, 3, 9))
        now += step
        changes.add(Watermark(now * SECOND), rows)
        if step:
            changes.add(Pause(step * SECOND), rows)
        changes.add(EPOCH, rows)
    return changes


def changed_row(kind: RowKind, row: tuple[int, int, int]) -> Row:
    made = Row(moment(row[0]), row[1], row[2])
    made.set_row_kind(kind)
    return made


def moment(second: int) -> dt.datetime:
    return dt.datetime(1970, 1, 1) + dt.timedelta(seconds=second)


def add_table(
    env: Any, changes: Changes, kind: Kind, archive: str, clock: ManualClock, format: str = "parquet"
) -> None:
    """The program: a table, and the INSERT into it."""
    t_env = StreamTableEnvironment.create(env)
    stream = env.add_source(Script(changes.script, type_info=ROW, clock=clock), type_info=ROW)
    schema = Schema.new_builder().column("t", "TIMESTAMP(3) NOT NULL").column("k", "INT NOT NULL")
    t_env.create_temporary_view("changes", t_env.from_changelog_stream(stream, schema.column("v", "BIGINT").build()))
    t_env.execute_sql(kind.create(archive, format))
    t_env.get_config().set("millstream.retention.epochs", "1000")
    statements = t_env.create_statement_set()
    statements.add_insert_sql("INSERT INTO kept SELECT t, k, v FROM changes")
    statements.attach_as_datastream()


def run_table(
    changes: Changes,
    kind: Kind,
    store: str,
    archive: str,
    clock: ManualClock,
    parallelism: int = 1,
    epochs: int | None = None,
    format: str = "parquet",
) -> None:
    """Run the job to its end, or until it crashes."""

    def build(env: Any) -> None:
        add_table(env, changes, kind, archive, clock, format)

    run(build, store=store, parallelism=parallelism, clock=clock, epochs=epochs)


class Died(Exception):
    """The process ended here."""


@dataclass
class Watch:
    """Checks the table after every operation of a store; crashes at a given operation."""

    changes: Changes
    store: str
    dies_at: int | None = None
    operations: int = 0
    looks: int = 0
    wrong: list[str] = field(default_factory=list)
    files: set[str] = field(default_factory=set)
    marks: int = 0
    _is_looking: threading.local = field(default_factory=threading.local)

    def operation(self, store: str, name: str) -> None:
        """Something was written or removed. Segments are looked at when a manifest names them."""
        if getattr(self._is_looking, "now", False):
            return
        if "archive-" in store or epoch_of_manifest(name) is not None:
            self._is_looking.now = True
            try:
                self.look()
            finally:
                self._is_looking.now = False
        self.operations += 1
        if self.dies_at is not None and self.operations >= self.dies_at:
            raise Died

    def look(self) -> None:
        """The newest epoch has the rows that it has read."""
        if read_job_record(MemoryStore(self.store)) is None:
            return  # its driver has only a lease
        try:
            self.check(query.open(f"memory://{self.store}").newest())
        except (NoEpochError, UnknownStateError):
            pass  # before the first epoch
        except MillstreamError as error:
            self.wrong.append(str(error))  # raised here, it would fail the driver, which retries

    def look_back(self) -> None:
        """Every retained epoch has the rows that it has read."""
        job = query.open(f"memory://{self.store}")
        for epoch in job.epochs():
            with job.at(epoch=epoch) as view:
                self.check(view)
                self.check_keys(view)

    def check(self, view: query.EpochView) -> None:
        table = view.table("kept")
        [positions] = view._manifest.sources.values()
        read = next(iter(positions.values())).offset
        found = Counter((int(row["t"].timestamp()), row["k"], row["v"]) for row in utc_rows(table.all()))
        self.looks += 1
        self.files = {file.file for file in table.archived_files}
        removed = table._reads.removed
        self.marks = 0 if removed is None else sum(block.num_rows for block in removed.scan())
        expected = self.changes.after[read]
        if found != expected:
            self.wrong.append(f"epoch {view.epoch}, {read} read: missing {expected - found}, extra {found - expected}")

    def check_keys(self, view: query.EpochView) -> None:
        """Point lookups, single and batched, return the same rows."""
        table = view.table("kept")
        if not table.primary_key:
            return
        rows = table.all()
        absent = {"t": moment(10**6), "k": 10**6}
        keys = [*({name: row[name] for name in table.primary_key} for row in rows.to_pylist()), absent]
        columns = [pa.array([key[name] for key in keys], rows.schema.field(name).type) for name in table.primary_key]
        names = [f"key{number}" for number in range(len(columns))]
        wanted = columns[0] if len(columns) == 1 else pa.StructArray.from_arrays(columns, names=names)
        one_by_one = [table.of_keys(wanted.slice(at, 1)) for at in range(len(wanted))]
        for found in (table.of_keys(wanted), pa.concat_tables(one_by_one)):
            if Counter(map(str, found.to_pylist())) != Counter(map(str, rows.to_pylist())):
                self.wrong.append(f"epoch {view.epoch}: by key {found.to_pylist()}, expected {rows.to_pylist()}")


def utc_rows(rows: Any) -> list[dict[str, Any]]:
    return [{**row, "t": row["t"].replace(tzinfo=dt.UTC)} for row in rows.to_pylist()]


@contextmanager
def watched(watch: Watch) -> Iterator[Watch]:
    """Check at every operation that changes an in-memory store."""
    names = ("create", "put", "delete", "delete_many")
    before = {name: getattr(MemoryStore, name) for name in names}

    def observed(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(self: MemoryStore, *arguments: Any) -> Any:
            answer = method(self, *arguments)
            watch.operation(self.url, arguments[0] if isinstance(arguments[0], str) else "")
            return answer

        return call

    for name, method in before.items():
        setattr(MemoryStore, name, observed(method))
    try:
        yield watch
    finally:
        for name, method in before.items():
            setattr(MemoryStore, name, method)


def killed_and_resumed(
    changes: Changes, kind: Kind, dies_at: int | None, parallelisms: tuple[int, int] = (1, 1)
) -> Watch:
    """Run the job, crash it at an operation of a store, run it to its end, with checks throughout. For files, the
    newest epoch references exactly the published ones.
    """
    (store, archive), clock = new_stores(), ManualClock()
    watch = Watch(changes, store, dies_at)
    with watched(watch):
        if dies_at is not None:
            with suppress(JobFailedError, Died):
                run_table(changes, kind, store, archive, clock, parallelisms[0])
            watch.dies_at = None
            watch.look()
        run_table(changes, kind, store, archive, clock, parallelisms[1])
    watch.look_back()
    watch.look()
    if watch.files != set(published(archive)):
        watch.wrong.append(f"published {published(archive)}, and the state names {sorted(watch.files)}")
    return watch


def new_stores() -> tuple[str, str]:
    """A fresh store name and archive address."""
    number = next(NUMBERS)
    return f"archived-{number}", f"memory://archive-{number}"


def published(archive: str) -> Sequence[str]:
    """The visible files."""
    return [name for name in MemoryStore(archive.removeprefix("memory://")).list("") if not name.startswith((".", "_"))]


def ahead_of_commits(
    changes: Changes, kind: Kind, store: LaggingStore, archive: str, clock: ManualClock, parallelism: int = 1
) -> Job:
    """Run the job in a store whose files and manifests arrive late: epochs run ahead of commits."""
    env = StreamExecutionEnvironment().set_parallelism(parallelism)
    env.configure(Configuration().set_string("millstream.ahead.max-epochs", "4"))
    add_table(env, changes, kind, archive, clock)
    return Launch(clock, LocalRunner(), store).prepare(env._graph("job"), env._job_settings())
