"""The effect of each checkpoint setting on the epochs of a job; settings without an effect are reported once."""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from millstream.checkpoint import events as e
from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.protocol import ProtocolState, begin, decide
from millstream.checkpoint.restart import FixedDelay, NoRestart, Tolerance
from millstream.common import Configuration, Duration, JobStatus, Types
from millstream.datastream import CheckpointingMode, StreamExecutionEnvironment
from millstream.errors import ConfigurationError, JobFailedError, StoreError
from millstream.graph import notices
from millstream.jobs.epochs.epoch_history import history
from millstream.jobs.epochs.epoch_run import EpochDeadline, EpochLimit
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.jobs.settings.driver_settings import CheckpointSettings, checkpoint_settings
from millstream.jobs.settings.job_settings import JobSettings
from millstream.runtime.task.local import LocalRunner
from millstream.runtime.task.spec import EpochSpec
from millstream.storage.memory import MemoryStore
from millstream.testing import EPOCH, Collect, ManualClock, Script, run

_STORES = itertools.count()
THREE = [1, EPOCH, 2, EPOCH, 3]


class StallingRunner(LocalRunner):
    """Blocks every epoch until it is cancelled."""

    def __init__(self) -> None:
        super().__init__()
        self._cancelled = threading.Event()

    def run(self, spec: EpochSpec) -> list[tuple[int, bytes]]:
        assert self._cancelled.wait(60), "the epoch was not cancelled"
        raise RuntimeError("Spark says: job group cancelled")

    def cancel(self) -> None:
        self._cancelled.set()


class FailingRunner(LocalRunner):
    """Fails some runs, as Spark does when a machine is lost."""

    def __init__(self, *failing: int) -> None:
        super().__init__()
        self._failing, self.runs = failing, 0

    def run(self, spec: EpochSpec) -> list[tuple[int, bytes]]:
        self.runs += 1
        if self.runs in self._failing:
            raise RuntimeError("executor lost")
        return super().run(spec)


def launch_job(
    configure: Callable[[StreamExecutionEnvironment], Any],
    runner: LocalRunner | None = None,
    function: Callable[[int], int] = lambda n: n,
) -> tuple[Job, Collect, MemoryStore]:
    env, out, store = StreamExecutionEnvironment(), Collect(), MemoryStore(f"checkpoints-{next(_STORES)}")
    env.set_parallelism(1)
    configure(env)
    env.add_source(Script(THREE, type_info=Types.LONG())).map(function, Types.LONG()).sink_to(out)
    job = Launch(ManualClock(), runner or LocalRunner(), store).start(env._graph("job"), env._job_settings())
    return job, out, store


# --- pause ----------------------------------------------------------------------------------------------------


def test_epochs_respect_the_minimum_pause_and_a_request_ends_it() -> None:
    began = time.monotonic()
    job, out, _ = launch_job(lambda env: env.get_checkpoint_config().set_min_pause_between_checkpoints(100))
    job.result()
    assert out.values == [1, 2, 3] and time.monotonic() - began >= 0.2
    job, out, _ = launch_job(lambda env: env.get_checkpoint_config().set_min_pause_between_checkpoints(600_000))
    while not job.board.now.published:
        time.sleep(0.005)
    job.stop()
    assert job.wait(60) and job.status() is JobStatus.SUSPENDED and out.values == [1]


# --- timeout --------------------------------------------------------------------------------------------------


def settings_of(tolerable: int = 0, timeout_ms: int | None = None) -> Callable[[StreamExecutionEnvironment], Any]:
    def configure(env: StreamExecutionEnvironment) -> None:
        config = env.enable_checkpointing(1).get_checkpoint_config()
        config.set_tolerable_checkpoint_failure_number(tolerable)
        if timeout_ms is not None:
            config.set_checkpoint_timeout(timeout_ms)
        env.configure(Configuration.from_dict({"restart-strategy.type": "none"}))

    return configure


def test_an_epoch_that_takes_too_long_is_cancelled_and_fails_the_job() -> None:
    job, out, _ = launch_job(settings_of(timeout_ms=50), StallingRunner())
    with pytest.raises(JobFailedError, match=r"epoch 1 took longer than 50 ms .*allow more") as failure:
        job.result()
    assert out.values == [] and "restart strategy is none" in str(failure.value)


def test_an_epoch_that_completes_after_its_timeout_has_failed() -> None:
    """A local run cannot be cancelled: it ends by itself, too late."""
    job, out, _ = launch_job(settings_of(timeout_ms=1), function=_sleepy)
    with pytest.raises(JobFailedError, match="epoch 1 took longer than 1 ms"):
        job.result()
    assert out.values == []


# --- tolerable failures ---------------------------------------------------------------------------------------


def test_a_tolerated_failure_replays_the_epoch_without_a_restart() -> None:
    runner = FailingRunner(2, 3, 5)
    job, out, store = launch_job(settings_of(tolerable=2), runner)
    job.result()
    assert out.values == [1, 2, 3] and job.board.now.restarts == 0 and runner.runs == 6
    log = ManifestLog(store)
    assert [one.failures for one in history([log.read(epoch) for epoch in log.epochs()])] == [0, 2, 1, None]


def test_too_many_consecutive_failures_fail_the_job() -> None:
    job, out, _ = launch_job(settings_of(tolerable=1), FailingRunner(2, 3))
    with pytest.raises(JobFailedError, match=r"executor lost .*\(the restart strategy is none\)"):
        job.result()
    assert out.values == [1]


def test_errors_of_user_code_are_never_tolerated() -> None:
    runner = FailingRunner()
    job, _, _ = launch_job(settings_of(tolerable=100), runner, _raising)
    with pytest.raises(JobFailedError, match="ValueError: no"):
        job.result()
    assert runner.runs == 1


class FailingPlanCommit(Collect):
    def plan_commit(self, staged: Any, pending: Any, now_ms: int, final: bool) -> Any:
        raise StoreError("this sink cannot say what to publish")


def test_an_error_in_plan_commit_fails_the_epoch() -> None:
    with pytest.raises(StoreError, match="cannot say what to publish"):
        run(lambda env: env.add_source(Script([1])).sink_to(FailingPlanCommit()))


def _raising(n: int) -> int:
    raise ValueError("no")


def test_a_block_that_ends_in_time_is_not_cancelled() -> None:
    cancels: list[bool] = []
    with EpochDeadline(60_000, lambda: cancels.append(True)) as deadline:
        pass
    assert not deadline.expired and not cancels
    with EpochDeadline(1, lambda: cancels.append(True)) as deadline:
        while not cancels:
            time.sleep(0.001)
    count = len(cancels)
    assert deadline.expired and count == len(cancels)


# --- tolerance, in the protocol -------------------------------------------------------------------------------


def failed(tolerable: bool = True) -> e.EpochFailed:
    return e.EpochFailed("it broke", retryable=True, at_ms=0, tolerable=tolerable)


RUNNING = (e.Started(None), e.InputPlanned(True, False))


def actions_after(state: ProtocolState, *events: e.Event) -> tuple[ProtocolState, tuple[e.Action, ...]]:
    actions: tuple[e.Action, ...] = ()
    for event in events:
        state, actions = decide(state, event)
    return state, actions


def test_tolerated_failures_do_not_reach_the_restart_strategy_and_a_commit_resets_the_count() -> None:
    state = begin(NoRestart(), Tolerance(1, delay_ms=7))
    state, actions = actions_after(state, *RUNNING, failed())
    assert actions == (e.Restart(7, "it broke", tolerated=True),) and state.failures == ()
    state, _ = actions_after(state, *RUNNING, e.EpochDone(), e.Committed(), e.Published(1))
    state, actions = actions_after(state, e.InputPlanned(True, False), failed())
    assert actions == (e.Restart(7, "it broke", tolerated=True),)
    _, actions = actions_after(
        state, e.Started(e.ManifestSummary(1, 1, "RUNNING")), e.InputPlanned(True, False), failed()
    )
    assert actions == (e.Fail("it broke (the restart strategy is none)"),)


def test_a_restart_by_the_strategy_resets_the_count() -> None:
    state = begin(FixedDelay(attempts=1, delay_ms=50), Tolerance(1, delay_ms=7))
    delays = []
    for _ in range(3):
        state, (action,) = actions_after(state, *RUNNING, failed())
        assert isinstance(action, e.Restart)
        delays.append((action.delay_ms, action.tolerated))
    assert delays == [(7, True), (50, False), (7, True)] and len(state.failures) == 1


def test_a_failure_of_user_code_goes_to_the_restart_strategy_at_once() -> None:
    _, actions = actions_after(begin(FixedDelay(1, 50), Tolerance(5, 7)), *RUNNING, failed(tolerable=False))
    assert actions == (e.Restart(50, "it broke"),)


def test_a_failed_manifest_write_is_tolerated() -> None:
    lost = (e.EpochDone(), e.CommitUnknown("disk full", 0), e.CommitAbsent(0))
    _, actions = actions_after(begin(NoRestart(), Tolerance(1, 7)), *RUNNING, *lost)
    assert [type(action) for action in actions] == [e.Restart]


# --- the settings ---------------------------------------------------------------------------------------------


def settings(interval_ms: int | None = None, **options: str) -> JobSettings:
    keys = {f"execution.checkpointing.{key.replace('_', '-')}": text for key, text in options.items()}
    return JobSettings(checkpoint_interval_ms=interval_ms, configuration=keys)


def test_an_overdue_epoch_is_cancelled_where_checkpoints_are_on_or_a_timeout_is_set_and_never_in_batch() -> None:
    for interval_ms, is_firm in ((None, False), (300, True)):
        expected = CheckpointSettings(interval_ms, timeout_ms=600_000, is_timeout_firm=is_firm)
        decided = checkpoint_settings(settings(interval_ms), batch=False)
        assert replace(decided, tolerance=expected.tolerance) == expected
    configured = settings(300, timeout="5 min", min_pause="1 s", tolerable_failed_checkpoints="2")
    expected = CheckpointSettings(300, 1_000, 300_000, True, True, Tolerance(2, 300))
    assert checkpoint_settings(configured, batch=False) == expected
    assert checkpoint_settings(configured, batch=True) == CheckpointSettings(
        timeout_ms=300_000, tolerance=Tolerance(2, 300)
    )


def test_the_closing_epoch_is_cancelled_only_after_a_time_that_the_program_set() -> None:
    for spares_final in (True, False):
        limit = EpochLimit(600_000, spares_final=spares_final)
        assert limit.cancels(final=False) and limit.cancels(final=True) is not spares_final
    assert not EpochLimit(600_000, is_firm=False).cancels(final=False)


def test_invalid_checkpoint_settings_are_rejected() -> None:
    with pytest.raises(ConfigurationError, match=r"timeout is 0 ms\. Set a duration"):
        checkpoint_settings(settings(timeout="0 ms"), batch=False)
    with pytest.raises(ConfigurationError, match="tolerable-failed-checkpoints is -1, expected 0 or more"):
        checkpoint_settings(settings(tolerable_failed_checkpoints="-1"), batch=False)


def test_an_interval_shrinks_epochs_until_they_fit() -> None:
    def configure(env: StreamExecutionEnvironment) -> None:
        env.enable_checkpointing(1)
        env.configure(Configuration.from_dict({"millstream.retention.epochs": "1000"}))

    env, out, store = StreamExecutionEnvironment(), Collect(), MemoryStore(f"checkpoints-{next(_STORES)}")
    env.set_parallelism(1)
    configure(env)
    env.configure(Configuration.from_dict({"millstream.epoch.max-records": "32"}))
    env.add_source(Script(list(range(120)), type_info=Types.LONG())).map(_sleepy, Types.LONG()).sink_to(out)
    Launch(ManualClock(), LocalRunner(), store).start(env._graph("job"), env._job_settings()).result()
    log = ManifestLog(store)
    records = [one.records_in for one in history([log.read(epoch) for epoch in log.epochs()]) if one.records_in]
    # Two cold epochs, and a warm one, the first that is measured: records take 2 ms, epochs may take 1.
    assert records[:4] == [32, 32, 32, 8] and out.values == list(range(120))


def _sleepy(n: int) -> int:
    time.sleep(0.002)
    return n


# --- settings without effect ----------------------------------------------------------------------------------


@pytest.fixture
def log_messages(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    monkeypatch.setattr(notices, "_LOGGED", set())
    caplog.set_level(logging.INFO, "millstream.datastream")
    return lambda: [record.getMessage() for record in caplog.records]


def test_settings_without_effect_are_logged_once_and_stored(log_messages: Callable[[], list[str]]) -> None:
    config = StreamExecutionEnvironment().get_checkpoint_config()
    for _ in range(2):
        config.enable_unaligned_checkpoints().set_max_concurrent_checkpoints(3)
        config.set_checkpointing_mode(CheckpointingMode.AT_LEAST_ONCE).set_force_unaligned_checkpoints()
        config.set_aligned_checkpoint_timeout(Duration.of_seconds(2))
    assert len(log_messages()) == 5 and all("has no effect here: " in line for line in log_messages())
    assert config.is_unaligned_checkpoints_enabled() and config.get_max_concurrent_checkpoints() == 3
    assert config.get_checkpointing_mode() is CheckpointingMode.AT_LEAST_ONCE


def test_effective_settings_and_defaults_are_not_logged(log_messages: Callable[[], list[str]]) -> None:
    env = StreamExecutionEnvironment()
    env.enable_checkpointing(1000).get_checkpoint_config().set_checkpoint_timeout(5).set_max_concurrent_checkpoints(1)
    env.get_checkpoint_config().disable_unaligned_checkpoints().set_min_pause_between_checkpoints(3)
    env.configure(Configuration.from_dict({"execution.checkpointing.mode": "exactly-once"}))
    env._job_settings()
    assert log_messages() == []


def test_configuration_keys_without_effect_are_logged_when_the_job_is_built(
    log_messages: Callable[[], list[str]],
) -> None:
    env = StreamExecutionEnvironment()
    env.configure(
        Configuration.from_dict(
            {
                "execution.checkpointing.unaligned.enabled": "true",
                "execution.checkpointing.file-merging.enabled": "true",
                "execution.checkpointing.aligned-checkpoint-timeout": "whenever",
            }
        )
    )
    env._job_settings()
    env._job_settings()
    assert len(log_messages()) == 3
