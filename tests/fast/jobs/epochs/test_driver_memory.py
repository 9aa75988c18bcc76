"""The driver's memory is written by its loop and read by other threads: every interleaving reads a consistent state."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from itertools import count
from types import FrameType
from typing import Any

import pytest

from millstream.checkpoint.manifest import Manifest
from millstream.jobs.epochs import acknowledged, driver_memory
from millstream.jobs.epochs.acknowledged import AcknowledgedEpochs, PendingCommit
from millstream.jobs.epochs.driver_memory import DriverMemory
from millstream.jobs.epochs.epoch_statistics import EpochTimes
from millstream.jobs.epochs.input_plan import InputPlan
from millstream.jobs.epochs.outcome import EpochOutcome

_TRACED = (acknowledged.__file__, driver_memory.__file__)


def manifest(epoch: int) -> Manifest:
    return Manifest(job="a", job_id="j", epoch=epoch, parent=epoch - 1, created_ms=0, run="r")


def memory_ahead_by(epochs: int) -> DriverMemory:
    """Epoch 10 is committed, later ones are acknowledged, and the first of them is being committed."""
    planned = InputPlan({}, {}, frozenset(), False, False, 0, 0)
    ahead = AcknowledgedEpochs(manifest(10))
    for epoch in range(11, 11 + epochs):
        step = PendingCommit(ahead.tip, manifest(epoch), planned, EpochOutcome(), EpochTimes(0, 0.0), 0, 0)
        ahead = ahead.followed_by(step, joins=False)
    return DriverMemory(ahead.seal())


def interrupted(step: int, act: Callable[[], Any], other: Callable[[], Any]) -> Iterator[Any]:
    """The result of `act`, and of `other` if another thread runs it before bytecode step `step` of `act`, between which
    Python may switch threads. None if it has fewer steps.
    """
    steps, answers = count(), []

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if frame.f_code.co_filename not in _TRACED:
            return None
        frame.f_trace_opcodes = True
        if next(steps) == step:
            answers.append(other())
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        answer = act()
    finally:
        sys.settrace(before)
    if answers:
        yield from (answer, *answers)


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_read_during_a_commit_returns_the_newest_epoch_and_never_an_older_one(epochs: int) -> None:
    """An epoch planned after an older one would read its input again."""
    newest = 10 + epochs
    for reads_first in (True, False):
        for step in count():
            memory = memory_ahead_by(epochs)

            def read(memory: DriverMemory = memory) -> int:
                assert memory.tip is not None
                return memory.tip.epoch

            def commit(memory: DriverMemory = memory) -> None:
                memory.has_committed(manifest(11))

            first, second = (read, commit) if reads_first else (commit, read)
            answers = [answer for answer in interrupted(step, first, second) if answer is not None]  # type: ignore[arg-type]
            if not answers:
                assert step > 5, "nothing was interrupted"
                break
            assert answers == [newest], f"interrupted at step {step}"
