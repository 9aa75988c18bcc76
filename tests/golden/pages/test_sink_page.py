"""The sink printed in docs/extend/write-a-sink.md publishes every record once: rerun, rolled back, restored, forked.

Each of these reuses epoch numbers of another job, or of an earlier life of the store.
"""

from __future__ import annotations

import itertools
import re
import sqlite3
import sys
import threading
import types
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from millstream.checkpoint.job_record import read as read_job_record
from millstream.common import Configuration, Types
from millstream.connectors.contracts import CommitId
from millstream.datastream import StreamExecutionEnvironment
from millstream.jobs.epochs.progress import JobProgress
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.storage.memory import MemoryStore
from millstream.testing import CRASH, EPOCH, ManualClock, Script, run

PAGE = Path(__file__).resolve().parents[3] / "docs" / "extend" / "write-a-sink.md"
_STORES = itertools.count()
NUMBERS = range(60)


@pytest.fixture(scope="module")
def page() -> Iterator[types.ModuleType]:
    """The first program of the page, as a user's module."""
    module = types.ModuleType("printed_sink")
    sys.modules[module.__name__] = module
    cloudpickle.register_pickle_by_value(module)
    [program, *_] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    exec(compile(program, PAGE.name, "exec"), vars(module))
    yield module
    cloudpickle.unregister_pickle_by_value(module)
    del sys.modules[module.__name__]


def new_store() -> str:
    return f"sink-page-{next(_STORES)}"


def ran(sink: Any, store: str, start: str | None = None, epochs: int | None = None, crash: bool = False) -> None:
    """0 to 59, ten to an epoch, into two sinks of one table (the second takes multiples of ten, negated)."""
    items = [n for ten in range(0, 60, 10) for n in (*range(ten, ten + 10), EPOCH)]
    script = Script([*items[:25], CRASH, *items[25:]] if crash else items, type_info=Types.LONG())

    def build(env: StreamExecutionEnvironment) -> None:
        if start is not None:
            env.configure(Configuration().set_string("execution.state-recovery.path", start))
        read = env.add_source(script, "numbers").uid("numbers")
        read.sink_to(sink).uid("all")
        read.filter(lambda n: n % 10 == 0).map(lambda n: -n, Types.LONG()).sink_to(sink).uid("tens")

    run(build, store=store, epochs=epochs, job_name="numbers")


def rows(path: Path) -> dict[str, Counter[int]]:
    """The numbers of each job, negatives left out; those of the second sink must fit them."""
    with closing(sqlite3.connect(path)) as database:
        table = database.execute("select job, n from numbers").fetchall()
    jobs: dict[str, Counter[int]] = {}
    for job, n in table:
        jobs.setdefault(job, Counter())[n] += 1
    for counts in jobs.values():
        assert all(counts[-n] == counts[n] for n in range(10, 60, 10)), "the second sink of the job was skipped"
    return {job: Counter({n: count for n, count in counts.items() if n >= 0}) for job, counts in jobs.items()}


def id_of(store: str) -> str:
    record = read_job_record(MemoryStore(store))
    assert record is not None
    return record.job_id


def test_the_printed_sink_is_exactly_once_through_a_crash_a_restart_and_a_rerun(
    page: types.ModuleType, tmp_path: Path
) -> None:
    sink, first, second = page.TableSink(str(tmp_path / "table.db")), new_store(), new_store()
    ran(sink, first, epochs=3, crash=True)
    ran(sink, first, crash=True)
    ran(sink, second)
    once = Counter(dict.fromkeys(NUMBERS, 1))
    once[0] = 2  # minus zero is zero
    assert rows(tmp_path / "table.db") == {id_of(first): once, id_of(second): once}


def test_the_printed_sink_loses_nothing_of_a_job_restored_elsewhere_or_forked(
    page: types.ModuleType, tmp_path: Path
) -> None:
    sink, old, new, other = page.TableSink(str(tmp_path / "table.db")), new_store(), new_store(), new_store()
    ran(sink, old, epochs=4)
    ran(sink, new, start=f"memory://{old}@2")
    ran(sink, other, start=f"memory://{old}@2")
    ran(sink, old)
    later = Counter(dict.fromkeys(range(20, 60), 1))
    found = rows(tmp_path / "table.db")
    assert found.pop(id_of(old))[1] == 1
    assert found == {id_of(new): later, id_of(other): later}


def test_the_printed_sink_loses_nothing_when_a_job_restores_an_earlier_epoch(
    page: types.ModuleType, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sink, store = page.TableSink(str(tmp_path / "table.db")), new_store()
    ran(sink, store, epochs=4)
    ran(sink, store, start=f"memory://{store}@2")
    counts = rows(tmp_path / "table.db")[id_of(store)]
    assert [counts[n] for n in (5, 25, 35, 45)] == [1, 2, 2, 1]
    told = f"rows of job = '{id_of(store)}' and epoch > 2 stay, and come again"
    assert told in caplog.text
    with closing(sqlite3.connect(tmp_path / "table.db")) as database:
        database.execute("delete from numbers where job = ? and epoch > 2 and epoch < 6", (id_of(store),))
        left = Counter(n for (n,) in database.execute("select n from numbers where n > 0"))
    assert left == Counter(dict.fromkeys(range(1, 60), 1))


def test_a_store_reused_after_delete_on_cancel_has_a_new_job_id(page: types.ModuleType, tmp_path: Path) -> None:
    sink, name = page.TableSink(str(tmp_path / "table.db")), new_store()
    store = MemoryStore(name)
    settings = Configuration().set_string(
        "execution.checkpointing.externalized-checkpoint-retention", "DELETE_ON_CANCELLATION"
    )
    env = StreamExecutionEnvironment.get_execution_environment(settings)
    items = [item for n in NUMBERS for item in (n, EPOCH)]
    env.add_source(Script(items, type_info=Types.LONG()), "numbers").uid("numbers").sink_to(sink).uid("all")
    job = Launch(ManualClock(), LocalRunner(), store).prepare(env._graph("numbers"), env._job_settings())
    first = str(job.job_id)
    store.put("input/frame/consumed.json", b"{}")  # a source's stored positions are removed with it
    reached = threading.Event()

    def cancel(progress: JobProgress) -> None:
        if progress.epoch >= 5 and not reached.is_set():
            reached.set()
            job.cancel()

    job.board.listen(cancel)
    job.start().wait()
    assert reached.is_set() and not store.list("manifests") and not store.list("input")
    ran(sink, name)
    with closing(sqlite3.connect(tmp_path / "table.db")) as database:
        mine = database.execute("select n from numbers where job = ? and n > 0", (id_of(name),)).fetchall()
    assert id_of(name) != first and sorted(mine) == [(n,) for n in range(1, 60)]


def test_commit_names_are_distinct_and_sort_by_epoch() -> None:
    fields = itertools.product(("a", "a.b"), ("x", "x.0", "x/0"), (1, 12), (None, 0, 1))
    commits = [CommitId(*each) for each in fields]
    assert len({str(commit) for commit in commits}) == len(commits)
    assert all("/" not in str(commit) for commit in commits)
    ordered = [CommitId("a", "x", epoch) for epoch in (1, 9, 10, 100)]
    assert sorted(map(str, ordered)) == list(map(str, ordered))
