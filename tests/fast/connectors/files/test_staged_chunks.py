"""Chunks that are written piece by piece are those that are written at once, and no piece of one is ever published."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.connectors.contracts import CommitId, Json, WriterContext
from millstream.connectors.files import staging
from millstream.connectors.files.compaction import Compaction
from millstream.connectors.files.part_plan import Part, PartRules, pending_parts, plan_parts, published_parts
from millstream.connectors.files.part_rules import OnCheckpoint, RollingPolicy, WhenLargeOrOld
from millstream.connectors.files.parts import CsvParts, TextParts
from millstream.connectors.files.sink import FileSink
from millstream.errors import StoreAwayError, StoreDamagedError, StoreError
from millstream.records.batch import Batch
from millstream.storage.content import content_of
from millstream.storage.store import open_store

JOB = open_store("memory://staged-chunks-job")


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(staging, "PIECE_BYTES", 5)


def task(epoch: int) -> WriterContext:
    return WriterContext("sink", epoch, 0, 1, f"a{epoch}", JOB, 0, None, "a-job")


def staged(sink: FileSink, epoch: int, batches: list[list[str]]) -> list[Json]:
    writer = sink.writer(task(epoch))
    for values in batches:
        writer.write(Batch.of_values(values, None))
    return list(writer.stage())


def text_of(base: Path) -> list[str]:
    """What the visible files hold, in the order of their epochs and numbers."""
    files = [path for path in base.glob("part-*") if path.is_file()]
    return [path.read_text() for path in sorted(files, key=lambda path: [int(n) for n in path.stem.split("-")[3:]])]


@settings(max_examples=30, deadline=None)
@given(batches=st.lists(st.lists(st.text("abé", max_size=6), max_size=4), max_size=6), limit=st.integers(1, 40))
def test_a_chunk_in_pieces_is_the_chunk_at_once(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[str]], limit: int
) -> None:
    folder = tmp_path_factory.mktemp("pieces")
    memory = f"memory://staged-chunks-{folder.name}"
    policy = WhenLargeOrOld(limit)
    in_pieces = staged(FileSink(str(folder), TextParts(), rolling=policy), 1, batches)
    at_once = staged(FileSink(memory, TextParts(), rolling=policy), 1, batches)
    assert in_pieces == at_once
    for chunk in in_pieces:
        assert content_of(open_store(str(folder)), chunk["file"]) == (chunk["bytes"], chunk["crc32"])
        assert (folder / chunk["file"]).read_bytes() == open_store(memory).get(chunk["file"])


def test_an_aborted_task_leaves_no_piece(tmp_path: Path) -> None:
    writer = FileSink(str(tmp_path), TextParts()).writer(task(1))
    writer.write(Batch.of_values(["some text"], None))
    assert [path.read_text() for path in tmp_path.rglob("0*")] == ["some text\n"]
    writer.abort()
    assert not list(tmp_path.rglob("0*"))


def test_a_chunk_that_was_removed_while_it_is_written_is_not_begun_in_its_middle(tmp_path: Path) -> None:
    writer = FileSink(str(tmp_path), TextParts()).writer(task(1))
    writer.write(Batch.of_values(["some text"], None))
    [path] = tmp_path.rglob("0*")
    path.unlink()
    with pytest.raises(StoreError):
        writer.write(Batch.of_values(["more text"], None))
    assert not path.exists()


def test_a_chunk_that_could_not_be_made_durable_is_written_anew_and_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the system failed to write down once is gone from its memory: the next fsync says that all is well."""
    real, failures = os.fsync, [OSError(errno.EIO, os.strerror(errno.EIO))]

    def fails_once(descriptor: int) -> None:
        if failures and stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise failures.pop()
        real(descriptor)

    sink = FileSink(str(tmp_path), TextParts())
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", fails_once)
        writer = sink.writer(task(1))
        writer.write(Batch.of_values(["some text"], None))
        with pytest.raises(StoreError, match="Input/output error") as caught:
            writer.stage()
        writer.abort()
    assert not isinstance(caught.value, StoreAwayError)  # which would be asked again
    assert not failures and not list(tmp_path.rglob("0*"))


def test_pieces_of_a_killed_task_are_swept_and_never_published(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path), TextParts())
    killed = sink.writer(WriterContext("sink", 1, 0, 1, "killed", JOB, 0, None, "a-job"))
    killed.write(Batch.of_values(["of an attempt that was lost"], None))
    for epoch in (1, 2):
        plan = sink.plan_commit(staged(sink, epoch, [[f"epoch {epoch}"]]), None, 0, False)
        sink.commit(CommitId("a-job", "sink", epoch), plan.publish, JOB)
    assert text_of(tmp_path) == ["epoch 1\n", "epoch 2\n"]
    assert not list(tmp_path.rglob(".millstream-staging/*/0*"))


@pytest.mark.parametrize("format", [TextParts(), CsvParts(("a",), header=True)])
@pytest.mark.parametrize("damage", ["changed", "cut", "gone"])
def test_a_part_of_several_chunks_is_published_whole_or_not_at_all(tmp_path: Path, format: Any, damage: str) -> None:
    sink = FileSink(str(tmp_path), format, rolling=WhenLargeOrOld())
    pending: Json = None
    for epoch in (1, 2):
        plan = sink.plan_commit(staged(sink, epoch, [[f"epoch {epoch}"]]), pending, 0, final=epoch == 2)
        pending = plan.pending
    [part] = published_parts(plan.publish)
    last = tmp_path / part.chunks[-1].file
    whole = last.read_bytes()
    if damage == "gone":
        last.unlink()
    else:
        last.write_bytes(whole[:-1] if damage == "cut" else b"E" + whole[1:])
    with pytest.raises(StoreDamagedError, match=r"was changed|were removed before"):
        sink.commit(CommitId("a-job", "sink", 2), plan.publish, JOB)
    assert text_of(tmp_path) == []
    last.write_bytes(whole)
    for _ in range(2):  # repeated, it changes nothing
        sink.commit(CommitId("a-job", "sink", 2), plan.publish, JOB)
        [text] = text_of(tmp_path)
        assert text.endswith(("epoch 1\nepoch 2\n", '"epoch 1"\n"epoch 2"\n'))
    assert [path.name for path in tmp_path.iterdir() if not path.name.startswith("part-")] == [".millstream-staging"]


def test_the_delimiter_of_gathered_parts_is_written_between_them(tmp_path: Path) -> None:
    sink = FileSink(str(tmp_path), TextParts(), compaction=Compaction(epochs=3, delimiter=b"--\n"))
    pending: Json = None
    for epoch in (1, 2, 3):
        plan = sink.plan_commit(staged(sink, epoch, [[f"epoch {epoch}"]]), pending, 0, False)
        sink.commit(CommitId("a-job", "sink", epoch), plan.publish, JOB)
        pending = plan.pending
    assert text_of(tmp_path) == ["epoch 1\n--\nepoch 2\n--\nepoch 3\n"]


# --- which chunks become which part ----------------------------------------------------------------------------------

POLICIES = st.sampled_from([OnCheckpoint(), WhenLargeOrOld(100, 50, 50), WhenLargeOrOld(10, 50, 50)])


def chunk(epoch: int, index: int, size: int) -> Json:
    return {
        "file": f"s/{epoch}-{index}",
        "bucket": "",
        "subtask": 0,
        "epoch": epoch,
        "index": index,
        "token": "t" * 16,
        "bytes": size,
        "crc32": 0,
        "records": 1,
    }


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.integers(1, 150), max_size=4), max_size=5), POLICIES, st.integers(0, 30))
def test_parts_hold_every_chunk_once_and_in_order(
    epochs: list[list[int]], policy: RollingPolicy, pause_ms: int
) -> None:
    pending: Json = None
    parts: list[Part] = []
    for epoch, sizes in enumerate(epochs):
        chunks = [chunk(epoch, index, size) for index, size in enumerate(sizes)]
        plan = plan_parts(chunks, pending, epoch * pause_ms, epoch == len(epochs) - 1, PartRules(policy))
        parts += [Part(part.chunks, 0, 0) for part in published_parts(plan.publish)]
        pending = plan.pending
    assert not pending_parts(pending)
    order = [(each.epoch, each.index) for part in parts for each in part.chunks]
    assert order == [(epoch, index) for epoch, sizes in enumerate(epochs) for index in range(len(sizes))]
    limit = policy.chunk_bytes_max
    for part in parts:
        # What is large enough by itself is published as it is.
        assert len(part.chunks) == 1 or limit is None or all(each.bytes < limit for each in part.chunks)


def test_a_part_that_waits_is_published_before_a_chunk_that_is_a_part_by_itself() -> None:
    rules = PartRules(WhenLargeOrOld(100))
    waiting = plan_parts([chunk(1, 0, 30)], None, 0, False, rules)
    assert published_parts(waiting.publish) == []
    plan = plan_parts([chunk(2, 0, 120), chunk(2, 1, 40)], waiting.pending, 0, False, rules)
    assert [[each.bytes for each in part.chunks] for part in published_parts(plan.publish)] == [[30], [120]]
    assert [part.bytes for part in pending_parts(plan.pending)] == [40]
