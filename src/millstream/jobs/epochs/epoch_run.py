"""One run of an epoch: all its rounds, each again if Spark mixed two attempts in it, and all of them within the time.

What comes out is one outcome, or the failure; nothing has been committed either way. An epoch that was not done in
time has failed, even if it was done after all: by then it may have been told to stop.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from millstream.jobs.epochs.epoch_deadline import EpochDeadline, EpochTimedOutError
from millstream.jobs.epochs.outcome import EpochOutcome, MixedEpochError, gather
from millstream.jobs.epochs.rounds import followed_by, next_round, wants_a_round
from millstream.jobs.settings.driver_settings import DriverSettings, Runner
from millstream.plan.stages import Plan
from millstream.runtime.operators.failure import UserFailureError
from millstream.runtime.task.spec import EpochSpec

__all__ = ["EpochRun"]

_LOG = logging.getLogger(__name__)
_TRIES_OF_A_MIXED_EPOCH = 3


class EpochRun:
    """Runs epochs one after another. `is_canceling`: whether the job is to end, and no further round is worth it."""

    def __init__(self, runner: Runner, settings: DriverSettings, is_canceling: Callable[[], bool]) -> None:
        self._runner, self._settings, self._is_canceling = runner, settings, is_canceling
        self._tries = 0

    def run(self, plan: Plan, spec: EpochSpec) -> EpochOutcome:
        """Run an epoch; raises what it failed with."""
        timeout_ms = self._settings.checkpoints.timeout_ms
        if timeout_ms is None:
            return self._rounds(plan, spec)
        deadline = EpochDeadline(timeout_ms, self._runner.cancel)
        try:
            with deadline:
                outcome = self._rounds(plan, spec)
        except UserFailureError:
            raise
        except Exception as error:
            if deadline.expired:  # what a cancelled run fails with says nothing of why it was cancelled
                raise EpochTimedOutError(spec.epoch, timeout_ms) from error
            raise
        if deadline.expired:
            raise EpochTimedOutError(spec.epoch, timeout_ms)
        return outcome

    def _rounds(self, plan: Plan, spec: EpochSpec) -> EpochOutcome:
        outcome = self._round(plan, spec)
        rounds = 1
        while wants_a_round(plan, outcome) and (rounds < self._settings.rounds_max or spec.final):
            if self._is_canceling():
                break
            spec = next_round(spec, outcome)
            outcome = followed_by(outcome, self._round(plan, spec))
            rounds += 1
        return outcome

    def _round(self, plan: Plan, spec: EpochSpec) -> EpochOutcome:
        """One run of the plan; if Spark mixed two attempts in it, it is run again."""
        for left in reversed(range(_TRIES_OF_A_MIXED_EPOCH)):
            self._tries += 1
            try:
                outcome = gather(plan, self._runner.run(replace(spec, try_=self._tries)))
            except MixedEpochError as error:
                _LOG.warning("epoch %d: %s", spec.epoch, error)
                if not left:
                    raise
            else:
                self._settings.show(outcome.output)
                return outcome
        raise AssertionError("the last try returns or raises")
