"""What is deleted from a store, and what never is."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.checkpoint.manifest import JSON, Manifest, Staged
from millstream.checkpoint.retention import RetentionPolicy, files_to_delete, named_files, retained_epochs
from millstream.errors import ConfigurationError
from millstream.jobs.settings.driver_settings import retention_policy
from millstream.storage.names import parse_segment, parse_staged, segment_name, staged_name

HOUR_MS = 3_600_000


def staged(epoch: int, attempt: str = "a", subtask: int = 0) -> str:
    return staged_name("out", epoch, subtask, attempt, 0)


def segment(epoch: int, nonce: str = "a") -> str:
    return segment_name("op", "total", epoch, 0, nonce)


def kept(epochs: range, through: int, policy: RetentionPolicy | None = None, held: tuple[int, ...] = ()) -> list[int]:
    created = {epoch: epoch * 1_000 for epoch in epochs}
    policy = policy or RetentionPolicy()
    return sorted(retained_epochs(created, policy, published_through=through, now_ms=max(epochs) * 1_000, held=held))


def test_the_last_ten_epochs_are_kept() -> None:
    assert kept(range(1, 13), through=12) == list(range(3, 13))


def test_an_unpublished_epoch_is_kept_however_few_are() -> None:
    assert kept(range(1, 5), through=2, policy=RetentionPolicy(keep_last=1)) == [3, 4]


def test_epochs_that_somebody_holds_are_kept() -> None:
    assert kept(range(1, 9), through=8, policy=RetentionPolicy(keep_last=2), held=(3, 99)) == [3, 7, 8]


def test_the_first_epoch_of_every_interval_is_kept_for_the_period() -> None:
    policy = RetentionPolicy(keep_last=2, every_ms=10_000, for_ms=60_000)
    # At 100 s: one of every ten seconds since 40 s, and the newest two.
    assert kept(range(1, 101), through=100, policy=policy) == [40, 50, 60, 70, 80, 90, 99, 100]


def test_of_an_interval_one_epoch_is_left_until_the_period_is_over_and_none_after() -> None:
    policy = RetentionPolicy(keep_last=1, every_ms=10_000, for_ms=60_000)
    there: dict[int, int] = {}
    for now in range(1, 200):
        there[now] = now * 1_000
        left = retained_epochs(there, policy, published_through=now, now_ms=now * 1_000)
        there = {epoch: there[epoch] for epoch in left}
        first = max(0, now - 60)
        assert sorted(there) == sorted({now, *(max(ten, 1) for ten in range(0, now + 1, 10) if max(ten, 1) >= first)})


def test_files_of_losing_attempts_go_once_their_epoch_is_passed_and_published() -> None:
    files = [staged(3, "winner"), staged(3, "loser"), staged(4, "loser"), segment(3, "loser"), segment(4)]
    gone = files_to_delete(files, {staged(3, "winner")}, newest=4, published_through=3)
    assert gone == sorted([staged(3, "loser"), segment(3, "loser")])


def test_files_of_the_newest_epoch_and_of_the_one_being_run_are_never_touched() -> None:
    files = [staged(4), staged(5), staged(6), segment(4), segment(5), segment(6)]
    assert files_to_delete(files, (), newest=5, published_through=5) == sorted([staged(4), segment(4)])


def test_output_of_an_epoch_not_yet_published_stays() -> None:
    assert files_to_delete([staged(4), staged(5)], (), newest=6, published_through=4) == [staged(4)]


def test_names_are_found_wherever_a_sink_or_a_state_puts_them() -> None:
    payload: JSON = {"moves": [[staged(1), "final/a"], {staged(2): 1}], "n": 3, "none": None}
    states: dict[str, JSON] = {"op": {"subtasks": {"0": {"tables": {"total": [{"file": segment(1)}]}}}}}
    pending: JSON = {"pending": [staged(4)]}
    manifest = Manifest(
        "j",
        "1",
        2,
        1,
        0,
        "a",
        staged={"out": (Staged(0, payload), Staged(1, staged(3)))},
        states={**states, "o": pending},
    )
    assert named_files(manifest) == {staged(1), staged(2), staged(3), staged(4), segment(1)}


def test_files_of_unknown_names_stay() -> None:
    assert files_to_delete(["staged/out/notes.txt", "segments/readme"], (), newest=9, published_through=9) == []


def test_keeping_no_manifest_is_refused() -> None:
    with pytest.raises(ValueError, match="the newest manifest is always retained"):
        RetentionPolicy(keep_last=0)
    with pytest.raises(ConfigurationError, match=r"millstream.retention.epochs is 0: .* Set 1 or more"):
        retention_policy({"millstream.retention.epochs": "0"})


def test_settings_are_ours_or_flinks() -> None:
    ours = {"millstream.retention.epochs": "4", "millstream.retention.interval": "1 h"}
    assert retention_policy(ours) == RetentionPolicy(4, HOUR_MS, None)
    assert retention_policy({"execution.checkpointing.num-retained": "2"}).keep_last == 2
    with pytest.raises(ConfigurationError, match="but not which epochs are retained"):
        retention_policy({"millstream.retention.period": "7 d"})


@given(
    st.dictionaries(st.integers(1, 40), st.integers(0, 1000), min_size=1),
    st.sets(st.tuples(st.integers(1, 42), st.sampled_from("abc"))),
    st.integers(0, 40),
    st.integers(1, 12),
    st.data(),
)
def test_no_start_from_a_kept_epoch_misses_anything(
    epochs: dict[int, int], attempts: set[tuple[int, str]], through: int, keep_last: int, data: st.DataObject
) -> None:
    files = [name for epoch, attempt in attempts for name in (staged(epoch, attempt), segment(epoch, attempt))]
    named = data.draw(st.sets(st.sampled_from(files))) if files else set()
    held = data.draw(st.sets(st.sampled_from(sorted(epochs))))
    left = retained_epochs(epochs, RetentionPolicy(keep_last), published_through=through, now_ms=1000, held=held)
    newest = max(epochs)
    gone = set(files_to_delete(files, named, newest=newest, published_through=through))
    assert newest in left and held <= left
    assert len(left) >= min(keep_last, len(epochs))
    assert {epoch for epoch in epochs if epoch > through} <= left
    assert not gone & named
    for name in gone:
        said = parse_staged(name) or parse_segment(name)
        assert said is not None and said.epoch < newest
        assert said.epoch <= through or parse_segment(name) is not None
