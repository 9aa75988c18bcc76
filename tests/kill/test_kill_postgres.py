"""Real kills of a job between two tables of a real PostgreSQL: of the job, of a task, of the server, of the network.

Changes of a table are counted by key, and every count goes to a ledger, exactly once. While somebody writes the table,
things are killed at moments drawn from a seed; at the end the ledger holds every count of every key once, and the
totals are what the ledger says. Every fourth of the seeds of `test_kill.py` is one here.
"""

from __future__ import annotations

import os
import queue
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest
from killing import PHASE_TIMEOUT_S, ROOT, SEEDS
from process_session import ProcessSession
from servers.postgres import PostgresServer
from servers.tcp_proxy import TcpProxy

SOME_SEEDS = [seed for seed in SEEDS if seed % 4 == 1] or list(SEEDS)
KEYS = 7
PASSWORD = "hush-nobody-may-read-this"


@dataclass
class Tables:
    """The tables of one run, and what was written to the first."""

    server: PostgresServer
    name: str
    changes: Counter[str]

    @property
    def all_names(self) -> list[str]:
        return [self.name, f"{self.name}_ledger", f"{self.name}_totals"]

    def query(self, sql: str) -> list[Any]:
        return self.server.execute(sql)

    def make(self) -> None:
        source, ledger, totals = self.all_names
        self.query(f"create role {self.name} login superuser password '{PASSWORD}'")
        self.query(f"create table {source} (id bigint generated always as identity primary key, key text, n int)")
        self.query(f"alter table {source} replica identity full")
        self.query(f"create table {ledger} (key text, n bigint)")
        self.query(f"create table {totals} (key text primary key, n bigint)")

    def write(self, rng: random.Random, transactions: int) -> None:
        """Some transactions, of which a part is rolled back; an update is two changes, of the row before and after."""
        with psycopg.connect(self.server.dsn) as connection:
            for _ in range(transactions):
                changes: Counter[str] = Counter()
                for _ in range(rng.randrange(1, 5)):
                    key = f"k{rng.randrange(KEYS)}"
                    if rng.random() < 0.6:
                        connection.execute(f"insert into {self.name} (key, n) values ('{key}', 1)")
                        changes[key] += 1
                    else:
                        act = rng.choice([f"update {self.name} set n = n + 1", f"delete from {self.name}"])
                        done = connection.execute(
                            f"{act} where id in (select id from {self.name} where key = '{key}' limit 3)"
                        )  # type: ignore[call-overload]
                        changes[key] += done.rowcount * (2 if act.startswith("update") else 1)
                if rng.random() < 0.2:
                    connection.rollback()
                else:
                    connection.commit()
                    self.changes += changes

    def is_whole(self) -> bool:
        """Whether both tables have as much as they should; the two sinks publish one after the other."""
        sql = f"select (select count(*) from {self.name}_ledger), (select coalesce(sum(n), 0) from {self.name}_totals)"
        total = self.changes.total()
        return all(count >= total for count in self.query(sql)[0])

    def check(self, history: list[str]) -> None:
        rows = self.query(f"select key, n from {self.name}_ledger")
        expected = [(key, n) for key, count in self.changes.items() for n in range(1, count + 1)]
        twice = [row for row, count in Counter(rows).items() if count > 1]
        missing = set(expected) - set(rows)
        assert sorted(rows) == sorted(expected), f"twice {twice[:5]}, missing {sorted(missing)[:5]}; {history}"  # type: ignore[type-var]
        assert dict(self.query(f"select key, n from {self.name}_totals")) == dict(self.changes), history

    def drop(self) -> None:
        self.query(
            "select pg_drop_replication_slot(slot_name) from pg_replication_slots "
            f"where slot_name like '{self.name}%' and not active"
        )


@pytest.fixture
def tables(postgres_server: PostgresServer, unique_name: str) -> Iterator[Tables]:
    tables = Tables(postgres_server, f"k{unique_name[-12:]}", Counter())
    tables.make()
    yield tables
    tables.drop()


class RunningJob:
    """The job, started, and started again after it was killed."""

    def __init__(self, folder: Path, tables: Tables, port: int) -> None:
        self._folder, self._tables, self._port = folder, tables, port
        self._session: ProcessSession | None = None

    def start(self, parallelism: int) -> None:
        script = Path(__file__).with_name("database_program.py")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(script.parent)])}
        url = f"postgresql://{self._tables.name}:{PASSWORD}@127.0.0.1:{self._port}/test"
        command = [sys.executable, str(script), str(self._folder / "store"), url, *self._tables.all_names]
        self._session = ProcessSession(
            [*command, str(parallelism)], environment, self._folder, self._folder / "stderr.log"
        )

    def until_epochs(self, count: int) -> None:
        """Wait until so many more epochs are committed."""
        assert self._session is not None
        for _ in range(count):
            while not (line := self._line()).startswith("PHASE epoch"):
                assert line

    def _line(self) -> str:
        assert self._session is not None
        try:
            line = self._session.next_line(PHASE_TIMEOUT_S)
        except queue.Empty:
            raise AssertionError(f"stuck:\n{self._session.errors()[-4000:]}") from None
        assert line is not None, f"it ended:\n{self._session.errors()[-4000:]}"
        return line

    def until(self, tables: Tables) -> None:
        deadline_s = time.monotonic() + PHASE_TIMEOUT_S
        while not tables.is_whole():
            assert self._session is not None and self._session.exit_code() is None, self.errors()[-4000:]
            assert time.monotonic() < deadline_s, f"it did not come to an end:\n{self.errors()[-4000:]}"
            time.sleep(0.05)

    def kill_a_task(self) -> bool:
        """Kill one of Spark's Python workers, with what it reads or stages."""
        assert self._session is not None
        for pid in self._session.alive():
            try:
                process = psutil.Process(pid)
                parent = process.parent()
                # Workers are forks of Spark's daemon, and look like it.
                if parent is not None and all("pyspark.daemon" in p.cmdline() for p in (process, parent)):
                    os.kill(pid, signal.SIGKILL)
                    return True
            except (psutil.Error, ProcessLookupError):
                continue
        return False

    def kill(self) -> None:
        if self._session is not None:
            self._session.kill()

    def errors(self) -> str:
        assert self._session is not None
        return self._session.errors()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SOME_SEEDS)
def test_counts_from_a_table_into_tables_are_whole_whatever_is_killed(
    seed: int, tables: Tables, postgres_proxy: TcpProxy, tmp_path: Path
) -> None:
    rng, history = random.Random(f"postgres-{seed}"), []
    tables.write(rng, 30)
    # What was there before is told as rows, not as the changes that made them.
    tables.changes = Counter(dict(tables.query(f"select key, count(*) from {tables.name} group by key")))
    job = RunningJob(tmp_path, tables, postgres_proxy.port)
    try:
        job.start(2)
        job.until_epochs(1)
        acts = ["task", "server", "drop", "cut", "job"]
        rng.shuffle(acts)
        for act in acts:
            tables.write(rng, rng.randrange(20, 60))
            time.sleep(rng.random() * 0.3)
            history.append(act)
            if act == "task":
                job.kill_a_task()
            elif act == "server":
                tables.server.kill()
                tables.server.restart()
            elif act == "drop":
                postgres_proxy.drop()
            elif act == "cut":
                postgres_proxy.cut_after(rng.randrange(4000))
                time.sleep(0.3)
                postgres_proxy.mend()
            else:
                job.kill()
                job.start(rng.choice([1, 3]))
                tables.write(rng, 20)  # it may have read all that was there
                job.until_epochs(1)
        tables.write(rng, 20)
        job.until(tables)
    finally:
        postgres_proxy.mend()
        job.kill()
    print(f"seed {seed}: {history}, {tables.changes.total()} changes")
    tables.check(history)
    assert PASSWORD not in job.errors()
    for file in (tmp_path / "store").rglob("*"):
        assert not file.is_file() or PASSWORD.encode() not in file.read_bytes(), file
