"""When a job changes its parallelism by itself, and that a constant load never makes it oscillate."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.checkpoint.manifest import ManifestLog
from millstream.common import Configuration, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import ConfigurationError
from millstream.jobs.epochs.epoch_size import AGREEING, EpochLoad, LoadHistory, decide_parallelism
from millstream.jobs.launch.launch import Launch
from millstream.jobs.settings.driver_settings import AutoscaleSettings, autoscale_settings
from millstream.runtime.task.local import LocalRunner
from millstream.storage.memory import MemoryStore
from millstream.testing import EPOCH, Collect, ManualClock, Script

_STORES = itertools.count()
SETTINGS = AutoscaleSettings(parallelism_min=1, parallelism_max=16, target_ms=1000, cooldown_ms=60_000)


def parallelism_after(parallelism: int, *loads: EpochLoad, now_ms: int = 60_000) -> int | None:
    history = LoadHistory(parallelism, changed_ms=0)
    for load in loads:
        history = history.followed_by(load, now_ms)
    return decide_parallelism(history, SETTINGS)


def slow_epoch(elapsed_ms: float) -> EpochLoad:
    return EpochLoad(elapsed_ms, lags=True)


def quick_epoch(elapsed_ms: float) -> EpochLoad:
    return EpochLoad(elapsed_ms, lags=False)


# --- the decision ---------------------------------------------------------------------------------------------


def test_slow_epochs_with_lagging_input_request_the_needed_parallelism() -> None:
    assert parallelism_after(4, *[slow_epoch(1_400)] * AGREEING) == 6
    assert parallelism_after(4, *[slow_epoch(1_001)] * AGREEING) == 5
    assert parallelism_after(4, *[slow_epoch(9_000)] * AGREEING) == 8  # at most twice as many at a time
    assert parallelism_after(16, *[slow_epoch(9_000)] * AGREEING) is None


def test_neither_long_epochs_without_lag_nor_lag_with_short_epochs_scale_up() -> None:
    assert parallelism_after(4, *[quick_epoch(5_000)] * AGREEING) is None
    assert parallelism_after(4, *[slow_epoch(900)] * AGREEING) is None
    assert parallelism_after(4, *[slow_epoch(100)] * AGREEING) is None


def test_much_shorter_epochs_request_fewer_subtasks_but_at_least_half() -> None:
    assert parallelism_after(8, *[quick_epoch(10)] * AGREEING) == 4
    assert parallelism_after(8, *[quick_epoch(500)] * AGREEING) == 6  # 8 * 500 / 700, rounded up
    assert parallelism_after(8, *[quick_epoch(650)] * AGREEING) is None
    assert parallelism_after(1, *[quick_epoch(10)] * AGREEING) is None


def test_several_agreeing_epochs_are_required_and_a_disagreeing_one_resets_the_count() -> None:
    assert parallelism_after(4, *[slow_epoch(2_000)] * (AGREEING - 1)) is None
    assert parallelism_after(4, slow_epoch(2_000), quick_epoch(10), *[slow_epoch(2_000)] * (AGREEING - 2)) is None
    assert parallelism_after(4, quick_epoch(10), *[slow_epoch(2_000)] * AGREEING) == 8


def test_no_rescale_follows_within_the_cooldown_of_the_last_one() -> None:
    assert parallelism_after(4, *[slow_epoch(2_000)] * AGREEING, now_ms=59_999) is None
    assert parallelism_after(4, *[quick_epoch(10)] * AGREEING, now_ms=59_999) is None


def test_a_parallelism_outside_its_bounds_is_corrected_at_once() -> None:
    assert parallelism_after(20, quick_epoch(900), now_ms=1) == 16
    assert decide_parallelism(LoadHistory(1, 0), AutoscaleSettings(2, 4, 1000, 0)) == 2


@given(
    start=st.integers(1, 16),
    fixed_ms=st.sampled_from([0, 20, 100, 500, 900, 2_000]),
    work_ms=st.integers(1, 16_000),
    exponent=st.sampled_from([0.0, 0.5, 0.8, 1.0]),
    noise=st.lists(st.floats(0.9, 1.1), min_size=10, max_size=10),
)
def test_a_constant_load_converges_without_oscillation(
    start: int, fixed_ms: int, work_ms: int, exponent: float, noise: list[float]
) -> None:
    """However the time depends on the parallelism, as long as more subtasks neither slow an epoch down nor speed it up
    by more than their number: the parallelism moves in one direction, then perhaps a little back, and stays.
    """
    history, moves, wobble = LoadHistory(start, changed_ms=0), [start], itertools.cycle(noise)
    for epoch in range(200):
        elapsed_ms = (fixed_ms + work_ms / history.parallelism**exponent) * next(wobble)
        load = EpochLoad(elapsed_ms, lags=elapsed_ms > SETTINGS.target_ms)
        history = history.followed_by(load, now_ms=epoch * 30_000)
        wanted = decide_parallelism(history, SETTINGS)
        if wanted is not None:
            assert 1 <= wanted <= 16 and history.parallelism / 2 <= wanted <= 2 * history.parallelism
            moves.append(wanted)
            history = LoadHistory(wanted, changed_ms=epoch * 30_000)
    ups = [after > before for before, after in itertools.pairwise(moves)]
    turns = sum(one != next_ for one, next_ in itertools.pairwise(ups))
    assert turns <= 1, moves
    assert not any(next_ and not one for one, next_ in itertools.pairwise(ups)), (
        f"scaled up after scaling down: {moves}"
    )


# --- the settings ---------------------------------------------------------------------------------------------


def test_autoscaling_is_off_by_default_and_requires_a_bound() -> None:
    assert autoscale_settings({}, 128) is None
    with pytest.raises(ConfigurationError, match=r"Set millstream\.rescale\.max"):
        autoscale_settings({"millstream.rescale.auto": "true"}, 128)
    for least, most in ((0, 4), (5, 4), (1, 129)):
        bounds = {"millstream.rescale.min": str(least), "millstream.rescale.max": str(most)}
        with pytest.raises(ConfigurationError, match="expected 1 <= min <= max <= 128"):
            autoscale_settings({"millstream.rescale.auto": "true", **bounds}, 128)
    with pytest.raises(ConfigurationError, match=r"target-epoch is 0 ms"):
        autoscale_settings(
            {
                "millstream.rescale.auto": "true",
                "millstream.rescale.max": "2",
                "millstream.rescale.target-epoch": "0 ms",
            },
            128,
        )


# --- in the driver --------------------------------------------------------------------------------------------


def run(settings: dict[str, str], parallelism: int, most: int = 128) -> tuple[list[int], list[Any]]:
    """The parallelism of every epoch of a job with only short epochs, and its output. `most`: an operator's maximum."""
    env, out = StreamExecutionEnvironment(), Collect()
    env.set_parallelism(parallelism).configure(Configuration.from_dict(settings))
    script = [item for n in range(12) for item in (n, EPOCH)]
    numbers = env.add_source(Script(script, type_info=Types.LONG()))
    numbers.map(lambda n: n, Types.LONG()).uid("map").set_max_parallelism(most).sink_to(out)
    store = MemoryStore(f"autoscale-{next(_STORES)}")
    Launch(ManualClock(), LocalRunner(), store).start(env._graph("job"), env._job_settings()).result()
    log = ManifestLog(store)
    programs: list[Any] = [log.read(epoch).program for epoch in log.epochs()]
    return [program["map"]["parallelism"] for program in programs], out.values


AUTO = {
    "millstream.rescale.auto": "true",
    "millstream.rescale.min": "2",
    "millstream.rescale.max": "8",
    "millstream.rescale.target-epoch": "10 min",
    "millstream.rescale.cooldown": "0 ms",
    "millstream.retention.epochs": "100",
}


def test_a_running_job_scales_down_to_its_bound_without_losing_records() -> None:
    widths, values = run(AUTO, parallelism=8)
    assert widths == sorted(widths, reverse=True)
    assert widths[:AGREEING] == [8] * AGREEING and widths[AGREEING] == 4 and widths[-1] == 2
    assert sorted(values) == list(range(12))


def test_without_the_setting_the_parallelism_is_constant() -> None:
    widths, _ = run({"millstream.retention.epochs": "100"}, parallelism=8)
    assert set(widths) == {8}


def test_a_parallelism_beyond_an_operators_maximum_is_not_chosen() -> None:
    widths, values = run({**AUTO, "millstream.rescale.min": "8"}, parallelism=2, most=4)
    assert set(widths) == {2} and sorted(values) == list(range(12))
