"""Input through the store: a batch counts once however often it is offered, and room is made for the next."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millstream.common.typeinfo import Types
from millstream.connectors.batch_series import InheritedBatches
from millstream.connectors.contracts import Split
from millstream.connectors.spark_frame import inherit_checkpoint
from millstream.connectors.stored_batches import StoredBatches, read_stored
from millstream.errors import FencedError, ProgramError, StoreDamagedError, StoreError
from millstream.storage.layered_stores import layered_store
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


def opened(store: Store, name: str = "in") -> StoredBatches:
    batches = StoredBatches(store, name, NUMBERS)
    batches.begin()
    return batches


def filled(store: Store, count: int) -> tuple[StoredBatches, list[str]]:
    """So many batches of two rows each, and the names of their splits."""
    batches = opened(store)
    for number in range(count):
        write(store, batches, number, [2 * number, 2 * number + 1])
        batches.add(number)
    return batches, [split.name for split in batches.splits()]


def test_a_batch_offered_again_after_a_crash_is_known_before_and_after_it_was_removed(store: Store) -> None:
    _, names = filled(store, 3)
    again = opened(store)
    assert again.has(0) and [split.name for split in again.splits()] == names
    again.released([dict.fromkeys(names, 2)])
    assert again.has(0) and [split.name for split in again.splits()] == names[2:]
    assert opened(store).has(1) and not opened(store).has(3)
    assert len([name for name in store.list("input") if name.endswith(".parquet")]) == 1


def test_a_batch_is_retained_until_every_retained_epoch_has_read_it_and_all_before_it(store: Store) -> None:
    batches, names = filled(store, 4)
    old, new = {names[0]: 2, names[1]: 1}, dict.fromkeys(names, 2)
    for kept in ([old, new], [new, old], [{}, new], []):
        batches.released(kept)
        assert [split.name for split in batches.splits()] == names
    batches.released([{**old, names[1]: 2}, new])
    assert [split.name for split in batches.splits()] == names[1:], "the newest that was read tells how far it went"
    batches.released([new, new])
    assert [split.name for split in batches.splits()] == names[3:]


def test_batches_without_rows_hold_nothing_up(store: Store) -> None:
    batches, names = filled(store, 2)
    for number in (2, 3):
        write(store, batches, number, [])
        batches.add(number)
    batches.released([dict.fromkeys(names, 2)])
    assert [split.name for split in batches.splits()] == names[1:]
    opened(store).committed(dict.fromkeys(names, 2))


def test_a_job_that_would_go_on_before_what_was_removed_is_refused(store: Store) -> None:
    batches, names = filled(store, 4)
    batches.released([dict.fromkeys(names, 2)])
    opened(store).committed({names[3]: 2})
    with pytest.raises(StoreError, match="batches 1 to 2 of DataFrame 'in' are removed"):
        opened(store).committed({names[0]: 2})
    with pytest.raises(StoreError, match="batches 0 to 2 of DataFrame 'in' are removed"):
        opened(store).splits()  # of a job whose manifests are gone


def test_of_two_drivers_that_begin_a_job_at_once_one_stores_its_input(store: Store) -> None:
    """The series of one that has stopped would be the job's, and nothing of what the other has read be found in it."""
    first, second = StoredBatches(store, "in", NUMBERS), StoredBatches(store, "in", NUMBERS)
    first.begin()
    with pytest.raises(FencedError, match="another driver has started this job at the same time"):
        second.begin()
    write(store, first, 0, [1, 2])
    first.add(0)
    [split] = first.splits()
    StoredBatches(store, "in", NUMBERS).committed({split.name: 2})


def test_positions_of_batches_that_are_nowhere_are_refused(store: Store) -> None:
    with pytest.raises(StoreError, match=r"series 'abcdef'.*start from STORE@EPOCH"):
        opened(store).committed({"abcdef-000000000007-00000": 2})


def test_a_fork_reads_on_where_the_batches_of_its_origin_lie_and_counts_on_after_them(tmp_path: Path) -> None:
    origin = open_store(str(tmp_path / "origin"))
    batches, names = filled(origin, 3)
    fork = layered_store(open_store(str(tmp_path / "fork")), (origin,))
    forked = opened(fork)
    write(origin, batches, 3, [100, 101])  # the origin goes on
    batches.add(3)
    forked.committed({names[0]: 2, names[1]: 1})
    assert [forked.has(number) for number in (0, 2, 3)] == [True, True, False]
    write(fork, forked, 3, [6, 7])
    forked.add(3)
    for again in (forked, opened(fork)):
        splits = again.splits()
        assert [split.name for split in splits[:3]] == names and splits[3].name not in [
            s.name for s in batches.splits()
        ]
        assert [rows(split, 0, 2) for split in splits] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    forked.released([dict.fromkeys([split.name for split in forked.splits()], 2)])
    assert [split.name for split in batches.splits()][:3] == names and len(origin.list("input/in/markers")) == 4
    twice = opened(layered_store(open_store(str(tmp_path / "fork-of-fork")), (open_store(fork.url), origin)))
    assert [rows(split, 0, 2) for split in twice.splits()] == [[0, 1], [2, 3], [4, 5], [6, 7]] and twice.has(3)


def test_input_from_before_there_were_series_is_read_on(store: Store) -> None:
    path = store.local_path("input/in/batch-000000000005/part-0.parquet")
    assert path is not None
    pq.write_table(pa.table({"n": pa.array([1, 2], pa.int64())}), path)
    file = {"file": "input/in/batch-000000000005/part-0.parquet", "rows": 2}
    store.put("input/in/markers/000000000005.json", json.dumps({"type": NUMBERS.notation, "files": [file]}).encode())
    store.put("input/in/consumed.json", b'{"through": 4}')
    batches = opened(store)
    [split] = batches.splits()
    batches.committed({"000000000005-00000": 1})
    assert split.name == "000000000005-00000" and rows(split, 1, 2) == [2] and batches.has(4) and not batches.has(6)
    assert batches.scratch("checkpoint") == "input/in/checkpoint" and batches.folder(6) == "input/in/batch-000000000006"


def test_the_writer_waits_for_its_reader_and_is_let_go_when_the_reader_leaves(store: Store) -> None:
    batches, [name] = filled(store, 1)
    passed = threading.Event()
    waiting = threading.Thread(target=lambda: (batches.wait_for_room(1), passed.set()))
    waiting.start()
    assert not passed.wait(0.1)
    batches.committed({name: 2})
    assert passed.wait(60)
    waiting.join()
    batches.close()
    with pytest.raises(InterruptedError):
        batches.wait_for_room(1)


def test_batches_of_an_earlier_driver_do_not_block_the_writer(store: Store) -> None:
    filled(store, 1)
    opened(store).wait_for_room(1)


def test_input_of_another_type_or_a_damaged_list_is_refused(store: Store) -> None:
    batches, _ = filled(store, 1)
    with pytest.raises(ProgramError, match="stored input of type"):
        StoredBatches(store, "in", Types.ROW_NAMED(["n"], [Types.STRING()]))
    [split] = batches.splits()
    store.delete(split.info["file"])
    with pytest.raises(StoreDamagedError, match="missing or damaged"):
        rows(split, 0, 1)
    [marker] = store.list("input/in/markers")
    store.put(marker, b"{")
    with pytest.raises(StoreDamagedError, match="not a complete input-batch"):
        opened(store)
    store.put("input/in/series.json", b"{")
    with pytest.raises(StoreDamagedError, match="not a complete input-series"):
        opened(store)


def test_a_fork_goes_on_with_the_checkpoint_of_its_origin_as_of_the_last_batch_it_inherits(tmp_path: Path) -> None:
    origin, fork = open_store(str(tmp_path / "origin")), open_store(str(tmp_path / "fork"))
    for batch in range(4):
        origin.put(f"input/in/checkpoint-3f/offsets/{batch}", b"v1\n%d" % batch)
        origin.put(f"input/in/checkpoint-3f/sources/0/{batch}", b"file %d" % batch)
    for batch in range(3):  # the last one is at work
        origin.put(f"input/in/checkpoint-3f/commits/{batch}", b"v1\n{}")
    origin.put("input/in/checkpoint-3f/metadata", b'{"id":"of the origin"}')
    origin.put("input/in/checkpoint-3f/offsets/.0.crc", b"of another file system")
    past = InheritedBatches(origin.url, "3f", 2)
    inherit_checkpoint("in", past, fork, "input/in/checkpoint-9a")
    files = {name.removeprefix("input/in/checkpoint-9a/") for name in fork.list("input")}
    logs = {f"{log}/{batch}" for log in ("offsets", "commits") for batch in range(3)}
    assert files == logs | {"metadata"} | {f"sources/0/{batch}" for batch in range(4)}
    assert fork.get("input/in/checkpoint-9a/offsets/2") == b"v1\n2"
    assert json.loads(fork.get("input/in/checkpoint-9a/metadata"))["id"] != "of the origin"
    with pytest.raises(StoreError, match=r"does not have the end of batch 7.*Start the job there once"):
        inherit_checkpoint("in", InheritedBatches(origin.url, "3f", 7), fork, "input/in/checkpoint-b0")
    inherit_checkpoint("in", InheritedBatches(origin.url, "3f", -1), fork, "input/in/checkpoint-c0")
    assert not fork.list("input/in/checkpoint-c0"), "an origin that has stored nothing has nothing to go on from"
