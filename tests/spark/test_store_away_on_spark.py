"""A store that tasks of Spark's miss for a while: it is known for what it is, and uses no restart up."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from waits.job_moments import when

from millstream.common import Configuration, Types
from millstream.connectors.files.parts import TextParts
from millstream.connectors.files.sink import FileSink
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import StoreAwayError
from millstream.jobs.clock import SystemClock
from millstream.jobs.launch.launch import Launch
from millstream.spark import spec_files
from millstream.storage.local import LocalStore
from millstream.testing import EPOCH, Script

_END = 120


def store_at(folder: Path, flag: Path) -> Any:
    """A folder in which tasks find no specs of epochs while there is a file `flag`; the driver finds everything. The
    class is local, so that it travels by value."""

    class MissedByTasks(LocalStore):
        def __reduce__(self) -> tuple[object, ...]:
            return (MissedByTasks, (folder,))

        def get(self, name: str) -> bytes:
            from pyspark import TaskContext

            if name.startswith("specs/") and os.path.exists(flag) and TaskContext.get() is not None:
                os.remove(flag)
                raise StoreAwayError(f"Store {self.url}: {name!r} cannot be reached: cut off.")
            return super().get(name)

    return MissedByTasks(folder)


def test_a_store_that_is_away_when_tasks_read_their_spec_does_not_end_a_job_without_a_restart_strategy(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an error that a task raises Spark leaves a page of text, and nobody knows that it was about the store."""
    monkeypatch.setattr(spec_files, "INLINE_CHARACTERS_MAX", 10)
    env = StreamExecutionEnvironment.get_execution_environment().use_spark_session(spark).set_parallelism(2)
    settings = Configuration().set_string("millstream.ahead.max-epochs", "3")
    env.configure(settings.set_string("millstream.store.patience", "0 ms"))
    items = [n for ten in range(0, _END, 10) for n in (*range(ten, ten + 10), EPOCH)]
    numbers = env.add_source(Script(items, type_info=Types.LONG()), "numbers").uid("numbers")
    texts = numbers.key_by(lambda n: n % 3, Types.LONG()).map(lambda n: str(n), Types.STRING()).uid("texts")
    texts.sink_to(FileSink(str(tmp_path / "out"), TextParts())).uid("out")
    store = store_at(tmp_path / "store", tmp_path / "away")
    job = Launch(SystemClock(), None, store).prepare(env._graph("job"), env._job_settings())
    when(job, lambda now: now.published >= 2, (tmp_path / "away").touch)
    job.start().result()
    assert not (tmp_path / "away").exists(), "no task missed the store"
    assert job.board.now.restarts == 0
    lines = [int(line) for part in (tmp_path / "out").glob("part-*") for line in part.read_text().split()]
    assert sorted(lines) == list(range(_END))
