"""Keeps subtasks on their executors of a cluster: tracks executors and places, and decides when the plan must change.

    executors (queried once per epoch) ┐
    places reported by tasks           ┴─ place_subtasks ─► rows with places ─► the plan, rebuilt if a place changed

`spark.placement` decides, `spark.placed_rows` passes it to Spark; this module holds the state between epochs. In steady
state it costs one query to the scheduler per epoch. If tasks run in one process (`local[...]`, or only one executor so
far) the plan has no places. Correctness does not depend on places: an epoch whose tasks all ran elsewhere is only
slower. So a failure here is logged once, and the job continues without places.

A live executor may still run no tasks: it may be decommissioning, excluded after failures, or busy. An executor that
ran none of its tasks is avoided for some epochs; otherwise subtasks would be assigned to it again each time, in vain.
So is one whose tasks did not reach the store, if others exist: its machine may be disconnected from the store.

An executor that joins while the job runs gets its share when it is warmed up (`spark.warm_up`).

An executor may be lost between epochs: the scheduler is queried before each epoch too, so that no plan starts with a
lost place. If one is lost during an epoch, nothing waits for it (`spark.locality_waits`).

The setting that makes Spark prefer our places to the hosts of a task's input is read at application start: if it is
missing, a warning is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeAlias

from millstream.runtime.task.shipped_job import ShippedJob
from millstream.spark.executors import ExecutorList
from millstream.spark.locality_waits import LocalityWaits, LossWatch
from millstream.spark.masters import is_one_process
from millstream.spark.placed_rows import placed_rows
from millstream.spark.placement import Executor, executor_of, last_places, place_of, place_subtasks
from millstream.spark.warm_up import WarmUp

__all__ = ["PlacedRows", "Stickiness", "stickiness_of"]

_LOG = logging.getLogger(__name__)

PlacedRows: TypeAlias = Callable[[int], Any]
"""Returns the frame of rows for a number of subtasks (`spark.placed_rows`)."""


_AVOIDED_EPOCHS = 50
_FIRST_EPOCHS = 5
_REDUCE_LOCALITY = "spark.shuffle.reduceLocality.enabled"


class Stickiness:
    """The places of a job's subtasks, from epoch to epoch. `loss_watch` detects losses during an epoch. `warm_up`
    prepares executors that join later; None: they are used unprepared."""

    def __init__(
        self,
        session: Any,
        executors: Callable[[], tuple[Executor, ...]],
        loss_watch: LossWatch | None = None,
        warm_up: WarmUp | None = None,
    ) -> None:
        self._session, self._executors, self._loss_watch, self._warm_up = session, executors, loss_watch, warm_up
        self._last_places: dict[int, str] = {}
        self._places: tuple[Executor, ...] = ()
        self._width = 0
        self._avoided_epochs: dict[str, int] = {}
        self._is_enabled, self._epochs = True, 0
        self._registered: set[str] = set()
        self._reported_losses: set[Executor] = set()

    def begin(self, width: int, job: ShippedJob | None = None) -> None:
        """Starts another plan, whose widest stage has `width` subtasks. Places of earlier plans apply by number."""
        self._width = width
        if self._warm_up is not None:
            self._warm_up.begin(job)
        self._places = self._choose()

    def update_places(self, reports: Collection[tuple[int, str]]) -> bool:
        """After an epoch: records where its tasks ran. Returns whether the plan must be rebuilt with other places."""
        self._epochs += 1
        self._last_places = last_places(reports, self._last_places)
        self._record_unused({executor_of(place) for _, place in reports})
        places = self._choose()
        if places == self._places:
            return False
        self._places = places
        return True

    def avoid(self, places: Collection[str]) -> None:
        """After a failed epoch: avoids places whose tasks did not reach the store."""
        cut_off = {executor_of(place): place for place in places if place}
        self._avoided_epochs.update(dict.fromkeys(cut_off, _AVOIDED_EPOCHS))
        if cut_off and self._places:
            _LOG.warning(
                "executor %s did not reach the store: others take over its subtasks for some time. If the store is not "
                "unavailable altogether, check the network and the credentials of that machine",
                " and ".join(sorted(cut_off.values())),
            )

    def has_lost_places(self) -> bool:
        """Before an epoch: whether an executor with a place is lost. Then new places have been chosen, and the plan
        must be rebuilt."""
        if not self._lost_now()[0]:
            return False
        self._places = self._choose()
        return True

    def watch_epoch(self) -> AbstractContextManager[None]:
        """While an epoch runs: its tasks do not wait for executors lost in the meantime."""
        if not self._places or self._loss_watch is None:
            return nullcontext()
        return self._loss_watch.during_epoch(self._has_losses)

    def _has_losses(self) -> bool:
        lost, is_any_left = self._lost_now()
        self._log_losses(lost, is_any_left=is_any_left)
        return bool(lost)

    def _lost_now(self) -> tuple[set[Executor], bool]:
        """The lost executors that have places, and whether others are left."""
        try:
            executors = self._executors() if self._places else ()
            return self._lost(executors), bool(executors)
        except Exception:  # queried again after the epoch, which logs the failure
            return set(), True

    def _lost(self, executors: Collection[Executor]) -> set[Executor]:
        living = {executor.id for executor in executors}
        return {place for place in self._places if place.id not in living}

    def _log_losses(self, lost: set[Executor], *, is_any_left: bool) -> None:
        new = sorted(map(place_of, lost - self._reported_losses))
        self._reported_losses |= lost
        if new:
            _LOG.warning(
                "lost: executor %s, which has ended, is decommissioning or was silent for too long. %s",
                " and ".join(new),
                "Its subtasks continue on other executors, and read their state there"
                if is_any_left
                else "None is left: the job waits until the cluster starts one. Check whether workers are alive",
            )

    def close(self) -> None:
        """Stops the background threads."""
        if self._loss_watch is not None:
            self._loss_watch.close()
        if self._warm_up is not None:
            self._warm_up.close()

    def row_factory(self) -> PlacedRows | None:
        """The function that builds the rows of the current places; None if there is no choice of executors."""
        if not self._places:
            return None
        frames: dict[int, Any] = {}

        def rows(width: int) -> Any:
            if width not in frames:
                frames[width] = placed_rows(self._session, self._places[:width])
            return frames[width]

        try:
            rows(self._width)
        except Exception as error:  # Spark's internals differ
            self._disable(error)
            return None
        return rows

    def _record_unused(self, working: set[str]) -> None:
        avoided = {executor: epochs - 1 for executor, epochs in self._avoided_epochs.items() if epochs > 1}
        avoided.update((place.id, _AVOIDED_EPOCHS) for place in self._places)
        self._avoided_epochs = {executor: epochs for executor, epochs in avoided.items() if executor not in working}

    def _choose(self) -> tuple[Executor, ...]:
        if not self._is_enabled:
            return ()
        try:
            executors = self._executors()
        except Exception as error:
            self._disable(error)
            return ()
        self._log_losses(self._lost(executors), is_any_left=bool(executors))
        usable = [executor for executor in executors if executor.id not in self._avoided_epochs]
        before = {} if self._is_gathering({executor.id for executor in executors}) else self._last_places
        usable = self._ready(usable) or usable
        return place_subtasks(self._width, usable, before) if len(executors) > 1 and usable else ()

    def _ready(self, executors: list[Executor]) -> list[Executor]:
        """The warmed-up executors. While a job starts, all count as warm, because it has no others."""
        if self._warm_up is None:
            return executors
        if not self._places or self._epochs < _FIRST_EPOCHS:
            self._warm_up.assume_ready(executors)
        return [executor for executor in executors if self._warm_up.is_ready(executor)]

    def _is_gathering(self, ids: set[str]) -> bool:
        """Whether an executor joined in the first epochs, while executors register. Earlier places have little local
        state then, and the new executor may be on a machine with a subtask's files: all places are chosen anew."""
        has_joined, has_left = not ids <= self._registered, not self._registered <= ids
        self._registered = ids
        if has_left:
            self._epochs = _FIRST_EPOCHS
        return has_joined and self._epochs < _FIRST_EPOCHS

    def _disable(self, error: Exception) -> None:
        self._is_enabled, self._places = False, ()
        _LOG.warning(
            "subtasks may move between executors from epoch to epoch: their places could not be passed to Spark (%s)",
            str(error).strip().partition("\n")[0],
        )


def stickiness_of(session: Any, *, wait_ms: int) -> Stickiness | None:
    """The stickiness of a job on this session; `wait_ms`: how long a task waits for its executor before another one
    runs it. None if all tasks run in one process."""
    context = session.sparkContext
    if is_one_process(context.master):
        return None
    if context.getConf().get(_REDUCE_LOCALITY, "true") != "false":
        _LOG.warning(
            "subtasks may move between executors from epoch to epoch: %s is true in this application, so Spark prefers "
            "the hosts that have most of a task's input. Start the session with false",
            _REDUCE_LOCALITY,
        )
    loss_watch = LossWatch(LocalityWaits(context._jsc.sc().conf(), wait_ms))
    return Stickiness(session, ExecutorList(context).now, loss_watch, WarmUp(session))
