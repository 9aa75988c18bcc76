"""Small parts become one file in one step: readers never see a part and the file, nor a record missing or twice."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.common import Encoder, Row, Types
from millstream.connectors.contracts import CommitId, CommitPlan, Json, RestorePoint, WriterContext
from millstream.connectors.files.compaction import Compaction
from millstream.connectors.files.part_rules import FunctionBuckets
from millstream.connectors.files.parts import CsvParts, ParquetParts, PartFormat, TextParts
from millstream.connectors.files.sink import FileSink
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.file_system import (
    BucketAssigner,
    FileCompactor,
    FileCompactStrategy,
    RollingPolicy,
)
from millstream.datastream.connectors.file_system import FileSink as PublicFileSink
from millstream.errors import ProgramError
from millstream.records.batch import Batch
from millstream.storage.store import open_store
from millstream.testing import CRASH, EPOCH, Script, run

JOB = open_store("memory://compaction-job")
PERSON = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.LONG()])


def visible(base: Path) -> dict[str, bytes]:
    return {
        path.relative_to(base).as_posix(): path.read_bytes()
        for path in sorted(base.rglob("*"))
        if path.is_file() and not any(part.startswith(".") for part in path.relative_to(base).parts)
    }


class Job:
    """A sink driven epoch by epoch. What goes into a manifest passes through JSON."""

    def __init__(self, base: Path, rule: Compaction | None, format: PartFormat | None = None, **more: Any) -> None:
        self.base = base
        self.sink = FileSink(str(base), format or TextParts(), compaction=rule, **more)
        self.epoch = 0
        self.pending: Json = None

    def plan(self, values: dict[int, list[Any]], final: bool = False, type_info: Any = None) -> CommitPlan:
        self.epoch += 1
        staged: list[Json] = []
        for subtask, of_subtask in values.items():
            nonce = f"n{self.epoch}x{subtask}"
            context = WriterContext("sink", self.epoch, subtask, 2, nonce, JOB, self.epoch, None, "a-job")
            writer = self.sink.writer(context)
            writer.write(Batch.of_values(of_subtask, type_info))
            staged.extend(writer.stage())
        plan = self.sink.plan_commit(json.loads(json.dumps(staged)), self.pending, self.epoch, final)
        self.pending = json.loads(json.dumps(plan.pending))
        return CommitPlan(tuple(json.loads(json.dumps(plan.publish))), self.pending)

    def commit(self, plan: CommitPlan) -> None:
        self.sink.commit(CommitId("a-job", "sink", self.epoch), plan.publish, JOB)

    def run(self, values: dict[int, list[Any]], final: bool = False, type_info: Any = None) -> None:
        self.commit(self.plan(values, final, type_info))


def test_parts_of_all_subtasks_become_one_file_after_so_many_epochs(tmp_path: Path) -> None:
    job = Job(tmp_path, Compaction(epochs=3))
    job.run({0: ["a1"], 1: ["b1"]})
    job.run({0: ["a2"]})
    assert visible(tmp_path) == {}
    job.run({1: ["b3"]})
    [data] = visible(tmp_path).values()
    assert sorted(data.split()) == [b"a1", b"a2", b"b1", b"b3"]
    assert data.index(b"a1") < data.index(b"a2") and data.index(b"b1") < data.index(b"b3")
    assert job.pending is None and not [*tmp_path.rglob(".millstream-staging/*/*")]


def test_the_size_limit_applies_per_bucket(tmp_path: Path) -> None:
    job = Job(tmp_path, Compaction(size_bytes=10), buckets=FunctionBuckets(lambda text: text[0]))
    job.run({0: ["a" * 4, "b"]})
    job.run({0: ["a" * 6]})
    assert [name.split("/")[0] for name in visible(tmp_path)] == ["a"]
    assert job.sink.due_ms(job.pending) is None, "by size alone nothing is due by time"
    job.run({}, final=True)
    assert list(visible(tmp_path).values()) == [b"aaaa\naaaaaa\n", b"b\n"]


def test_epochs_without_records_count(tmp_path: Path) -> None:
    job = Job(tmp_path, Compaction(epochs=2))
    job.run({0: ["a"]})
    due_ms = job.sink.due_ms(job.pending)
    assert due_ms is not None and due_ms <= job.epoch
    job.run({})
    assert list(visible(tmp_path).values()) == [b"a\n"] and job.pending is None


def test_the_delimiter_is_between_parts_and_not_at_the_ends(tmp_path: Path) -> None:
    job = Job(tmp_path, Compaction(epochs=2, delimiter=b"--\n"))
    job.run({0: ["a"], 1: ["b"]})
    job.run({0: ["c"]})
    assert list(visible(tmp_path).values()) == [b"a\n--\nb\n--\nc\n"]


@pytest.mark.parametrize("format", [ParquetParts(), CsvParts(("name", "age"), header=True)])
def test_a_format_that_is_not_bytes_end_to_end_is_joined_by_its_records(tmp_path: Path, format: PartFormat) -> None:
    job = Job(tmp_path, Compaction(epochs=2), format)
    job.run({0: [Row("a", 1)], 1: [Row("b", 2)]}, type_info=PERSON)
    job.run({0: [Row("c", 3)]}, type_info=PERSON)
    [(name, data)] = visible(tmp_path).items()
    if name.endswith(".csv"):
        assert data == b"name,age\na,1\nb,2\nc,3\n"
    else:
        assert pq.read_table(tmp_path / name).to_pydict() == {"name": ["a", "b", "c"], "age": [1, 2, 3]}
    with pytest.raises(ProgramError, match="cannot have"):
        Job(tmp_path, Compaction(epochs=2, delimiter=b"\n"), format)


def test_a_program_that_no_longer_compacts_publishes_what_was_gathered_as_one_file(tmp_path: Path) -> None:
    job = Job(tmp_path, Compaction(epochs=9))
    job.run({0: ["a"], 1: ["b"]})
    job.sink = FileSink(str(tmp_path), TextParts())
    assert job.sink.due_ms(job.pending) is not None
    job.run({0: ["c"]})
    assert sorted(visible(tmp_path).values()) == [b"a\nb\n", b"c\n"] and job.pending is None


class DiedError(BaseException):
    """The process was killed here."""


def test_a_crash_at_any_step_of_publishing_shows_all_records_once_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps, step = 1_000, 1_000  # first without dying, to count the steps
    while step > 0:
        base = tmp_path / str(step)
        job = Job(base, Compaction(epochs=2))
        job.run({0: ["a"], 1: ["b"]})
        plan = job.plan({0: ["c"]})
        with monkeypatch.context() as patched:
            count = _dying(patched, step)
            with contextlib.suppress(DiedError):
                job.commit(plan)
            steps = count() if steps == 1_000 else steps
        seen = visible(base)
        assert len(seen) <= 1 and all(data == b"a\nb\nc\n" for data in seen.values()), f"a half thing, step {step}"
        FileSink(str(base), TextParts()).commit(CommitId("a-job", "sink", 2), plan.publish, JOB)
        assert list(visible(base).values()) == [b"a\nb\nc\n"]
        step = min(step, steps + 1) - 1
    assert steps > 4


def _dying(patched: pytest.MonkeyPatch, step: int) -> Callable[[], int]:
    taken = 0

    def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*args: Any, **kwargs: Any) -> Any:
            nonlocal taken
            taken += 1
            if taken >= step:
                raise DiedError
            return call(*args, **kwargs)

        return stepping

    for name in ("link", "unlink", "rename", "fsync", "mkdir"):
        patched.setattr(os, name, wrapped(getattr(os, name)))
    return lambda: taken


def test_a_job_that_goes_back_publishes_neither_twice_nor_too_little(tmp_path: Path) -> None:
    job = Job(tmp_path, Compaction(epochs=3))
    job.run({0: ["a"], 1: ["b"]})
    before = job.pending
    point = RestorePoint(1, "sink", JOB, "a-job", "a-job")
    still_waiting = json.loads(json.dumps(job.sink.after_restore(before, point)[0]))
    assert [part["chunks"] for part in still_waiting] == [part["chunks"] for part in before]
    job.run({0: ["c"]})
    plan = job.plan({0: ["d"]})
    job.commit(plan)
    # A driver that died while it removed what it had published left one of the chunks.
    left = before[1]["chunks"][0]["file"]
    (tmp_path / left).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / left).write_bytes(b"b\n")
    pending, sentence = job.sink.after_restore(before, point)
    assert pending is None
    assert "hold" in sentence and "2 records pending" in sentence
    assert "do not delete them" in sentence, "what waited then is in the same file as what came later"


@settings(max_examples=10)
@given(
    epochs=st.lists(
        st.lists(st.tuples(st.integers(0, 2), st.sampled_from("xy"), st.integers(1, 9)), max_size=4), max_size=8
    ),
    waits=st.one_of(st.none(), st.integers(1, 4)),
    size=st.one_of(st.none(), st.integers(1, 60)),
)
def test_every_record_is_published_once_and_in_its_order(
    tmp_path_factory: pytest.TempPathFactory,
    epochs: list[list[tuple[int, str, int]]],
    waits: int | None,
    size: int | None,
) -> None:
    rule = Compaction(waits, size) if waits or size else None
    base = tmp_path_factory.mktemp("compaction")
    job = Job(base, rule, buckets=FunctionBuckets(lambda text: text[0]))
    written: dict[tuple[str, int], list[str]] = {}
    for number, records in enumerate([*epochs, []]):
        values: dict[int, list[str]] = {}
        for at, (subtask, bucket, length) in enumerate(records):
            text = f"{bucket}{subtask}-{number}-{at}-{'z' * length}"
            values.setdefault(subtask, []).append(text)
            written.setdefault((bucket, subtask), []).append(text)
        job.run(values, final=number == len(epochs))
    found: dict[tuple[str, int], list[str]] = {}
    texts = [(name.rpartition("-")[2].zfill(9), name, data) for name, data in visible(base).items()]
    for _, _, data in sorted(texts):
        for text in data.decode().split():
            found.setdefault((text[0], int(text[1])), []).append(text)
    assert {key: sorted(of_key) for key, of_key in found.items()} == {key: sorted(v) for key, v in written.items()}
    for data in visible(base).values():
        by_subtask: dict[str, list[str]] = {}
        for text in data.decode().split():
            by_subtask.setdefault(text[:2], []).append(text)
        for of_subtask in by_subtask.values():
            key = (of_subtask[0][0], int(of_subtask[0][1]))
            assert of_subtask == [text for text in written[key] if text in of_subtask]


def test_a_job_compacts_through_crashes_by_pyflinks_names(tmp_path: Path) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        numbers = env.add_source(Script([1, EPOCH, 2, CRASH, 3, EPOCH, 4, CRASH, 5, EPOCH, 6, EPOCH, 7]))
        strategy = FileCompactStrategy.builder().enable_compaction_on_checkpoint(3).set_size_threshold(1_000).build()
        sink = PublicFileSink.for_row_format(str(tmp_path), Encoder.simple_string_encoder())
        sink = sink.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy())
        sink = sink.with_bucket_assigner(BucketAssigner.base_path_bucket_assigner())
        sink = sink.enable_compact(strategy, FileCompactor.concat_file_compactor())
        numbers.map(str, Types.STRING()).sink_to(sink.build()).uid("out")

    result = run(build)
    files = visible(tmp_path)
    assert sorted(int(line) for data in files.values() for line in data.split()) == [1, 2, 3, 4, 5, 6, 7]
    assert len(files) <= result.epochs // 2


def test_a_file_is_named_after_its_newest_records_so_that_a_job_that_goes_back_finds_it(tmp_path: Path) -> None:
    job = Job(tmp_path, Compaction(epochs=3))
    job.run({1: ["b1"]})
    job.run({0: ["a2"]})
    job.run({})
    [name] = visible(tmp_path)
    assert name.endswith("-0-2")
    sentence = job.sink.after_restore(None, RestorePoint(1, "sink", JOB, "a-job", "a-job"))[1]
    assert name in sentence
