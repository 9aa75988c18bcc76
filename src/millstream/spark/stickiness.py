"""Subtasks that keep their place on a cluster: what is known of executors and places, and when the plan must change.

    executors (asked once an epoch) ┐
    where tasks ran (they tell)     ┴─ place_subtasks ─► rows with places ─► the plan, built anew if a place changed

`spark.placement` decides, `spark.placed_rows` says it to Spark; here is what lies between two epochs. In steady state
that is one question to the scheduler. Where tasks run in one process (`local[...]`, or one executor so far) the
plan is as if none of this were there. Nothing depends on a place: an epoch whose tasks all ran elsewhere is as good,
only slower. So whatever goes wrong here is said once, and the job goes on without places.

An executor that lives need not take tasks: it may be on its way out, shut out after failures, or busy with something
else. One that ran none of the tasks that belonged there is left alone for some epochs; otherwise subtasks would be sent
back to it every time, in vain.

One that comes while the job runs gets its share when it is ready for it (`spark.warm_up`).

An executor may be lost between two epochs: the scheduler is asked before an epoch, too, so that no plan begins with a
place that is gone. Or it is lost while one runs: Spark would let every stage that is left wait for it, for it looks at
the tasks that prefer an executor and not at whether that lives. So the driver looks now and then, and from the moment
it misses one until the epoch ends nothing is waited for: every executor still takes its own tasks first.

How long a task waits for its executor is a setting of Spark's application that is read for every stage anew, so it can
be set while it runs; one that the user gave is left alone. That Spark prefers our places to the hosts with a task's
input is read when the application starts: where it was not set, that is said.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias

from millstream.runtime.task.shipped_job import ShippedJob
from millstream.spark.executors import ExecutorList
from millstream.spark.masters import is_one_process
from millstream.spark.placed_rows import placed_rows
from millstream.spark.placement import Executor, executor_of, last_places, place_of, place_subtasks
from millstream.spark.warm_up import WarmUp

__all__ = ["LocalityWaits", "PlacedRows", "Stickiness", "stickiness_of"]

_LOG = logging.getLogger(__name__)

PlacedRows: TypeAlias = Callable[[int], Any]
"""For a number of subtasks, the frame of their rows (`spark.placed_rows`)."""


_SHUNNED_EPOCHS = 50
_FIRST_EPOCHS = 5
_LOOK_S = 0.2
_REDUCE_LOCALITY = "spark.shuffle.reduceLocality.enabled"
_OURS = "spark.millstream.placement"
"""Set in an application to the waits that we have set there: its next job may set them again."""


class LocalityWaits:
    """How long Spark's tasks wait for a place, in `settings`, its own ones of the running application. They wait for
    the executor, and then for nothing less: another process of its host has neither operators nor state."""

    def __init__(self, settings: Any, wait_ms: int) -> None:
        self._settings, self._wait_ms = settings, wait_ms
        ours = settings.get(_OURS, "").split(",")
        self._settable = []
        for level in ("process", "node", "rack"):
            key, value = f"spark.locality.wait.{level}", f"{self._of(level)}ms"
            if settings.contains(key) and level not in ours:
                _LOG.warning("%s is %s in this application and stays so, in place of %s", key, settings.get(key), value)
            else:
                self._settable.append(level)
        settings.set(_OURS, ",".join(self._settable))
        self.restore()

    def _of(self, level: str) -> int:
        return self._wait_ms if level == "process" else 0

    def restore(self) -> None:
        """From the next stage on, tasks wait as they are to."""
        for level in self._settable:
            self._settings.set(f"spark.locality.wait.{level}", f"{self._of(level)}ms")

    def drop(self) -> None:
        """From the next stage on, no task waits."""
        if "process" in self._settable:
            self._settings.set("spark.locality.wait.process", "0ms")


class Stickiness:
    """The places of one job's subtasks, from epoch to epoch. `waits`: what Spark is told of waiting for them.
    `warm_up`: who makes executors ready that come later; None: they are taken as they are."""

    def __init__(
        self,
        session: Any,
        executors: Callable[[], tuple[Executor, ...]],
        waits: LocalityWaits | None = None,
        warm_up: WarmUp | None = None,
    ) -> None:
        self._session, self._executors, self._waits, self._warm_up = session, executors, waits, warm_up
        self._watcher = ThreadPoolExecutor(1, thread_name_prefix="millstream-places")
        self._ran_at: dict[int, str] = {}
        self._places: tuple[Executor, ...] = ()
        self._width = 0
        self._epochs_shunned: dict[str, int] = {}
        self._works, self._epochs = True, 0
        self._gathered: set[str] = set()
        self._told: set[Executor] = set()

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

    def has_lost_places(self) -> bool:
        """Before an epoch: whether an executor that has a place is gone. Then others were chosen, and the plan must be
        built anew."""
        if not self._lost_now():
            return False
        self._places = self._choose()
        return True

    @contextmanager
    def watched(self) -> Iterator[None]:
        """While an epoch runs: its tasks do not wait for executors that are lost meanwhile."""
        if not self._places or self._waits is None:
            yield
            return
        ended = threading.Event()
        watching = self._watcher.submit(self._watch, ended, self._waits)
        try:
            yield
        finally:
            ended.set()
            # Where even that fails the JVM is gone, and the epoch says so in better words.
            with suppress(Exception):
                if watching.result():
                    self._waits.restore()

    def _watch(self, ended: threading.Event, waits: LocalityWaits) -> bool:
        """Until the epoch has ended; whether an executor was missed."""
        while not ended.wait(_LOOK_S):
            lost = self._lost_now()
            if lost:
                waits.drop()
                self._tell(lost)
                return True
        return False

    def _lost_now(self) -> set[Executor]:
        """The executors that have places and are gone."""
        try:
            return self._lost(self._executors()) if self._places else set()
        except Exception:  # it is asked again after the epoch, where that is told
            return set()

    def _lost(self, executors: Collection[Executor]) -> set[Executor]:
        living = {executor.id for executor in executors}
        return {place for place in self._places if place.id not in living}

    def _tell(self, lost: set[Executor]) -> None:
        new = sorted(map(place_of, lost - self._told))
        self._told |= lost
        if new:
            _LOG.warning(
                "lost: executor %s, which has ended or was silent for too long. Its subtasks go on with other "
                "executors, and read their state there",
                " and ".join(new),
            )

    def close(self) -> None:
        """Nothing is watched any more."""
        self._watcher.shutdown(wait=False)
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
        self._tell(self._lost(executors))
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
    waits = LocalityWaits(context._jsc.sc().conf(), wait_ms)
    return Stickiness(session, ExecutorList(context).now, waits, WarmUp(session))
