"""What is deleted from a store, and what never is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.checkpoint.manifest import JSON, Manifest, Staged
from millstream.checkpoint.retention import kept_epochs, named_files, what_to_delete
from millstream.storage.names import manifest_name, parse_staged, staged_name


def staged(epoch: int, attempt: str = "a", subtask: int = 0) -> str:
    return staged_name("out", epoch, subtask, attempt, 0)


def test_manifests_beyond_the_last_ten_go_oldest_first() -> None:
    assert what_to_delete(range(1, 13), [], published_through=12) == [manifest_name(1), manifest_name(2)]


def test_the_manifest_of_an_unpublished_epoch_stays_however_few_are_kept() -> None:
    assert what_to_delete([1, 2, 3, 4], [], published_through=2, keep_last=1) == [manifest_name(1), manifest_name(2)]


def test_an_empty_store_has_nothing_to_delete() -> None:
    assert what_to_delete([], [staged(1)], published_through=0) == []


def test_the_output_of_losing_attempts_goes_once_its_epoch_is_published_and_passed() -> None:
    files = [staged(3, "winner"), staged(3, "loser"), staged(4, "loser")]
    gone = what_to_delete([3, 4], files, published_through=3, named={staged(3, "winner")})
    assert gone == [staged(3, "loser")]


def test_output_of_the_newest_epoch_and_of_the_one_being_run_is_never_touched() -> None:
    files = [staged(4), staged(5), staged(6)]
    assert what_to_delete([4, 5], files, published_through=5, keep_last=1) == [manifest_name(4), staged(4)]


def test_output_of_an_epoch_not_yet_published_stays() -> None:
    assert what_to_delete([4, 5, 6], [staged(4), staged(5)], published_through=4, keep_last=10) == [staged(4)]


def test_output_that_a_kept_manifest_names_stays_and_goes_with_it() -> None:
    epochs = range(1, 21)
    manifests = {
        epoch: Manifest("j", "1", epoch, epoch - 1, 0, "a", staged={"out": (Staged(0, {"files": [staged(epoch)]}),)})
        for epoch in epochs
    }
    kept = kept_epochs(epochs, published_through=19)
    named = named_files(manifests[epoch] for epoch in kept)
    gone = what_to_delete(epochs, [staged(epoch) for epoch in epochs], published_through=19, named=named)
    assert gone == [manifest_name(epoch) for epoch in range(1, 11)] + [staged(epoch) for epoch in range(1, 11)]


def test_names_are_found_wherever_a_sink_puts_them() -> None:
    payload: JSON = {"moves": [[staged(1), "final/a"], {staged(2): 1}], "n": 3, "none": None}
    manifest = Manifest("j", "1", 2, 1, 0, "a", staged={"out": (Staged(0, payload), Staged(1, staged(3)))})
    assert named_files([manifest]) == {staged(1), staged(2), staged(3)}


def test_files_of_unknown_names_stay() -> None:
    assert what_to_delete([1, 2], ["staged/out/notes.txt"], published_through=2) == []


def test_keeping_no_manifest_is_refused() -> None:
    with pytest.raises(ValueError, match="the newest manifest always stays"):
        what_to_delete([1], [], published_through=1, keep_last=0)


@given(
    st.sets(st.integers(1, 40), min_size=1),
    st.sets(st.tuples(st.integers(1, 42), st.sampled_from("abc"))),
    st.integers(0, 40),
    st.integers(1, 12),
    st.data(),
)
def test_no_start_from_a_kept_epoch_misses_anything(
    epochs: set[int], attempts: set[tuple[int, str]], through: int, keep_last: int, data: st.DataObject
) -> None:
    files = [staged(epoch, attempt) for epoch, attempt in attempts]
    named = data.draw(st.sets(st.sampled_from(files))) if files else set()
    gone = set(what_to_delete(epochs, files, published_through=through, named=named, keep_last=keep_last))
    left = {epoch for epoch in epochs if manifest_name(epoch) not in gone}
    assert max(epochs) in left
    assert len(left) >= min(keep_last, len(epochs))
    assert {epoch for epoch in epochs if epoch > through} <= left
    assert not gone & named
    for name in gone & set(files):
        said = parse_staged(name)
        assert said is not None
        assert said.epoch <= through
        assert said.epoch < max(epochs)
