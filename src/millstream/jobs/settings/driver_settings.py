"""What a driver is given besides the job: its knobs, and who runs the tasks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from millstream.checkpoint.restart import RestartPolicy
from millstream.checkpoint.retention import RetentionPolicy
from millstream.jobs.epochs.autoscale import AutoscaleSettings
from millstream.jobs.epochs.input_plan import PlannedSource
from millstream.jobs.settings.checkpoint_settings import CheckpointSettings
from millstream.plan.stages import Plan
from millstream.runtime.task.shipped_job import ShippedJob
from millstream.runtime.task.spec import EpochSpec

__all__ = ["DriverSettings", "Replan", "Runner"]

Replan = Callable[[int], tuple[Plan, tuple[PlannedSource, ...]]]
"""The plan of the same program at another parallelism, with its sources."""


class Runner(Protocol):
    """What runs the tasks of an epoch: Spark, or this process."""

    def prepare(self, job: ShippedJob) -> None: ...

    def run(self, spec: EpochSpec) -> list[tuple[int, bytes]]: ...

    def cancel(self) -> None: ...


@dataclass(frozen=True)
class DriverSettings:
    """The driver's own knobs. `records_max` and `bytes_max` bound an epoch's input, in BATCH too. `rounds_max` bounds
    how often it goes round the program's loops.

    `parallelism` is that of operators which set none; `autoscale` None: it changes on request only.
    """

    records_max: int
    bytes_max: int
    rounds_max: int
    poll_ms: int
    min_interval_ms: int
    policy: RestartPolicy
    retention: RetentionPolicy
    deletes_on_cancel: bool
    new_run: Callable[[], str]
    show: Callable[[list[list[str]]], None]
    note: Callable[[str], None]
    checkpoints: CheckpointSettings = field(default_factory=CheckpointSettings)
    parallelism: int = 1
    autoscale: AutoscaleSettings | None = None
