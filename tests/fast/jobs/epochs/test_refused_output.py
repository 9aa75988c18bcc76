"""Rejected rows hold up their epoch until the operator decides what happens to them; each is then in one place,
once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from millstream.checkpoint.refused_output import (
    LISTS_MAX,
    ListedRow,
    RefusedList,
    allow_setting_aside,
    drop_old_lists,
    read_refused,
    refused_lists,
    write_refused,
)
from millstream.connectors.contracts import CommitId, Json, Sink, SinkWriter, WriterContext
from millstream.connectors.direct_sinks import DiscardingSink
from millstream.connectors.refused_rows import RefusedRow, RefusedRowsError, shown_row
from millstream.connectors.staged_columns import StagedColumns, read_numbered_columns
from millstream.errors import ConnectorError, ProgramError, StoreDamagedError, StoreError
from millstream.jobs.epochs.refused_output import RefusedOutput
from millstream.storage.memory import MemoryStore
from millstream.storage.shared_names import refused_name, set_aside_name
from millstream.storage.store import open_store

COMMIT = CommitId("job", "ledger", 7)


class Crash(BaseException):
    """The process ends here."""


class Ledger(Sink):
    """Accepts an epoch as a whole, once, and only numbers below 10; reports `at_once` of the rejected ones."""

    reports_refused_rows = True

    def __init__(self, at_once: int = 1) -> None:
        self.pages: dict[str, list[int]] = {}
        self.most, self.at_once = 10, at_once

    def writer(self, context: WriterContext) -> SinkWriter:
        raise AssertionError("no record is written here")

    def commit(self, commit: CommitId, publish: Sequence[Json], store: Any) -> None:
        if str(commit) in self.pages:
            return
        accepted, refused = [], []
        for item, staged in enumerate(publish):
            for columns, numbers in read_numbered_columns(staged, store):
                for at, value in enumerate(columns.column(0).to_pylist()):
                    if value < self.most:
                        accepted.append(value)
                    else:
                        row = RefusedRow(item, int(numbers[at]), f"{value} is too large", shown_row(columns, at))
                        refused.append(row)
        if refused:
            raise RefusedRowsError("the ledger refuses numbers", refused[: self.at_once])
        self.pages[str(commit)] = accepted


class CrashingStore(MemoryStore):
    """Ends the process before or after a write: after `steps` writes."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.steps: int | None = None

    def put(self, name: str, data: bytes) -> None:
        self._step()
        super().put(name, data)
        self._step()

    def delete(self, name: str) -> None:
        self._step()
        super().delete(name)

    def _step(self) -> None:
        if self.steps is not None:
            if self.steps == 0:
                self.steps = None
                raise Crash
            self.steps -= 1


@pytest.fixture
def store(unique_name: str) -> CrashingStore:
    return CrashingStore(unique_name)


@pytest.fixture
def folder(unique_name: str) -> str:
    return f"memory://letters-{unique_name}"


def stage_rows(store: Any, *parts: Sequence[int]) -> list[Json]:
    """Files staged by two tasks or more."""
    items: list[Json] = []
    for subtask, values in enumerate(parts):
        writer = StagedColumns(WriterContext("ledger", 7, subtask, len(parts), "ab", store, 0, None, "job"))
        for value in values:  # in several batches
            writer.add(pa.RecordBatch.from_pydict({"n": [value]}))
        items += writer.stage()
    return items


def publish(store: Any, sink: Sink, items: Sequence[Json]) -> None:
    """As a newly started driver publishes."""
    RefusedOutput(store, lambda: 1_000).commit(sink, COMMIT, "Ledger", items)


def dead_letters(folder: str) -> list[tuple[int, str]]:
    """The rows in a folder of dead letters, and the reasons."""
    target = open_store(folder)
    lines = [
        json.loads(line)
        for name in target.list("")
        if name.endswith(".jsonl")
        for line in target.get(name).decode().splitlines()
    ]
    return [(line["record"]["n"], line["reason"]) for line in lines]


def allow(store: Any, folder: str) -> None:
    refused = read_refused(store, "ledger", 7)
    assert refused is not None
    allow_setting_aside(store, refused, folder)


def test_a_rejected_row_holds_up_its_epoch_and_the_error_says_how_to_continue(store: CrashingStore) -> None:
    sink, items = Ledger(), stage_rows(store, [1, 12], [3])
    for _ in range(2):
        with pytest.raises(RefusedRowsError, match=r"numbers\. Of epoch 7.* a row is refused.*`millstream refused"):
            publish(store, sink, items)
    assert not sink.pages
    [(_, refused)] = refused_lists(store, "job")
    assert isinstance(refused, RefusedList)
    assert refused.rows == (ListedRow(0, 1, "12 is too large", '{"n": 12}'),) and not refused.is_set_aside


@pytest.mark.parametrize("at_once", [1, 2, 100])
def test_with_permission_the_rest_is_published_and_the_refused_rows_are_in_the_folder(
    store: CrashingStore, folder: str, at_once: int
) -> None:
    sink, items = Ledger(at_once), stage_rows(store, [11, 1, 12], [3, 13], [14])
    with pytest.raises(RefusedRowsError):
        publish(store, sink, items)
    allow(store, folder)
    for _ in range(2):
        publish(store, sink, items)
    assert list(sink.pages.values()) == [[1, 3]]
    assert dead_letters(folder) == [(n, f"{n} is too large") for n in (11, 12, 13, 14)]
    with pa.ipc.open_file(pa.BufferReader(open_store(folder).get(f"{COMMIT}-0.arrow"))) as file:
        assert file.read_all().to_pydict() == {"n": [11, 12, 13, 14]}
    [(_, refused)] = refused_lists(store, "job")
    assert isinstance(refused, RefusedList) and refused.files == (f"{COMMIT}.jsonl", f"{COMMIT}-0.arrow")


def test_a_sink_with_dead_letters_is_never_held_up(store: CrashingStore, folder: str) -> None:
    sink = Ledger().with_dead_letters(folder)
    publish(store, sink, stage_rows(store, [11, 1, 12]))
    assert sink.pages == {str(COMMIT): [1]} and [n for n, _ in dead_letters(folder)] == [11, 12]


@pytest.mark.parametrize("steps", range(24))
def test_a_crash_anywhere_leaves_every_row_in_one_place_once(store: CrashingStore, folder: str, steps: int) -> None:
    sink, items = Ledger(), stage_rows(store, [11, 1, 12], [3, 13])
    store.steps = steps
    for _ in range(5):  # report, permission, and one more publish per crash
        try:
            publish(store, sink, items)
        except Crash:
            pass
        except RefusedRowsError:
            with suppress(Crash):
                allow(store, folder)
    assert list(sink.pages.values()) == [[1, 3]]
    assert [n for n, _ in dead_letters(folder)] == [11, 12, 13]


def test_a_repaired_target_gets_all_rows_and_no_row_stays_listed(store: CrashingStore) -> None:
    sink, items = Ledger(), stage_rows(store, [1, 12])
    with pytest.raises(RefusedRowsError):
        publish(store, sink, items)
    sink.most = 100
    publish(store, sink, items)
    assert sink.pages == {str(COMMIT): [1, 12]} and not list(refused_lists(store, "job"))


def test_a_set_aside_row_stays_so_when_the_target_is_repaired_after_a_crash(store: CrashingStore, folder: str) -> None:
    sink, items = Ledger().with_dead_letters(folder), stage_rows(store, [1, 12])
    store.steps = 3  # the row is listed; the list is not yet marked as done
    with pytest.raises(Crash):
        publish(store, sink, items)
    sink.most = 100
    publish(store, sink, items)
    assert sink.pages == {str(COMMIT): [1]} and [n for n, _ in dead_letters(folder)] == [12]


def test_no_row_is_set_aside_when_nearly_all_are_rejected(
    store: CrashingStore, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, items = Ledger(5).with_dead_letters(folder), stage_rows(store, range(10, 40))
    monkeypatch.setattr("millstream.jobs.epochs.refused_output._ROWS_MAX", 20)
    with pytest.raises(ConnectorError, match="More than 20 rows of epoch 7 are refused"):
        publish(store, sink, items)
    assert not sink.pages and not dead_letters(folder)


def test_a_long_list_shows_its_first_rows_and_the_folder_has_all(
    store: CrashingStore, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, items = Ledger(3).with_dead_letters(folder), stage_rows(store, range(10, 20))
    monkeypatch.setattr("millstream.jobs.epochs.refused_output._SHOWN_MAX", 4)
    publish(store, sink, items)
    refused = read_refused(store, "ledger", 7)
    assert refused is not None
    assert [row.shown for row in refused.rows] == [f'{{"n": {n}}}' for n in range(10, 14)] + [""] * 6
    assert [n for n, _ in dead_letters(folder)] == list(range(10, 20))


def test_an_unwritable_folder_is_replaced_by_the_next_configured_one(
    store: CrashingStore, folder: str, tmp_path: Path
) -> None:
    (tmp_path / "file").touch()
    unwritable = str(tmp_path / "file" / "letters")
    sink, items = Ledger(), stage_rows(store, [11, 1])
    with pytest.raises(RefusedRowsError):
        publish(store, sink, items)
    allow(store, unwritable)
    with pytest.raises(StoreError, match=r"1 refused rows of epoch 7 cannot .*file/letters.* --set-aside FOLDER`"):
        publish(store, sink, items)
    allow(store, folder)
    publish(store, sink, items)
    assert sink.pages == {str(COMMIT): [1]} and [n for n, _ in dead_letters(folder)] == [11]
    refused = read_refused(store, "ledger", 7)
    assert refused is not None and refused.folder == open_store(folder).url


def test_a_program_with_another_folder_continues(store: CrashingStore, folder: str, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    sink, items = Ledger(), stage_rows(store, [11, 1])
    with pytest.raises(StoreError, match="cannot be written to"):
        publish(store, sink.with_dead_letters(str(tmp_path / "file" / "letters")), items)
    publish(store, sink.with_dead_letters(folder), items)
    assert sink.pages == {str(COMMIT): [1]} and [n for n, _ in dead_letters(folder)] == [11]


@pytest.mark.parametrize("damage", [False, True])
def test_a_permission_of_another_job_or_a_damaged_one_is_replaced(
    store: CrashingStore, folder: str, damage: bool
) -> None:
    sink, items = Ledger(), stage_rows(store, [11, 1])
    allow_setting_aside(store, RefusedList("before", "ledger", 7, "L", "x", (), 0), folder)
    with pytest.raises(RefusedRowsError):
        publish(store, sink, items)
    if damage:
        store.put(set_aside_name("ledger", 7), b"{")
    allow(store, folder)
    refused = read_refused(store, "ledger", 7)
    assert refused is not None and not allow_setting_aside(store, refused, folder), "the permission exists already"
    publish(store, sink, items)
    assert sink.pages == {str(COMMIT): [1]} and [n for n, _ in dead_letters(folder)] == [11]


def test_rows_set_aside_by_a_driver_that_died_are_written_by_the_next_one(
    store: CrashingStore, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = Ledger().with_dead_letters(folder)
    items = stage_rows(store, [11, 1])

    class OvertakenSink(Ledger):
        """Another driver publishes, and dies before it has written the rows, while this one is about to."""

        def commit(self, commit: CommitId, publish_now: Sequence[Json], store: Any) -> None:
            with monkeypatch.context() as patch, pytest.raises(Crash):
                patch.setattr("millstream.jobs.epochs.refused_output.write_dead_letters", crash)
                publish(store, first, items)
            super().commit(commit, publish_now, store)

    def crash(*_: Any) -> None:
        raise Crash

    second = OvertakenSink().with_dead_letters(folder)
    second.pages = first.pages  # type: ignore[attr-defined]
    publish(store, second, items)
    assert list(first.pages.values()) == [[1]] and [n for n, _ in dead_letters(folder)] == [11]  # type: ignore[attr-defined]


def test_too_many_rejected_rows_are_published_once_the_target_is_repaired(
    store: CrashingStore, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink, items = Ledger(5).with_dead_letters(folder), stage_rows(store, range(10, 40))
    monkeypatch.setattr("millstream.jobs.epochs.refused_output._ROWS_MAX", 20)
    with pytest.raises(ConnectorError, match="none of them is set aside"):
        publish(store, sink, items)
    sink.most = 100
    publish(store, sink, items)
    assert sink.pages == {str(COMMIT): [*range(10, 40)]} and not dead_letters(folder)


def test_a_sink_that_continues_after_rejected_rows_skips_those_it_has_passed(
    store: CrashingStore, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Redis counts the commands that it ran: the count is meaningless without the list of rejected ones."""

    class ContinuingLedger(Ledger):
        def commit(self, commit: CommitId, publish: Sequence[Json], store: Any) -> None:
            try:
                super().commit(commit, publish, store)
            except RefusedRowsError as error:
                raise RefusedRowsError(error.message, error.rows, continues_after=True) from error

    sink, items = ContinuingLedger(1).with_dead_letters(folder), stage_rows(store, [11, 12, 13, 1])
    monkeypatch.setattr("millstream.jobs.epochs.refused_output._ROWS_MAX", 2)
    with pytest.raises(ConnectorError, match="the first 2 are written to the folder when the epoch is published"):
        publish(store, sink, items)
    sink.most = 100
    publish(store, sink, items)
    assert sink.pages == {str(COMMIT): [13, 1]} and [n for n, _ in dead_letters(folder)] == [11, 12]


def test_a_sink_that_cannot_identify_rejected_rows_accepts_no_folder() -> None:
    with pytest.raises(ProgramError, match="cannot identify the rows its target refuses"):
        DiscardingSink().with_dead_letters("letters")


def test_a_list_of_another_job_in_the_same_store_is_ignored(store: CrashingStore, folder: str) -> None:
    rows = (ListedRow(0, 0, "once", "{}"),)
    write_refused(store, RefusedList("before", "ledger", 7, "Ledger", "ledger", rows, 0, folder))
    sink = Ledger()
    publish(store, sink, stage_rows(store, [1, 2]))
    assert sink.pages == {str(COMMIT): [1, 2]}


def test_a_damaged_list_stops_only_an_epoch_with_rows_set_aside(store: CrashingStore, folder: str) -> None:
    sink, items = Ledger(), stage_rows(store, [1, 12])
    with pytest.raises(RefusedRowsError):
        publish(store, sink, items)
    allow(store, folder)
    store.put(refused_name("ledger", 7), b"{")
    sink.most = 100
    with pytest.raises(StoreDamagedError, match="is not a complete refused"):
        publish(store, sink, items)
    store.delete(set_aside_name("ledger", 7))
    publish(store, sink, items)
    assert sink.pages == {str(COMMIT): [1, 12]}


def test_a_list_of_the_first_version_is_read(store: CrashingStore) -> None:
    store.put(refused_name("ledger", 7), FIRST_LIST)
    store.put(set_aside_name("ledger", 7), FIRST_PERMISSION)
    expected = RefusedList(
        "job", "ledger", 7, "Ledger", "the ledger", (ListedRow(0, 1, "too large", '{"n": 12}'),), 1_000, "memory://d"
    )
    assert read_refused(store, "ledger", 7) == expected
    write_refused(store, expected)
    assert json.loads(store.get(refused_name("ledger", 7))) == json.loads(FIRST_LIST)


def test_the_newest_lists_of_rows_set_aside_are_retained(store: CrashingStore) -> None:
    for epoch in range(1, LISTS_MAX + 4):
        files = () if epoch == 1 else ("a.jsonl",)
        write_refused(store, RefusedList("job", "ledger", epoch, "Ledger", "x", (), 0, "memory://d", files))
    drop_old_lists(store, "job", "ledger")
    epochs = [refused.epoch for _, refused in refused_lists(store, "job") if isinstance(refused, RefusedList)]
    assert epochs == [1, *range(4, LISTS_MAX + 4)]


def test_retained_lists_are_not_read_again_for_each_epoch(
    store: CrashingStore, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for epoch in range(50):
        write_refused(
            store, RefusedList("job", "ledger", epoch + 100, "Ledger", "x", (), 0, "memory://d", ("a.jsonl",))
        )
    read: list[str] = []
    get = store.get
    monkeypatch.setattr(store, "get", lambda name: (read.append(name), get(name))[1])
    publish(store, Ledger().with_dead_letters(folder), stage_rows(store, [1, 12]))
    assert [n for n, _ in dead_letters(folder)] == [12]
    assert not [name for name in read if name.startswith("refused/")]


FIRST_LIST = rb"""{
 "format": "millstream-refused-1",
 "job_id": "job",
 "sink": "ledger",
 "epoch": 7,
 "operator": "Ledger",
 "target": "the ledger",
 "rows": [
  {
   "item": 0,
   "row": 1,
   "reason": "too large",
   "shown": "{\"n\": 12}"
  }
 ],
 "listed_ms": 1000,
 "folder": "memory://d",
 "files": [],
 "checksum": "63016bd79094ca8a087f6c85c58232fdda65ac4817b9623386cb10db3e43696a"
}
"""
FIRST_PERMISSION = rb"""{
 "format": "millstream-set-aside-1",
 "job_id": "job",
 "sink": "ledger",
 "epoch": 7,
 "folder": "memory://d",
 "checksum": "0e426a3175f9d9cc9ff079d1fae0addad6935d9d087aab229066e7ad31189891"
}
"""
