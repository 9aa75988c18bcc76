"""Snapshots: epochs that are kept, found, copied, and started from."""

from __future__ import annotations

import itertools

import pytest
from programs.running_totals import expected, totals
from stores.stored_leases import leases_of
from stores.watched_store import make_older

from millstream.checkpoint.leases import DURATION_MS, LeasedEpoch
from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.pins import Pin, pin_epoch, pins_of, unpin
from millstream.checkpoint.retention import RetentionPolicy, named_files
from millstream.checkpoint.savepoints import copy_savepoint, find_snapshot, open_job_store
from millstream.checkpoint.sealed import seal
from millstream.checkpoint.snapshot_names import parse_snapshot_name
from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import StoreDamagedError, StoreError
from millstream.jobs.epochs.sweeper import Sweeper
from millstream.storage.memory import MemoryStore
from millstream.storage.names import leaving_name, manifest_name
from millstream.testing import Collect, Script, run

_STORES = itertools.count()


def new_store() -> str:
    return f"snapshots-{next(_STORES)}"


def ran(store: str, epochs: int = 4) -> None:
    run(totals(Collect()), store=store, epochs=epochs)


# --- starting from a snapshot ---------------------------------------------------------------------------------


@pytest.mark.parametrize("parallelism", [1, 2, 3])
def test_a_job_goes_back_to_an_epoch_of_its_own_and_gives_the_same_again(parallelism: int) -> None:
    store, out = new_store(), Collect()
    ran(store)
    result = run(totals(out, f"memory://{store}@2"), store=store, parallelism=parallelism)
    assert sorted(result[out]) == expected(20, 20)
    # Four epochs and the closing one were there; the sixth says what the second said.
    restored = next(m for m in result.manifests if m.epoch == 6)
    assert (restored.parent, restored.states["totals"]) == (5, ManifestLog(MemoryStore(store)).read(2).states["totals"])


def test_a_job_starts_from_an_epoch_of_another_store_and_leaves_that_one_alone() -> None:
    old, new, out = new_store(), new_store(), Collect()
    ran(old)
    before = {name: MemoryStore(old).get(name) for name in MemoryStore(old).list("") if not name.startswith("pins/")}
    result = run(totals(out, f"memory://{old}@3"), store=new, parallelism=2)
    assert sorted(result[out]) == expected(30, 30)
    assert result.manifests[0].epoch == 4
    after = {name: MemoryStore(old).get(name) for name in MemoryStore(old).list("") if not name.startswith("pins/")}
    assert after == before
    (pin,) = pins_of(MemoryStore(old))
    assert (pin.epoch, pin.reason, pin.by) == (3, "fork", f"memory://{new}")


def test_a_fork_of_a_fork_reads_through_both() -> None:
    first, second, third, out = new_store(), new_store(), new_store(), Collect()
    ran(first, epochs=2)
    run(totals(Collect(), f"memory://{first}@2"), store=second, epochs=4)
    result = run(totals(out, f"memory://{second}@4"), store=third)
    assert sorted(result[out]) == expected(30, 30)


def test_a_fork_of_a_fork_whose_origin_is_gone_leaves_no_pin_behind() -> None:
    first, second = new_store(), new_store()
    ran(first, epochs=2)
    run(totals(Collect(), f"memory://{first}@2"), store=second, epochs=4)
    MemoryStore(first).delete_many(MemoryStore(first).list(""))
    with pytest.raises(StoreError):
        run(totals(Collect(), f"memory://{second}@4"), store=new_store())
    assert pins_of(MemoryStore(second)) == [], "nobody would ever let go of it"


def test_a_self_contained_savepoint_needs_nothing_else() -> None:
    store, copy, new, out = new_store(), new_store(), new_store(), Collect()
    ran(store)
    copy_savepoint(find_snapshot(parse_snapshot_name(f"memory://{store}@2")), MemoryStore(copy))
    for name in MemoryStore(store).list(""):
        MemoryStore(store).delete(name)
    result = run(totals(out, f"memory://{copy}"), store=new)
    assert sorted(result[out]) == expected(20, 20)


def test_a_second_start_in_a_store_that_has_epochs_is_refused() -> None:
    old, new = new_store(), new_store()
    ran(old)
    run(totals(Collect(), f"memory://{old}@2"), store=new, epochs=4)
    with pytest.raises(StoreError, match=r"already has epochs of job .* start it without --from"):
        run(totals(Collect(), f"memory://{old}@2"), store=new)


# --- a changed program ----------------------------------------------------------------------------------------


def test_state_without_an_operator_stops_the_restore_unless_it_may_be_left_behind(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store, new, out = new_store(), new_store(), Collect()
    ran(store)
    with pytest.raises(StoreError, match=r"has state of 'KEYED PROCESS' \(uid totals\).*--allow-non-restored-state"):
        run(totals(out, f"memory://{store}@2", uid="sums"), store=new)
    assert not MemoryStore(new).list("manifests")
    result = run(totals(out, f"memory://{store}@2", uid="sums", drops=True), store=new)
    assert sorted(result[out]) == expected(20, 0)
    assert "(uid sums): begins without state" in caplog.text
    assert "(uid totals): its state is discarded" in caplog.text


def test_a_snapshot_of_quite_another_program_is_refused() -> None:
    store = new_store()
    ran(store)

    def other(env: StreamExecutionEnvironment) -> None:
        env.configure(Configuration().set_string("execution.state-recovery.path", f"memory://{store}"))
        env.add_source(Script([1])).uid("a").sink_to(Collect()).uid("b")

    with pytest.raises(StoreError, match="this program has none of its operators"):
        run(other, store=new_store())


def test_another_number_of_key_groups_is_refused() -> None:
    store = new_store()
    ran(store)

    def changed(env: StreamExecutionEnvironment) -> None:
        env.set_max_parallelism(64)
        totals(Collect(), f"memory://{store}@2")(env)

    with pytest.raises(StoreError, match=r"has 128 key groups .* set_max_parallelism\(128\)"):
        run(changed, store=new_store())


# --- finding snapshots ----------------------------------------------------------------------------------------


def test_what_is_not_there_is_told_with_what_is() -> None:
    store = new_store()
    with pytest.raises(StoreError, match="contains neither a job nor a savepoint"):
        find_snapshot(parse_snapshot_name(f"memory://{store}"))
    ran(store)
    with pytest.raises(StoreError, match="has no epoch 77; it retains 1-5"):
        find_snapshot(parse_snapshot_name(f"memory://{store}@77"))
    with pytest.raises(StoreError, match="has no savepoint 'before'; it has after"):
        pin_epoch(MemoryStore(store), Pin("after", 2, "savepoint", 0))
        find_snapshot(parse_snapshot_name(f"memory://{store}@before"))
    assert find_snapshot(parse_snapshot_name(f"memory://{store}@after")).manifest.epoch == 2
    assert find_snapshot(parse_snapshot_name(f"memory://{store}")).manifest.epoch == 5


def test_half_a_savepoint_is_never_taken_for_a_whole_one() -> None:
    store, copy = new_store(), MemoryStore(new_store())
    ran(store)
    snapshot = find_snapshot(parse_snapshot_name(f"memory://{store}@3"))
    copy_savepoint(snapshot, copy)
    names, where = copy.list(""), parse_snapshot_name(copy.url)
    for name in names:
        data = copy.get(name)
        copy.delete(name)
        with pytest.raises(StoreError, match="incomplete copy"):
            find_snapshot(where)
        copy.put(name, data)
    assert find_snapshot(where).manifest.states == snapshot.manifest.states


def test_a_savepoint_that_cannot_be_written_leaves_nothing_behind_and_the_job_alone() -> None:
    class Full(MemoryStore):
        def put(self, name: str, data: bytes) -> None:
            if len(self.list("")) == 2:
                raise StoreError("disk full")
            super().put(name, data)

    store, target = new_store(), Full(new_store())
    run(totals(Collect()), store=store, epochs=3, parallelism=3)
    with pytest.raises(StoreError, match="disk full"):
        copy_savepoint(find_snapshot(parse_snapshot_name(f"memory://{store}")), target)
    assert not target.list("")


def test_a_savepoint_of_a_newer_format_says_so() -> None:
    store = MemoryStore(new_store())
    store.put("savepoint.json", b'{"format": "millstream-savepoint-9"}')
    with pytest.raises(StoreDamagedError, match="written by a newer Millstream"):
        find_snapshot(parse_snapshot_name(store.url))


def test_a_savepoint_whose_list_leads_out_of_its_folder_is_damaged_and_not_followed() -> None:
    store = MemoryStore(new_store())
    fields = {"job": "a", "job_id": "1", "epoch": 1, "files": {"../other/segments/a.arrow": {"bytes": 1, "sha256": ""}}}
    store.put("savepoint.json", seal("savepoint", 1, fields))
    with pytest.raises(StoreDamagedError, match=r"'\.\./other/segments/a\.arrow' is not a name inside a store"):
        find_snapshot(parse_snapshot_name(store.url))


# --- keeping and collecting -----------------------------------------------------------------------------------


def sweeper(store: MemoryStore, keep_last: int = 1, now_ms: int = 0) -> Sweeper:
    return Sweeper(store, lambda: now_ms, RetentionPolicy(keep_last))


def swept(store: MemoryStore, **more: int) -> list[int]:
    log = ManifestLog(store)
    sweeper(store, **more).sweep(log.newest())
    return log.epochs()


def test_epochs_that_are_pinned_or_leased_stay_whole_and_the_others_go() -> None:
    name = new_store()
    ran(name, epochs=5)
    store = MemoryStore(name)
    pin_epoch(store, Pin("kept", 2, "savepoint", 0))
    with LeasedEpoch(store, 3, lambda: 0) as leased:
        assert swept(store) == [2, 3, 6]
        assert all(store.exists(file) for file in named_files(leased.manifest))
    assert swept(store) == [2, 6]
    unpin(store, "kept")
    assert swept(store) == [6]
    named = named_files(ManifestLog(store).read(6))
    # What the newest epoch itself wrote is not touched: its tasks may be writing.
    assert set(store.list("segments")) == set(named)


@pytest.mark.parametrize("hours", [-5, 0, 5])
def test_a_lease_that_its_holder_forgot_ends_by_itself_whatever_the_clocks_say(hours: int) -> None:
    """The collector's clock is hours before or behind the reader's."""
    store, now_ms = MemoryStore(new_store()), 10**12
    run(totals(Collect()), store=store.url.removeprefix("memory://"), epochs=4)
    held = LeasedEpoch(store, 2, lambda: now_ms)
    collector_ms = now_ms + hours * 3_600_000
    make_older(store, "leases", DURATION_MS - 5_000)
    assert swept(store, now_ms=collector_ms) == [2, 5]
    now_ms += DURATION_MS
    held.renew()
    make_older(store, "leases", DURATION_MS - 5_000)
    assert swept(store, now_ms=collector_ms) == [2, 5]
    make_older(store, "leases", 10_000)
    assert swept(store, now_ms=collector_ms) == [5] and not leases_of(store)
    with pytest.raises(StoreError, match="has no epoch 2 any more"):
        LeasedEpoch(store, 2, lambda: now_ms)
    assert not leases_of(store)


def test_a_reader_whose_clock_is_set_back_still_renews_its_lease() -> None:
    store, clock = MemoryStore(new_store()), [10**12]
    run(totals(Collect()), store=store.url.removeprefix("memory://"), epochs=4)
    held = LeasedEpoch(store, 2, lambda: clock[0])
    make_older(store, "leases", DURATION_MS - 5_000)
    clock[0] -= 3_600_000
    held.renew()
    make_older(store, "leases", 10_000)
    assert swept(store) == [2, 5]


@pytest.mark.parametrize("moment", range(8))
def test_a_reader_that_comes_while_the_store_is_swept_finds_its_epoch_whole_or_is_told(moment: int) -> None:
    """The reader takes its lease just before the collector's n-th deletion."""
    name = new_store()
    run(totals(Collect()), store=name, epochs=5)
    taken: list[LeasedEpoch | StoreError] = []

    class Interrupted(MemoryStore):
        left = moment

        def delete(self, name: str) -> None:
            if self.left == 0 and not taken:
                try:
                    taken.append(LeasedEpoch(MemoryStore(self._name), 2, lambda: 0))
                except StoreError as error:
                    taken.append(error)
            self.left -= 1
            super().delete(name)

    store = Interrupted(name)
    swept(store)
    (found,) = taken
    if isinstance(found, LeasedEpoch):
        assert store.exists(manifest_name(2))
        assert all(store.exists(file) for file in named_files(found.manifest))
    else:
        assert moment > 1 and "any more" in str(found)


def test_a_fork_keeps_what_it_reads_when_its_base_is_swept() -> None:
    old, new, out = new_store(), new_store(), Collect()
    ran(old, epochs=5)
    run(totals(Collect(), f"memory://{old}@2"), store=new, epochs=3)
    assert swept(MemoryStore(old)) == [2, 6]
    result = run(totals(out), store=new)
    assert sorted(result[out]) == expected(20, 20)
    assert open_job_store(f"memory://{new}").exists(next(iter(named_files(result.manifests[0]))))


def test_a_savepoint_whose_epoch_an_older_millstream_was_removing_is_started_from_without_the_original() -> None:
    """Its sweeper had set manifests aside, and died before it put those back that are pinned."""
    name, out = new_store(), Collect()
    ran(name)
    store = MemoryStore(name)
    pin_epoch(store, Pin("saved", 2, "savepoint", 0))
    texts = {str(epoch): store.get(manifest_name(epoch)).decode() for epoch in (1, 2)}
    store.put(leaving_name(), seal("leaving", 1, {"manifests": texts}))
    store.delete_many([manifest_name(epoch) for epoch in (1, 2)])
    result = run(totals(out, f"memory://{name}@saved"), store=new_store())
    assert sorted(result[out]) == expected(20, 20)
    assert ManifestLog(store).epochs() == [2, 3, 4, 5] and store.exists(leaving_name())
