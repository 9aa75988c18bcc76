"""The file sink: whole files, once, whatever dies and whenever."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inputs.fresh_names import fresh_name

from millstream.common import Configuration
from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.types import Row
from millstream.connectors.contracts import CommitId, CommitPlan, Json, WriterContext
from millstream.connectors.files.compaction import Compaction
from millstream.connectors.files.part_plan import published_parts
from millstream.connectors.files.part_rules import DateTimeBuckets, FunctionBuckets, OnCheckpoint, WhenLargeOrOld
from millstream.connectors.files.parts import CsvParts, EncodedParts, JsonParts, ParquetParts, PartFormat, TextParts
from millstream.connectors.files.sink import FileSink
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import ConnectorAwayError, ProgramError, StoreAwayError, StoreDamagedError, StoreError
from millstream.records.batch import Batch
from millstream.storage.memory import MemoryStore
from millstream.storage.store import open_store
from millstream.testing import EPOCH, Script, run

JOB = open_store("memory://file-sink-job")
RECORD = st.tuples(st.integers(0, 1), st.sampled_from("abc"), st.integers(0, 99))
PERSON = Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.LONG()])


def task(epoch: int, subtask: int = 0, attempt: str = "win", now_ms: int = 0, job: str = "a-job") -> WriterContext:
    return WriterContext("sink", epoch, subtask, 2, f"{attempt}{epoch}x{subtask}", JOB, now_ms, None, job)


def commit_of(epoch: int) -> CommitId:
    return CommitId("a-job", "sink", epoch)


def stage(
    sink: FileSink, context: WriterContext, values: list[Any], type_info: TypeInformation | None = None
) -> list[Json]:
    writer = pickle.loads(pickle.dumps(sink)).writer(context)
    for at in range(0, len(values), 3):
        writer.write(Batch.of_values(values[at : at + 3], type_info))
    # Everything a writer hands over goes through the manifest's JSON.
    return list(json.loads(json.dumps(list(writer.stage()))))


def planned(sink: FileSink, staged: list[Json], pending: Json, now_ms: int, final: bool = False) -> CommitPlan:
    plan = sink.plan_commit(staged, pending, now_ms, final)
    return CommitPlan(tuple(json.loads(json.dumps(plan.publish))), json.loads(json.dumps(plan.pending)))


def visible(base: Path) -> dict[str, bytes]:
    """What a reader sees who ignores hidden files."""
    return {
        str(path.relative_to(base)): path.read_bytes()
        for path in sorted(base.rglob("*"))
        if path.is_file() and not any(part.startswith((".", "_")) for part in path.relative_to(base).parts)
    }


def staged_files(base: Path) -> list[str]:
    return sorted(path.name for path in base.rglob(".millstream-staging/*/*"))


def test_nothing_is_visible_before_the_commit_and_everything_after_it(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path), TextParts(), suffix=".txt")
    plan = planned(sink, stage(sink, task(1), list("abcde")), None, 0)
    assert visible(tmp_path) == {}
    sink.commit(commit_of(1), plan.publish, JOB)
    [(name, data)] = visible(tmp_path).items()
    assert data == b"a\nb\nc\nd\ne\n" and name.startswith("part-") and name.endswith("-0-1.txt")
    assert staged_files(tmp_path) == []


def test_two_runs_from_the_start_into_one_folder_keep_both_outputs(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path), TextParts())
    for attempt, value in (("first", "a"), ("second", "b")):
        sink.commit(commit_of(1), planned(sink, stage(sink, task(1, attempt=attempt), [value]), None, 0).publish, JOB)
    assert sorted(visible(tmp_path).values()) == [b"a\n", b"b\n"]


class Died(BaseException):
    """The process was killed here."""


def killing(monkeypatch: pytest.MonkeyPatch, step: int) -> Callable[[], int]:
    """Make the process die before its `step`-th change to the file system; returns a count of the steps taken."""
    taken = 0

    def wrapped(call: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*args: Any, **kwargs: Any) -> Any:
            nonlocal taken
            taken += 1
            if taken >= step:
                # A dead process changes nothing any more, not even in its `finally`.
                raise Died
            return call(*args, **kwargs)

        return stepping

    for name in ("link", "unlink", "rename", "fsync", "mkdir"):
        monkeypatch.setattr(os, name, wrapped(getattr(os, name)))
    return lambda: taken


def rolling_history(base: Path, format: PartFormat) -> tuple[FileSink, list[tuple[int, tuple[Json, ...]]]]:
    """Three epochs of two tasks: parts of one chunk, parts of several, and lost attempts beside them."""
    sink = FileSink(str(base), format, FunctionBuckets(_first_letter), WhenLargeOrOld(10**9, 25, 10**9))
    pending: Json = None
    publishes = []
    for epoch, now_ms in ((1, 0), (2, 20), (3, 40)):
        staged = []
        for subtask in (0, 1):
            rows = [Row(f"{letter}{epoch}", subtask) for letter in ("ab" if epoch != 2 else "a")]
            stage(sink, task(epoch, subtask, "lost"), rows, PERSON)
            staged += stage(sink, task(epoch, subtask), rows, PERSON)
        plan = planned(sink, staged, pending, now_ms, final=epoch == 3)
        pending = plan.pending
        publishes.append((epoch, plan.publish))
    assert pending is None
    return sink, publishes


def _first_letter(row: Row) -> str:
    return f"of={row[0][0]}"


def parts_seen(base: Path) -> Iterator[tuple[str, Any]]:
    for name, data in visible(base).items():
        yield name, pq.read_table(base / name).to_pylist() if name.endswith("parquet") else data


@pytest.mark.slow
@pytest.mark.parametrize("format", [TextParts(), CsvParts(("name", "age"), header=True), ParquetParts()])
def test_a_kill_at_every_step_of_publishing_leads_to_the_same_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: PartFormat
) -> None:
    sink, publishes = rolling_history(tmp_path / "clean", format)
    shutil.copytree(tmp_path / "clean", tmp_path / "staged")
    for epoch, publish in publishes:
        sink.commit(commit_of(epoch), publish, JOB)
    expected = dict(parts_seen(tmp_path / "clean"))
    assert len(expected) > 4

    step, finished = 0, False
    while not finished:
        step += 1
        base = tmp_path / f"killed-{step}"
        shutil.copytree(tmp_path / "staged", base)
        sink = FileSink(str(base), format)
        finished = True
        for epoch, publish in publishes:
            with monkeypatch.context() as patch:
                try:
                    killing(patch, step)
                    sink.commit(commit_of(epoch), publish, JOB)
                except Died:
                    finished = False
            for name, content in parts_seen(base):
                assert content == expected[name], f"partial file after a kill at step {step} of epoch {epoch}"
            sink.commit(commit_of(epoch), publish, JOB)
        assert dict(parts_seen(base)) == expected, f"killed at step {step}"
    assert step > 10


def test_publishing_an_old_epoch_again_changes_nothing(tmp_path: Path) -> None:
    sink, publishes = rolling_history(tmp_path, TextParts())
    for epoch, publish in publishes:
        sink.commit(commit_of(epoch), publish, JOB)
        before = visible(tmp_path)
        sink.commit(commit_of(epoch), publish, JOB)
        assert visible(tmp_path) == before


def test_lost_attempts_of_older_epochs_are_swept_and_those_of_the_newest_are_not(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path), TextParts())
    stage(sink, task(1, attempt="lost"), ["x"])
    sink.commit(commit_of(1), planned(sink, stage(sink, task(1), ["a"]), None, 0).publish, JOB)
    assert len(staged_files(tmp_path)) == 1
    stage(sink, task(2, attempt="lost"), ["y"])
    early = stage(sink, task(3), ["next epoch already runs"])
    sink.commit(commit_of(2), planned(sink, stage(sink, task(2), ["b"]), None, 0).publish, JOB)
    left = staged_files(tmp_path)
    assert not any("lost1x0" in name for name in left) and any("lost2x0" in name for name in left)
    sink.commit(commit_of(3), planned(sink, early, None, 0).publish, JOB)
    assert sorted(visible(tmp_path).values()) == [b"a\n", b"b\n", b"next epoch already runs\n"]


def test_chunks_that_wait_for_their_part_are_never_swept(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path), TextParts(), rolling=WhenLargeOrOld(10**9, 1000, 1000))
    pending: Json = None
    for epoch in range(1, 6):
        plan = planned(sink, stage(sink, task(epoch), [f"e{epoch}"]), pending, epoch * 10, final=epoch == 5)
        sink.commit(commit_of(epoch), plan.publish, JOB)
        pending = plan.pending
    assert list(visible(tmp_path).values()) == [b"e1\ne2\ne3\ne4\ne5\n"]
    assert staged_files(tmp_path) == []


def test_files_of_another_job_in_the_same_folder_are_not_touched(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path), TextParts())
    theirs = stage(sink, task(1, job="another-job"), ["theirs"])
    sink.commit(commit_of(9), planned(sink, stage(sink, task(9), ["ours"]), None, 0).publish, JOB)
    sink.commit(commit_of(1), planned(sink, theirs, None, 0).publish, JOB)
    assert sorted(visible(tmp_path).values()) == [b"ours\n", b"theirs\n"]


@pytest.mark.parametrize("chunks", [1, 2])
def test_a_chunk_that_vanished_or_changed_is_an_error_and_publishes_nothing(tmp_path: Path, chunks: int) -> None:
    sink = FileSink(str(tmp_path), TextParts(), rolling=WhenLargeOrOld())
    pending = None
    for epoch in range(1, chunks + 1):
        plan = planned(sink, stage(sink, task(epoch), ["abc"]), pending, 0, final=epoch == chunks)
        pending = plan.pending
    [chunk, *_] = sorted(tmp_path.rglob(".millstream-staging/*/*"))
    chunk.write_bytes(b"abc")
    with pytest.raises(StoreDamagedError, match="has 3 bytes"):
        sink.commit(commit_of(chunks), plan.publish, JOB)
    chunk.unlink()
    with pytest.raises(StoreDamagedError, match=r"neither 'part-.*1 records of epoch 1"):
        sink.commit(commit_of(chunks), plan.publish, JOB)
    assert visible(tmp_path) == {}


def test_a_part_rolls_when_it_is_large_old_or_idle(tmp_path: Path) -> None:
    def epochs_published(policy: WhenLargeOrOld, times_ms: list[int], writes: list[bool]) -> list[int]:
        sink = FileSink(str(tmp_path), TextParts(), rolling=policy)
        pending: Json = None
        rolled = []
        for epoch, (now_ms, write) in enumerate(zip(times_ms, writes, strict=True), start=1):
            plan = planned(sink, stage(sink, task(epoch), ["x" * 9] if write else []), pending, now_ms)
            pending = plan.pending
            rolled += [epoch] * len(published_parts(plan.publish))
        return rolled

    assert epochs_published(WhenLargeOrOld(20, 10**9, 10**9), [0] * 5, [True] * 5) == [2, 4]
    assert epochs_published(WhenLargeOrOld(10**9, 100, 10**9), [0, 50, 99, 101], [True] * 4) == [4]
    assert epochs_published(WhenLargeOrOld(10**9, 10**9, 100), [0, 90, 180, 280], [True, True, False, False]) == [4]


def test_the_sink_knows_when_a_waiting_part_is_due(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path), TextParts(), rolling=WhenLargeOrOld(10**9, 1000, 300))
    assert sink.due_ms(None) is None
    assert sink.due_ms(planned(sink, stage(sink, task(1), ["a"]), None, 50).pending) == 350


def test_chunks_of_epochs_with_one_number_keep_the_order_of_staging(tmp_path: Path) -> None:
    """Epochs that are committed as one may have had one number, as rounds of a loop have. Each counts its chunks."""
    rolling, whole = WhenLargeOrOld(9, 10**9, 10**9), Compaction(size_bytes=10**9)
    sink = FileSink(str(tmp_path), TextParts(), rolling=rolling, compaction=whole)
    staged = [
        *stage(sink, task(3, attempt="first"), ["a1", "a2", "a3", "a4"]),
        *stage(sink, task(3, attempt="then"), ["b1", "b2", "b3", "b4"]),
    ]
    assert len(staged) == 4
    sink.commit(commit_of(2), planned(sink, staged, None, 0, final=True).publish, JOB)
    [data] = visible(tmp_path).values()
    assert data.split() == [b"a1", b"a2", b"a3", b"a4", b"b1", b"b2", b"b3", b"b4"]


def test_one_long_epoch_makes_parts_of_the_wished_size(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path), TextParts(), rolling=WhenLargeOrOld(part_bytes=12))
    plan = planned(sink, stage(sink, task(1), ["x"] * 20), None, 0, final=True)
    sink.commit(commit_of(1), plan.publish, JOB)
    assert [len(data) for data in visible(tmp_path).values()] == [12, 12, 12, 4]


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 1), st.sampled_from("abc"), st.integers(0, 99)), max_size=6), max_size=6
    ),
    st.sampled_from([OnCheckpoint(), WhenLargeOrOld(6, 50, 50), WhenLargeOrOld()]),
    st.lists(st.integers(0, 60), min_size=6, max_size=6),
)
def test_every_record_is_published_once_in_its_bucket_and_in_order(
    epochs: list[list[tuple[int, str, int]]], policy: OnCheckpoint | WhenLargeOrOld, pauses_ms: list[int]
) -> None:
    base = fresh_name("memory://file-sink")
    target = open_store(base)
    for name in target.list(""):
        target.delete(name)
    sink = FileSink(base, TextParts(), FunctionBuckets(_letter), policy)
    pending: Json = None
    now_ms = 0
    for epoch, records in enumerate(epochs, start=1):
        now_ms += pauses_ms[epoch - 1]
        staged = []
        for subtask in (0, 1):
            staged += stage(sink, task(epoch, subtask), [f"{b}{v:02}" for s, b, v in records if s == subtask])
        plan = planned(sink, staged, pending, now_ms, final=epoch == len(epochs))
        sink.commit(commit_of(epoch), plan.publish, JOB)
        pending = plan.pending
    seen: dict[tuple[str, str], list[str]] = {}
    for name in sorted(
        (n for n in target.list("") if not n.startswith(".")), key=lambda n: [int(x) for x in n.split("-")[3:]]
    ):
        bucket, _, subtask = name.split("/")[0], *name.split("-")[1:3]
        seen.setdefault((bucket, subtask), []).extend(target.get(name).decode().splitlines())
    wanted: dict[tuple[str, str], list[str]] = {}
    for subtask, letter, number in (r for records in epochs for r in sorted(records, key=lambda r: r[0])):
        wanted.setdefault((letter, str(subtask)), []).append(f"{letter}{number:02}")
    assert seen == wanted


def _letter(value: str) -> str:
    return value[0]


def test_buckets_follow_processing_time_in_flinks_pattern() -> None:
    moment_ms = 1_700_000_000_123
    assert DateTimeBuckets("yyyy-MM-dd--HH", "UTC").for_epoch(moment_ms) == "2023-11-14--22"
    assert DateTimeBuckets("yyyy-MM-dd--HHmm", "Asia/Kolkata").for_epoch(moment_ms) == "2023-11-15--0343"
    assert DateTimeBuckets("'dt='yy/D/s.SSS", "UTC").for_epoch(moment_ms) == "dt=23/318/20.123"
    with pytest.raises(ProgramError, match="'Q'"):
        DateTimeBuckets("yyyy-Q")
    with pytest.raises(ProgramError, match="Time zone 'Mars/Base' is not known"):
        DateTimeBuckets("yyyy", "Mars/Base")


@pytest.mark.parametrize("bucket", ["../elsewhere", "a//b", "a/../../b", "./a"])
def test_a_bucket_cannot_leave_the_base_path(tmp_path: Path, bucket: str) -> None:
    sink = FileSink(str(tmp_path / "out"), TextParts(), FunctionBuckets(lambda value: bucket))
    with pytest.raises(ProgramError, match="not a folder below"):
        sink.writer(task(1)).write(Batch.of_values(["a"], None))


def test_rows_become_csv_json_and_parquet(tmp_path: Path) -> None:
    rows = [Row(name="a,b", age=1), Row(name='say "x"\nagain', age=None)]

    def written(format: PartFormat, type_info: TypeInformation | None) -> bytes:
        base = tmp_path / type(format).__name__
        sink = FileSink(str(base), format)
        sink.commit(commit_of(1), planned(sink, stage(sink, task(1), rows, type_info), None, 0).publish, JOB)
        [(name, data)] = visible(base).items()
        assert name.endswith(format.suffix)
        return data

    assert written(CsvParts(("name", "age"), header=True), PERSON) == b'name,age\n"a,b",1\n"say ""x""\nagain",\n'
    assert written(JsonParts(), None).splitlines()[1] == b'{"name":"say \\"x\\"\\nagain","age":null}'
    written(ParquetParts(), PERSON)
    [file] = (tmp_path / "ParquetParts").glob("*.parquet")
    assert pq.read_table(file).to_pylist() == [row.as_dict() for row in rows]


def test_parquet_of_an_untyped_stream_needs_a_row_type(tmp_path: Path) -> None:
    rows = [Row(name="a", age=1)]
    with pytest.raises(ProgramError, match="this stream is untyped"):
        stage(FileSink(str(tmp_path), ParquetParts()), task(1), rows)
    assert stage(FileSink(str(tmp_path), ParquetParts(PERSON)), task(1), rows)[0]["records"] == 1


def test_an_encoder_of_the_users_own_decides_every_byte(tmp_path: Path) -> None:
    class Fixed:
        def encode(self, value: int) -> bytes:
            return value.to_bytes(2, "big")

    sink = FileSink(str(tmp_path), EncodedParts(Fixed()))
    writer = sink.writer(task(1))
    writer.write(Batch.of_values([1, 258], None))
    sink.commit(commit_of(1), planned(sink, list(writer.stage()), None, 0).publish, JOB)
    assert list(visible(tmp_path).values()) == [b"\x00\x01\x01\x02"]


def test_an_aborted_writer_leaves_no_chunks(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path), TextParts(), rolling=WhenLargeOrOld(part_bytes=1))
    writer = sink.writer(task(1))
    writer.write(Batch.of_values(["a"], None))
    assert len(staged_files(tmp_path)) == 1
    writer.abort()
    assert staged_files(tmp_path) == []


class AwayStore(MemoryStore):
    """Does not answer."""

    def put(self, name: str, data: bytes) -> None:
        raise StoreAwayError("No answer.")


def test_an_unavailable_target_is_named_unless_the_jobs_own_store_is_unavailable_too(tmp_path: Path) -> None:
    for store, kind in ((JOB, ConnectorAwayError), (open_store(str(tmp_path / "job")), StoreAwayError)):
        writer: Any = FileSink(str(tmp_path / "out"), TextParts()).writer(replace(task(1), store=store))
        writer._target = AwayStore("file-sink-target")
        writer.write(Batch.of_values(["a"], None))
        with pytest.raises(kind, match="No answer") as caught:
            writer.stage()
        assert ("target" in str(caught.value)) == (kind is ConnectorAwayError)


def test_closing_removes_the_empty_staging_folder(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path), TextParts())
    sink.commit(commit_of(1), planned(sink, stage(sink, task(1), ["a"]), None, 0).publish, JOB)
    sink.close()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_a_base_path_that_is_a_file_is_refused_before_the_job_runs(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("already here")
    with pytest.raises(StoreError, match="not a folder"):
        FileSink(str(tmp_path / "out"), TextParts()).opened(None)


@pytest.mark.parametrize("prefix", ["", "_hidden", ".hidden", "a/b"])
def test_a_prefix_that_would_hide_or_move_the_parts_is_refused(tmp_path: Path, prefix: str) -> None:
    with pytest.raises(ProgramError, match="prefix"):
        FileSink(str(tmp_path), TextParts(), prefix=prefix)


def test_a_chunk_of_the_right_length_and_other_content_is_not_published(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path), TextParts())
    plan = planned(sink, stage(sink, task(1), ["abc"]), None, 0)
    [chunk] = tmp_path.rglob(".millstream-staging/*/*")
    chunk.write_bytes(b"abd\n")
    with pytest.raises(StoreDamagedError, match=r"has 4 bytes with checksum .* none of it was published"):
        sink.commit(commit_of(1), plan.publish, JOB)
    assert visible(tmp_path) == {}


# --- several jobs, one folder -----------------------------------------------------------------------------------


def written(folder: Path, store: str, start: str | None = None, epochs: int | None = None) -> None:
    """0 to 59, ten to an epoch, into parts that wait for one another."""
    items = [n for ten in range(0, 60, 10) for n in (*range(ten, ten + 10), EPOCH)]
    sink = FileSink(str(folder), TextParts(), rolling=WhenLargeOrOld(50, 10**9, 10**9))

    def build(env: StreamExecutionEnvironment) -> None:
        if start is not None:
            env.configure(Configuration().set_string("execution.state-recovery.path", start))
        env.add_source(Script(items, type_info=Types.LONG()), "numbers").uid("numbers").sink_to(sink).uid("out")

    run(build, store=store, epochs=epochs, job_name="numbers")


def numbers_in(parts: dict[str, bytes]) -> Counter[int]:
    return Counter(int(line) for part in parts.values() for line in part.split())


def test_a_second_run_a_fork_and_a_restore_into_the_same_folder_leave_every_part_of_the_others_as_it_was(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    out = tmp_path / "out"
    written(out, "parts-first", epochs=4)
    stopped = visible(out)
    steps: list[tuple[str, str | None, Counter[int]]] = [
        ("parts-second", None, Counter(range(60))),
        ("parts-fork", "memory://parts-first@3", Counter(range(30, 60))),
        ("parts-elsewhere", "memory://parts-first@3", Counter(range(30, 60))),
    ]
    before = stopped
    for store, start, expected in steps:
        written(out, store, start)
        after = visible(out)
        assert before.items() <= after.items(), "a part of another job was changed"
        new = numbers_in({name: part for name, part in after.items() if name not in before})
        assert expected <= new and new <= Counter(range(60))
        before = after
    written(out, "parts-first")
    mine = {name: part for name, part in visible(out).items() if name not in before or name in stopped}
    assert numbers_in(mine) == Counter(range(60)), "what waited for a later epoch was taken by another job"
    assert staged_files(out) == []
    # Gone back, the job names the parts of its own later epochs, and those of no other job.
    caplog.clear()
    written(out, "parts-first", "memory://parts-first@2")
    told = next(
        record.getMessage() for record in caplog.records if "hold records of later epochs" in record.getMessage()
    )
    own = {name for name in mine if int(name.split("-")[3].partition(".")[0]) > 2}
    assert f"{len(own)} part files there" in told


@pytest.mark.parametrize(
    ("base", "bucket", "is_taken"),
    [
        ("folder", "x" * 255, True),
        ("folder", "x" * 256, False),
        ("folder", "ä" * 128, False),
        ("folder", "/".join(["x" * 250] * 17), False),
        ("s3://bucket/out", "x" * 900, True),
        ("s3://bucket/out", "/".join(["x" * 100] * 10), False),
    ],
)
def test_a_bucket_that_no_file_could_be_published_in_is_refused_before_the_commit(
    tmp_path: Path, base: str, bucket: str, is_taken: bool
) -> None:
    sink = FileSink(str(tmp_path) if base == "folder" else base, TextParts(), FunctionBuckets(lambda _: bucket))
    writer = sink.writer(task(1))
    if base != "folder" and is_taken:
        writer._check_name(bucket)  # type: ignore[attr-defined]
        return
    if not is_taken:
        with pytest.raises(ProgramError, match=r"has [\d]+ bytes as (a path component|a path|a key), and"):
            writer.write(Batch.of_values(["a"], None))
        return
    writer.write(Batch.of_values(["a"], None))
    sink.commit(commit_of(1), sink.plan_commit(writer.stage(), None, 0, True).publish, JOB)
    [part] = list((tmp_path / bucket).iterdir())
    assert part.read_text() == "a\n"
