"""Manifests: whole, equal to what was written, or a named error; and one committer per epoch."""

from __future__ import annotations

import hashlib
import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.checkpoint import job_record
from millstream.checkpoint.manifest import (
    Manifest,
    ManifestLog,
    ManifestOwner,
    SplitPosition,
    Staged,
    decode,
    encode,
)
from millstream.errors import ProgramError, StoreDamagedError, StoreError
from millstream.storage import Store, open_store
from millstream.storage.memory import MemoryStore
from millstream.storage.names import epoch_of_manifest, manifest_name

YESTERDAY = Path(__file__).parents[2] / "compatibility" / "manifest-1.json"
NAME = manifest_name(7)


def trim(log: ManifestLog, epoch: int) -> None:
    """Delete the manifests older than `epoch`, but never the newest, as a collector does."""
    for old in log.epochs()[:-1]:
        if old < epoch:
            log._store.delete(manifest_name(old))


def manifest(epoch: int = 7, **changes: Any) -> Manifest:
    values: dict[str, Any] = {
        "job": "clicks",
        "job_id": "5d1f",
        "epoch": epoch,
        "parent": epoch - 1,
        "created_ms": 1_700_000_000_000,
        "run": "a1",
        "published_through": epoch - 1,
    }
    return Manifest(**{**values, **changes})


FULL = manifest(
    sources={
        "in": {
            "0": SplitPosition(offset={"file": "a.csv", "byte": 12}, finished=True, watermark=2**63 - 1),
            "1": SplitPosition(offset=None),
        }
    },
    states={"count": {"segments": ["s-1", "s-2"]}},
    staged={"out": (Staged(0, {"files": ["x"]}), Staged(1, None)), "quiet": ()},
    watermark=-5,
    counters={"in.records": 10, "ratio": 0.5},
    program={"max_parallelism": 128, "operators": {"in": {"name": "Quelle ü", "parallelism": 2}}},
)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return MemoryStore(str(tmp_path))


@pytest.fixture
def log(store: Store) -> ManifestLog:
    return ManifestLog(store)


# --- the file -----------------------------------------------------------------------------------------------


def test_what_is_written_reads_back_equal_and_is_written_the_same_again() -> None:
    assert decode(encode(FULL), NAME) == FULL
    assert encode(decode(encode(FULL), NAME)) == encode(FULL)


def test_the_file_is_json_for_people_with_format_job_and_epoch_first() -> None:
    lines = encode(FULL).decode().splitlines()
    assert lines[1:4] == [' "format": "millstream-manifest-1",', ' "job": "clicks",', ' "epoch": 7,']
    document = json.loads(encode(FULL))
    assert list(document)[3:-1] == sorted(list(document)[3:-1])
    assert list(document)[-1] == "checksum"


def test_equal_manifests_are_equal_bytes_whatever_the_order_of_their_keys() -> None:
    one = manifest(counters={"a": 1, "b": {"c": 1, "d": 2}})
    other = manifest(counters={"b": {"d": 2, "c": 1}, "a": 1})
    assert encode(one) == encode(other)


def test_yesterdays_file_reads_today() -> None:
    assert decode(YESTERDAY.read_bytes(), YESTERDAY.name) == FULL


def test_this_format_is_still_the_one_of_yesterdays_file() -> None:
    # When this fails, the format has changed: count FORMAT up, keep reading the old one, add a new fixture.
    assert encode(FULL) == YESTERDAY.read_bytes()


def test_every_cut_is_found() -> None:
    data = encode(FULL)
    for length in range(len(data)):
        with pytest.raises(StoreDamagedError, match=NAME):
            decode(data[:length], NAME)
    with pytest.raises(StoreDamagedError, match="is empty"):
        decode(b"\0" * len(data), NAME)
    with pytest.raises(StoreDamagedError, match="cut short"):
        decode(data[:-100], NAME)


@settings(max_examples=60)
@given(st.data())
def test_every_flipped_bit_is_found(data: st.DataObject) -> None:
    written = bytearray(encode(FULL))
    place, bit = data.draw(st.integers(0, len(written) - 1)), data.draw(st.integers(0, 7))
    written[place] ^= 1 << bit
    with pytest.raises(StoreDamagedError, match=NAME):
        decode(bytes(written), NAME)


@pytest.mark.parametrize("version", ["1", "9" * 5_000])
def test_a_manifest_that_was_forged_to_be_endless_is_damage(version: str) -> None:
    body = f'{{\n "format": "millstream-manifest-{version}",\n "states": {"[" * 50_000}{"]" * 50_000}'
    data = f'{body},\n "checksum": "{hashlib.sha256(body.encode()).hexdigest()}"\n}}\n'.encode()
    with pytest.raises(StoreDamagedError, match=r"manifests/7\.json"):
        decode(data, "manifests/7.json")


def test_bytes_behind_the_end_are_found() -> None:
    with pytest.raises(StoreDamagedError, match=NAME):
        decode(encode(FULL) + b"\n", NAME)


def test_a_changed_value_is_told_as_a_checksum_that_does_not_match() -> None:
    with pytest.raises(StoreDamagedError, match=r"checksum does not match.*Nothing was overwritten"):
        decode(encode(FULL).replace(b'"byte": 12', b'"byte": 13'), NAME)


@pytest.mark.parametrize("rest", [b'"job": "clicks",\n "segments": "elsewhere"}', b'"seal": 1}'])
def test_a_newer_format_asks_for_an_upgrade(rest: bytes) -> None:
    with pytest.raises(StoreDamagedError, match=r"format 4, .* reads up to 3: .*newer Millstream. Upgrade"):
        decode(b'{\n "format": "millstream-manifest-4",\n ' + rest, NAME)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(JSON_VALUES, st.text(), st.text(), JSON_VALUES)
def test_any_json_in_offsets_payloads_and_state_survives(offset: Any, uid: str, split: str, payload: Any) -> None:
    written = manifest(
        sources={uid: {split: SplitPosition(offset)}}, staged={uid: (Staged(3, payload),)}, states={uid: payload}
    )
    assert decode(encode(written), NAME) == written


def test_a_tuple_is_the_list_it_will_be_after_a_restart_from_the_start() -> None:
    assert SplitPosition(offset=(1, (2,))).offset == [1, [2]]  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [b"x", float("nan"), float("inf"), {1: 2}, {"a": object()}, {1, 2}])
def test_what_json_would_lose_is_refused_when_it_is_handed_over(value: Any) -> None:
    with pytest.raises(ProgramError, match=r"staged output of subtask 3 holds .* which JSON cannot represent"):
        Staged(3, value)
    with pytest.raises(ProgramError, match="offset of a split"):
        SplitPosition(value)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"epoch": 0, "parent": -1, "published_through": 0}, "cannot follow"),
        ({"parent": 7}, "cannot follow"),
        ({"published_through": 8}, "outside 0..7"),
        ({"published_through": 7, "staged": {"out": (Staged(0, 1),)}}, "before it is committed"),
        ({"status": "FINISHED", "staged": {"out": (Staged(0, 1),)}}, "cannot carry output"),
        ({"status": "SLEEPING"}, "unknown status"),
    ],
)
def test_a_manifest_that_breaks_an_invariant_cannot_be_made(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        manifest(**changes)


# --- the log ------------------------------------------------------------------------------------------------


def test_the_newest_is_the_highest_epoch_and_an_empty_store_has_none(log: ManifestLog) -> None:
    assert log.newest() is None
    assert log.epochs() == []
    for epoch in (1, 2, 3):
        assert log.commit(manifest(epoch))
    assert log.epochs() == [1, 2, 3]
    assert log.newest() == manifest(3)
    assert log.read(2) == manifest(2)


def test_the_second_committer_of_an_epoch_loses_and_changes_nothing(log: ManifestLog) -> None:
    assert log.commit(manifest(1, run="a1"))
    assert not log.commit(manifest(1, run="b2"))
    assert log.read(1).run == "a1"
    assert log.find(manifest(1, run="b2")) is ManifestOwner.OTHER


def test_of_many_committers_exactly_one_wins(log: ManifestLog) -> None:
    wins: list[str] = []

    def race(me: str) -> None:
        if log.commit(manifest(1, run=me)):
            wins.append(me)

    racers = [threading.Thread(target=race, args=(f"a{i}",)) for i in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert wins == [log.read(1).run]


def test_a_commit_whose_answer_was_lost_is_found_and_may_be_repeated(log: ManifestLog) -> None:
    mine = manifest(1)
    assert log.find(mine) is ManifestOwner.ABSENT
    log.commit(mine)
    assert log.find(mine) is ManifestOwner.OWN
    assert log.commit(mine)


def test_the_same_drivers_other_try_of_an_epoch_is_not_mistaken_for_this_one(log: ManifestLog) -> None:
    # A put that was believed lost may land late. Taking its offsets for ours would lose records.
    log.commit(manifest(1, sources={"in": {"0": SplitPosition(100)}}))
    later = manifest(1, sources={"in": {"0": SplitPosition(120)}})
    assert log.find(later) is ManifestOwner.OTHER
    assert not log.commit(later)


def test_a_driver_that_slept_past_a_trimmed_epoch_cannot_commit_into_the_hole(log: ManifestLog) -> None:
    for epoch in range(1, 20):
        log.commit(manifest(epoch, run="new"))
    trim(log, 15)
    asleep = manifest(4, run="old")
    assert not log.commit(asleep)
    assert log.find(asleep) is ManifestOwner.OTHER
    assert log.newest() == manifest(19, run="new")


def test_a_damaged_newest_manifest_is_named_with_the_newest_whole_epoch(store: Store, log: ManifestLog) -> None:
    for epoch in (1, 2, 3, 4):
        log.commit(manifest(epoch))
    store.put(manifest_name(3), b"{}")
    store.put(manifest_name(4), encode(manifest(4))[:-20])
    with pytest.raises(
        StoreDamagedError, match=r"000000000004.json is damaged: it is cut .* newest intact epoch is 2\."
    ):
        log.newest()
    store.put(manifest_name(1), b"")
    store.put(manifest_name(2), b"")
    with pytest.raises(StoreDamagedError, match="No older epoch is intact"):
        log.newest()


def test_a_manifest_under_another_epochs_name_is_damage(store: Store, log: ManifestLog) -> None:
    store.put(manifest_name(2), encode(manifest(1)))
    with pytest.raises(StoreDamagedError, match="holds the manifest of epoch 1"):
        log.read(2)


def test_files_that_are_no_manifests_are_passed_over(store: Store, log: ManifestLog) -> None:
    store.put("manifests/zz-notes.txt", b"hello")
    log.commit(manifest(1))
    assert log.newest() == manifest(1)


def test_the_newest_manifest_is_made_durable_before_it_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Its writer may have been killed between link and fsync: publishing it and then losing it would publish twice.
    ManifestLog(open_store(str(tmp_path), fsync=False)).commit(manifest(1))
    synced: list[str] = []
    monkeypatch.setattr(os, "fsync", lambda number: synced.append(os.readlink(f"/proc/self/fd/{number}")))
    assert ManifestLog(open_store(str(tmp_path))).newest() == manifest(1)
    assert synced == [str(tmp_path / manifest_name(1)), str(tmp_path / "manifests"), str(tmp_path)]


def test_a_reader_that_is_always_too_late_gets_the_newest_in_the_end(tmp_path: Path) -> None:
    class Trimmed(MemoryStore):
        """Loses each manifest right after it was listed, for as long as the driver runs ahead."""

        def settle(self, name: str) -> None:
            epoch = epoch_of_manifest(name) or 0
            if epoch < 50:
                ahead = ManifestLog(MemoryStore(str(tmp_path)))
                assert ahead.commit(manifest(epoch + 1))
                trim(ahead, epoch + 1)

    store = Trimmed(str(tmp_path))
    store.create(manifest_name(1), encode(manifest(1)))
    assert ManifestLog(store).newest() == manifest(50)


def test_a_reader_follows_a_driver_that_commits_and_trims(tmp_path: Path) -> None:
    store = open_store(str(tmp_path), fsync=False)
    log, stop, seen = ManifestLog(store), threading.Event(), [0]
    log.commit(manifest(1))
    failures: list[BaseException] = []

    def follow() -> None:
        try:
            while not stop.is_set():
                newest = ManifestLog(store).newest()
                assert newest is not None
                assert newest.epoch >= seen[-1]
                seen.append(newest.epoch)
        except BaseException as error:
            failures.append(error)

    reader = threading.Thread(target=follow)
    reader.start()
    for epoch in range(2, 300):
        assert log.commit(manifest(epoch))
        trim(log, epoch)
    stop.set()
    reader.join()
    assert failures == []


# --- the owner of a store -----------------------------------------------------------------------------------


def test_the_first_driver_claims_the_store_and_later_ones_find_its_record(store: Store) -> None:
    assert job_record.read(store) is None
    first = job_record.claim(store, "clicks", job_id="j1", now_ms=1)
    assert job_record.claim(store, "clicks", job_id="j2", now_ms=2) == first == job_record.read(store)


def test_another_jobs_store_is_refused(store: Store) -> None:
    job_record.claim(store, "clicks", job_id="j1", now_ms=1)
    with pytest.raises(StoreError, match=r"belongs to job 'clicks', not to 'orders'. Use another --store"):
        job_record.claim(store, "orders", job_id="j2", now_ms=2)


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"format": "x"}', b'{"format": "millstream-job-1"}', b"\xff"])
def test_a_damaged_job_record_is_named_and_left_alone(store: Store, data: bytes) -> None:
    store.put("job.json", data)
    with pytest.raises(StoreDamagedError, match=r"job\.json of store memory://.* is damaged"):
        job_record.claim(store, "clicks", job_id="j1", now_ms=1)
    assert store.get("job.json") == data


def test_a_job_record_of_a_newer_format_asks_for_an_upgrade(store: Store) -> None:
    store.put("job.json", b'{"format": "millstream-job-9"}')
    with pytest.raises(StoreDamagedError, match=r"newer Millstream\. Upgrade"):
        job_record.claim(store, "clicks", job_id="j1", now_ms=1)
