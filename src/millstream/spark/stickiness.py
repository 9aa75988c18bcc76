"""Subtasks that keep their place on a cluster: what is known of executors and places, and when the plan must change.

    executors (asked once an epoch) ┐
    where tasks ran (they tell)     ┴─ place_subtasks ─► rows with places ─► the plan, built anew if a place changed

`spark.placement` decides, `spark.placed_rows` says it to Spark; here is what lies between two epochs. In steady state
that is one question to the scheduler. Where tasks run in one process (`local[...]`, or one executor so far) the
plan is as if none of this were there. Nothing depends on a place: an epoch whose tasks all ran elsewhere is as good,
only slower. So whatever goes wrong here is said once, and the job goes on without places.

An executor that lives need not take tasks: it may be on its way out, shut out after failures, or busy with something
else. One that ran none of the tasks that belonged there is left alone for some epochs; otherwise subtasks would be sent
back to it every time, in vain. So is one whose tasks did not reach the store, if there are others: its machine may be
cut off from it.

One that comes while the job runs gets its share when it is ready for it (`spark.warm_up`).

An executor may be lost between two epochs: the scheduler is asked before an epoch, too, so that no plan begins with a
place that is gone. Or it is lost while one runs: then nothing waits for it (`spark.locality_waits`).

That Spark prefers our places to the hosts with a task's input is read when the application starts: where it was not
set, that is said.
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
"""For a number of subtasks, the frame of their rows (`spark.placed_rows`)."""


_SHUNNED_EPOCHS = 50
_FIRST_EPOCHS = 5
_REDUCE_LOCALITY = "spark.shuffle.reduceLocality.enabled"


class Stickiness:
    """The places of one job's subtasks, from epoch to epoch. `loss_watch`: who looks for losses while an
    epoch runs. `warm_up`: who makes executors ready that come later; None: they are taken as they are."""

    def __init__(
        self,
        session: Any,
        executors: Callable[[], tuple[Executor, ...]],
        loss_watch: LossWatch | None = None,
        warm_up: WarmUp | None = None,
    ) -> None:
        self._session, self._executors, self._loss_watch, self._warm_up = session, executors, loss_watch, warm_up
        self._ran_at: dict[int, str] = {}
        self._places: tuple[Executor, ...] = ()
        self._width = 0
        self._epochs_shunned: dict[str, int] = {}
        self._works, self._epochs = True, 0
        self._gathered: set[str] = set()
        self._reported_losses: set[Executor] = set()

    def begin(self, width: int, job: ShippedJob | None = None) -> None:
        """Another plan begins, whose widest stage has `width` subtasks. What ran somewhere is remembered by number."""
        self._width = width
        if self._warm_up is not None:
            self._warm_up.begin(job)
        self._places = self._choose()

    def settle(self, reports: Collection[tuple[int, str]]) -> bool:
        """After an epoch: where its tasks ran, by subtask. Whether the plan must be built anew, with other places."""
        self._epochs += 1
        self._ran_at = last_places(reports, self._ran_at)
        self._note_refusals({executor_of(place) for _, place in reports})
        places = self._choose()
        if places == self._places:
            return False
        self._places = places
        return True

    def avoid(self, places: Collection[str]) -> None:
        """After an epoch that failed: tasks at these places did not reach the store."""
        cut_off = {executor_of(place): place for place in places if place}
        self._epochs_shunned.update(dict.fromkeys(cut_off, _SHUNNED_EPOCHS))
        if cut_off and self._places:
            _LOG.warning(
                "executor %s did not reach the store: others take its subtasks for some time. If the store is not away "
                "altogether, look at the network and the credentials of that machine",
                " and ".join(sorted(cut_off.values())),
            )

    def has_lost_places(self) -> bool:
        """Before an epoch: whether an executor that has a place is gone. Then others were chosen, and the plan must be
        built anew."""
        if not self._lost_now()[0]:
            return False
        self._places = self._choose()
        return True

    def watched(self) -> AbstractContextManager[None]:
        """While an epoch runs: its tasks do not wait for executors that are lost meanwhile."""
        if not self._places or self._loss_watch is None:
            return nullcontext()
        return self._loss_watch.during_epoch(self._misses_one)

    def _misses_one(self) -> bool:
        lost, is_any_left = self._lost_now()
        self._tell(lost, is_any_left=is_any_left)
        return bool(lost)

    def _lost_now(self) -> tuple[set[Executor], bool]:
        """The executors that have places and are gone; whether others are left."""
        try:
            executors = self._executors() if self._places else ()
            return self._lost(executors), bool(executors)
        except Exception:  # it is asked again after the epoch, where that is told
            return set(), True

    def _lost(self, executors: Collection[Executor]) -> set[Executor]:
        living = {executor.id for executor in executors}
        return {place for place in self._places if place.id not in living}

    def _tell(self, lost: set[Executor], *, is_any_left: bool) -> None:
        new = sorted(map(place_of, lost - self._reported_losses))
        self._reported_losses |= lost
        if new:
            _LOG.warning(
                "lost: executor %s, which has ended, is on its way out or was silent for too long. %s",
                " and ".join(new),
                "Its subtasks go on with other executors, and read their state there"
                if is_any_left
                else "None is left: the job stands still until the cluster gives it one. Look whether workers live",
            )

    def close(self) -> None:
        """Nothing is watched any more."""
        if self._loss_watch is not None:
            self._loss_watch.close()
        if self._warm_up is not None:
            self._warm_up.close()

    def placed(self) -> PlacedRows | None:
        """What makes the rows of the places chosen last; None: there is nothing to choose from."""
        if not self._places:
            return None
        frames: dict[int, Any] = {}

        def rows(width: int) -> Any:
            if width not in frames:
                frames[width] = placed_rows(self._session, self._places[:width])
            return frames[width]

        try:
            rows(self._width)
        except Exception as error:  # Spark's insides are not as we know them
            self._give_up(error)
            return None
        return rows

    def _note_refusals(self, working: set[str]) -> None:
        shunned = {executor: epochs - 1 for executor, epochs in self._epochs_shunned.items() if epochs > 1}
        shunned.update((place.id, _SHUNNED_EPOCHS) for place in self._places)
        self._epochs_shunned = {executor: epochs for executor, epochs in shunned.items() if executor not in working}

    def _choose(self) -> tuple[Executor, ...]:
        if not self._works:
            return ()
        try:
            executors = self._executors()
        except Exception as error:
            self._give_up(error)
            return ()
        self._tell(self._lost(executors), is_any_left=bool(executors))
        willing = [executor for executor in executors if executor.id not in self._epochs_shunned]
        before = {} if self._is_gathering({executor.id for executor in executors}) else self._ran_at
        willing = self._ready(willing) or willing
        return place_subtasks(self._width, willing, before) if len(executors) > 1 and willing else ()

    def _ready(self, executors: list[Executor]) -> list[Executor]:
        """Those that need not be made ready first. While a job starts there is nothing that could go on meanwhile."""
        if self._warm_up is None:
            return executors
        if not self._places or self._epochs < _FIRST_EPOCHS:
            self._warm_up.take_as_ready(executors)
        return [executor for executor in executors if self._warm_up.is_ready(executor)]

    def _is_gathering(self, ids: set[str]) -> bool:
        """Whether one came in the first epochs, while executors register. What ran somewhere has kept little there, and
        who comes may be on the machine that has a subtask's files of before: all places are chosen anew."""
        has_come, has_gone = not ids <= self._gathered, not self._gathered <= ids
        self._gathered = ids
        if has_gone:
            self._epochs = _FIRST_EPOCHS
        return has_come and self._epochs < _FIRST_EPOCHS

    def _give_up(self, error: Exception) -> None:
        self._works, self._places = False, ()
        _LOG.warning(
            "subtasks may move between executors from epoch to epoch: Spark could not be told where they belong (%s)",
            str(error).strip().partition("\n")[0],
        )


def stickiness_of(session: Any, *, wait_ms: int) -> Stickiness | None:
    """The stickiness of a job on this session; `wait_ms`: how long a task waits for its executor before another one
    takes it. None: all tasks run in one process."""
    context = session.sparkContext
    if is_one_process(context.master):
        return None
    if context.getConf().get(_REDUCE_LOCALITY, "true") != "false":
        _LOG.warning(
            "subtasks may move between executors from epoch to epoch: %s is true in this application, so Spark prefers "
            "the hosts that have most of a task's input. Start the session with it false",
            _REDUCE_LOCALITY,
        )
    loss_watch = LossWatch(LocalityWaits(context._jsc.sc().conf(), wait_ms))
    return Stickiness(session, ExecutorList(context).now, loss_watch, WarmUp(session))
