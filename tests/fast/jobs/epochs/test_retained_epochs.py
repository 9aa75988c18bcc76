"""A sweeper's index of retained epochs agrees with a set of all manifests."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from millstream.checkpoint.manifest import Manifest, ManifestLog, encode
from millstream.jobs.epochs.retained_epochs import NamedFiles, RetainedEpochs
from millstream.storage.memory import MemoryStore
from millstream.storage.names import manifest_name, segment_name

_STORES = itertools.count()
NAMES = "abcd"


@given(st.lists(st.one_of(st.sets(st.sampled_from(NAMES)), st.integers(0, 9)), max_size=30))
def test_files_of_added_and_removed_epochs_agree_with_a_set_per_epoch(changes: list[set[str] | int]) -> None:
    files, names_by_epoch, epoch = NamedFiles(), dict[int, set[str]](), 0
    for change in changes:
        named_before = set().union(*names_by_epoch.values())
        if isinstance(change, set):
            epoch += 1
            names_by_epoch[epoch] = change
            files.add(epoch, change)
        elif names_by_epoch:
            going = sorted(names_by_epoch)[change % len(names_by_epoch)]
            del names_by_epoch[going]
            removed = files.remove(going)
            assert sorted(removed) == sorted(named_before - set().union(*names_by_epoch.values()))
        assert {name for name in NAMES if name in files} == set().union(*names_by_epoch.values())


def committed_store(epochs: int) -> tuple[MemoryStore, list[Manifest]]:
    store, manifests = MemoryStore(f"retained-{next(_STORES)}"), []
    for epoch in range(1, epochs + 1):
        files = [segment_name("op", "state", written, 0, "a") for written in (epoch - 1, epoch) if written]
        manifests.append(Manifest("job", "id", epoch, epoch - 1, 10 * epoch, "run", states={"op": {"files": files}}))
        assert ManifestLog(store).commit(manifests[-1])
    return store, manifests


def test_each_manifest_is_read_once_and_not_cached() -> None:
    store, manifests = committed_store(5)
    reads: list[str] = []
    get = store.get
    store.get = lambda name: (reads.append(name), get(name))[1]  # type: ignore[method-assign]
    retained = RetainedEpochs(store, (), lambda *_: None)
    retained.refresh({5: manifests[4]})
    retained.refresh({})
    assert reads == [manifest_name(epoch) for epoch in range(1, 5)]
    assert retained.created_ms == {epoch: 10 * epoch for epoch in range(1, 6)}
    assert retained.remove([1, 2]) == [segment_name("op", "state", 1, 0, "a")]


def test_a_repaired_manifest_is_indexed_again() -> None:
    store, manifests = committed_store(4)
    store.put(manifest_name(2), b"{")
    reads: list[str] = []
    retained = RetainedEpochs(store, (), lambda name, what: reads.append(name))
    retained.refresh({})
    assert retained.unreadable == {2} and reads == [manifest_name(2)]
    store.put(manifest_name(2), encode(manifests[1]))
    retained.refresh({})
    assert retained.unreadable == set() and sorted(retained.created_ms) == [1, 2, 3, 4]
    assert sorted(retained.remove([1, 2])) == [segment_name("op", "state", 1, 0, "a")]
