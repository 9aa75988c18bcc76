"""Large parts of a far target are assembled in tasks: their bytes do not pass through the driver."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import cloudpickle
import pytest

from millstream.connectors.contracts import CommitId, Json, WriterContext
from millstream.connectors.files import publishing
from millstream.connectors.files.compaction import Compaction
from millstream.connectors.files.part_rules import STAGING
from millstream.connectors.files.parts import TextParts
from millstream.connectors.files.sink import FileSink
from millstream.errors import StoreDamagedError
from millstream.records.batch import Batch
from millstream.storage.store import open_store

JOB = open_store("memory://publishing-in-tasks-job")
CHUNK = "x" * 2_000
COMMIT = CommitId("a-job", "sink", 1)


class OneProcessSpark:
    """What `commit_in_tasks` uses of a session; functions and parts travel as pickles. Counts the tasks it ran."""

    def __init__(self) -> None:
        self.tasks = 0
        self.sparkContext = self

    def parallelize(self, parts: list[Any], count: int) -> OneProcessSpark:
        self._parts = [pickle.dumps(part) for part in parts]
        assert count == len(parts)
        return self

    def mapPartitions(self, function: Callable[[Iterator[Any]], Iterable[Any]]) -> OneProcessSpark:  # noqa: N802
        self._function = cloudpickle.dumps(function)
        return self

    def collect(self) -> list[Any]:
        rows = []
        for part in self._parts:
            self.tasks += 1
            rows += list(pickle.loads(self._function)(iter([pickle.loads(part)])))
        return rows

    def __reduce__(self) -> Any:
        raise TypeError("a session cannot leave the driver")


def staged(sink: FileSink, subtasks: int) -> list[Json]:
    items: list[Json] = []
    for subtask in range(subtasks):
        context = WriterContext("sink", 1, subtask, 2, f"n{subtask}", JOB, 1, None, "a-job")
        writer = pickle.loads(cloudpickle.dumps(sink)).writer(context)
        writer.write(Batch.of_values([f"{subtask} {CHUNK}"], None))
        items.extend(writer.stage())
    return list(sink.plan_commit(json.loads(json.dumps(items)), None, 1, True).publish)


def visible(url: str) -> list[str]:
    store = open_store(url)
    names = [name for name in store.list("") if not name.startswith(STAGING)]
    return sorted(line[:2] for name in names for line in store.get(name).decode().splitlines())


@pytest.mark.parametrize("from_bytes, tasks", [(4_000, 1), (40_000, 0)])
def test_parts_of_many_chunks_are_published_in_tasks_if_they_are_large(
    from_bytes: int, tasks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "_IN_TASKS_FROM_BYTES", from_bytes)
    url, spark = f"memory://publishing-in-tasks-{tasks}", OneProcessSpark()
    sink = FileSink(url, TextParts(), compaction=Compaction(epochs=1)).opened(spark)
    publish = staged(sink, 3)
    for _ in range(2):  # a commit may be repeated
        sink.commit(COMMIT, publish, JOB)
        assert visible(url) == ["0 ", "1 ", "2 "]
    assert spark.tasks == 2 * tasks
    assert not open_store(url).list(STAGING)


def test_parts_of_one_chunk_or_in_a_folder_are_not_worth_a_task(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(publishing, "_IN_TASKS_FROM_BYTES", 1)
    spark = OneProcessSpark()
    for base, rule in (("memory://publishing-whole-chunks", None), (str(tmp_path), Compaction(epochs=1))):
        sink = FileSink(base, TextParts(), compaction=rule).opened(spark)
        sink.commit(COMMIT, staged(sink, 2), JOB)
        assert visible(base) == ["0 ", "1 "]
    assert spark.tasks == 0


def test_damage_detected_by_a_task_is_reported_as_by_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "_IN_TASKS_FROM_BYTES", 1)
    url = "memory://publishing-damage"
    sink = FileSink(url, TextParts(), compaction=Compaction(epochs=1)).opened(OneProcessSpark())
    publish, store = staged(sink, 2), open_store(url)
    store.put(store.list(STAGING)[0], b"changed")
    with pytest.raises(StoreDamagedError, match="changed after it was written"):
        sink.commit(COMMIT, publish, JOB)
    assert visible(url) == []
