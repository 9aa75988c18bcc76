"""Input through the store: a batch counts once however often it is offered, and room is made for the next."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.common.typeinfo import Types
from millstream.connectors.contracts import Split
from millstream.connectors.stored_batches import StoredBatches, read_stored
from millstream.errors import ProgramError, StoreDamagedError
from millstream.storage.store import Store, open_store

NUMBERS = Types.ROW_NAMED(["n"], [Types.LONG()])


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


def write(store: Store, batches: StoredBatches, number: int, *files: list[int]) -> None:
    for at, rows in enumerate(files):
        path = store.local_path(f"{batches.folder(number)}/part-{at}.parquet")
        assert path is not None
        pq.write_table(pa.table({"n": pa.array(rows, pa.int64())}), path, row_group_size=2)


def rows(split: Split, start: int, stop: int) -> list[Any]:
    return [row["n"] for batch in read_stored(split, start, stop, NUMBERS) for row in batch.to_pylist()]


def test_a_batch_is_seen_only_when_it_is_complete_and_then_read_in_any_range(store: Store) -> None:
    batches = StoredBatches(store, "in", NUMBERS)
    write(store, batches, 0, [1, 2, 3, 4, 5], [], [6])
    assert batches.splits() == [] and not batches.has(0)
    batches.add(0)
    first, second = batches.splits()
    assert rows(first, 1, 4) == [2, 3, 4] and rows(first, 4, 5) == [5] and rows(second, 0, 1) == [6]


def test_a_batch_offered_again_after_a_crash_is_known_before_and_after_it_was_read(store: Store) -> None:
    batches = StoredBatches(store, "in", NUMBERS)
    write(store, batches, 0, [1])
    batches.add(0)
    again = StoredBatches(store, "in", NUMBERS)
    assert again.has(0) and [split.name for split in again.splits()] == ["000000000000-00000"]
    again.committed({"000000000000-00000": 1}, delete=True)
    assert again.has(0) and again.splits() == []
    assert StoredBatches(store, "in", NUMBERS).has(0)
    assert store.list("input") == ["input/in/consumed.json"]


def test_a_batch_is_kept_until_it_and_all_before_it_are_read(store: Store) -> None:
    batches = StoredBatches(store, "in", NUMBERS)
    for number in (0, 1, 2):
        write(store, batches, number, [1, 2])
        batches.add(number)
    names = [split.name for split in batches.splits()]
    batches.committed({names[0]: 1, names[1]: 2}, delete=True)
    assert [split.name for split in batches.splits()] == names
    batches.committed({names[0]: 2, names[1]: 2}, delete=True)
    assert [split.name for split in batches.splits()] == names[2:]


def test_the_writer_waits_for_its_reader_and_is_let_go_when_the_reader_leaves(store: Store) -> None:
    batches = StoredBatches(store, "in", NUMBERS)
    write(store, batches, 0, [1])
    batches.add(0)
    passed = threading.Event()
    waiting = threading.Thread(target=lambda: (batches.wait_for_room(1), passed.set()))
    waiting.start()
    assert not passed.wait(0.1)
    batches.committed({"000000000000-00000": 1}, delete=False)
    assert passed.wait(5)
    waiting.join()
    batches.close()
    with pytest.raises(InterruptedError):
        batches.wait_for_room(1)


def test_batches_of_an_earlier_driver_do_not_block_the_writer(store: Store) -> None:
    batches = StoredBatches(store, "in", NUMBERS)
    write(store, batches, 0, [1])
    batches.add(0)
    StoredBatches(store, "in", NUMBERS).wait_for_room(1)


def test_input_of_another_type_or_a_damaged_list_is_refused(store: Store) -> None:
    batches = StoredBatches(store, "in", NUMBERS)
    write(store, batches, 0, [1])
    batches.add(0)
    with pytest.raises(ProgramError, match="stored input of type"):
        StoredBatches(store, "in", Types.ROW_NAMED(["n"], [Types.STRING()]))
    [split] = batches.splits()
    store.delete(split.info["file"])
    with pytest.raises(StoreDamagedError, match="missing or damaged"):
        rows(split, 0, 1)
    store.put("input/in/markers/000000000000.json", b"{")
    with pytest.raises(StoreDamagedError, match="not readable"):
        StoredBatches(store, "in", NUMBERS)
