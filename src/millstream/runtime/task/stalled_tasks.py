"""Reports the position of long-running tasks, so that a hanging function can be located.

A task cannot be inspected from outside, and a cancelled one leaves no trace. So each process that runs tasks has a
thread that checks for tasks over their time limit (`EpochSpec.stalled_ms`). It stores their position (operator,
subtask, Python stack) in a small file of the epoch, which the driver reads when the epoch is overdue
(`jobs/epochs/epoch_run.py`). If a C library blocks the interpreter by holding its lock, nothing is reported.

Watching a task costs two dictionary operations; the thread wakes when the earliest limit is reached.
"""

from __future__ import annotations

import logging
import os
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from types import FrameType

from millstream.checkpoint.sealed import seal, unseal
from millstream.common.time import waiting_s
from millstream.errors import MillstreamError, StoreDamagedError
from millstream.runtime.operators.explanations import is_engine_file
from millstream.runtime.operators.operator import Operator
from millstream.runtime.task.spec import Assignment, EpochSpec
from millstream.storage.names import SPECS, epoch_of_spec, is_stalled, stalled_name
from millstream.storage.store import Store

__all__ = ["StalledTask", "TaskWatch", "stalled_tasks", "text_of_stalled", "watched"]

FORMAT = 1
_LOG = logging.getLogger(__name__)
_FRAMES_MAX = 20
_CHARACTERS_MAX = 4_000
_TASKS_SHOWN = 4


@dataclass(frozen=True)
class StalledTask:
    """The position of a task: its `operator`, `site` and, if its frames include user code, the line `at`."""

    stage: int
    subtask: int
    operator: str
    site: str
    at: str
    lines: str
    place: str = ""

    def sentence(self) -> str:
        """The report in one line."""
        where = f" ({self.site})" if self.site else ""
        host = f" on {self.place}" if self.place else ""
        line = f"; it is at {self.at}" if self.at else ""
        return f"{self.operator}{where}, subtask {self.subtask}{host}, has not acknowledged{line}"


class TaskWatch:
    """The tasks of a process, and the thread that watches them."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._changed = threading.Condition()
        self._watched: dict[object, tuple[float, int, Callable[[FrameType], None]]] = {}
        self._awake_at_s: float | None = None  # time of the thread's next check; None: when notified
        self._thread: threading.Thread | None = None

    @contextmanager
    def over(self, stalled_ms: int, report: Callable[[FrameType], None]) -> Iterator[None]:
        """Watches a block of this thread: if it exceeds its limit, `report` is called once with the current frame."""
        token, due_s = object(), self._now_s() + stalled_ms / 1000
        with self._changed:
            self._watched[token] = due_s, threading.get_ident(), report
            if self._thread is None or not self._thread.is_alive():  # a forked process does not have the thread
                self._awake_at_s = due_s
                self._thread = threading.Thread(target=self._watch, name="millstream-task-watch", daemon=True)
                self._thread.start()
            elif self._awake_at_s is None or due_s < self._awake_at_s:
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._watched.pop(token, None)

    def _watch(self) -> None:
        while True:
            with self._changed:
                self._awake_at_s = min((due_s for due_s, _, _ in self._watched.values()), default=None)
                wait_s = None if self._awake_at_s is None else self._awake_at_s - self._now_s()
                if wait_s is None or wait_s > 0:
                    self._changed.wait(None if wait_s is None else waiting_s(wait_s))
                    continue
                now_s = self._now_s()
                overdue = [token for token, (due_s, _, _) in self._watched.items() if due_s <= now_s]
                stalled = [self._watched.pop(token) for token in overdue]
            frames = sys._current_frames()
            for _, thread, report in stalled:
                if thread in frames:
                    try:
                        report(frames[thread])
                    except Exception as error:  # the store may be unavailable, and the task may finish at any time
                        _LOG.warning("a task exceeds its time limit, and its position cannot be stored: %s", error)


_WATCH = TaskWatch()


@contextmanager
def watched(store: Store, spec: EpochSpec, assignment: Assignment) -> Iterator[None]:
    """Watches a task: stores its position if it exceeds the spec's limit, and removes the report if the task ends."""
    epoch, stalled_ms = spec.epoch, spec.stalled_ms
    if stalled_ms is None:
        yield
        return
    stage, subtask = assignment.stage, assignment.subtask
    task = StalledTask(stage, subtask, f"a task of stage {stage}", "", "", "", assignment.place)
    stored: list[str] = []

    def report(frame: FrameType) -> None:
        name = stalled_name(epoch, stage, subtask, secrets.token_hex(4))
        at = located(task, frame)
        _LOG.warning("a task of epoch %d has run for %d ms: %s\n%s", epoch, stalled_ms, at.sentence(), at.lines)
        store.put(name, seal("stalled-task", FORMAT, asdict(at)))
        stored.append(name)

    with _WATCH.over(stalled_ms, report):
        yield
    for name in stored:
        try:
            store.delete(name)
        except MillstreamError as error:
            _LOG.warning("%s could not be removed: %s", name, error)


def located(task: StalledTask, frame: FrameType) -> StalledTask:
    """Adds the position of a frame to the task: the innermost operator, and the stack from the first user line."""
    operator, step = None, frame
    while step is not None and operator is None:
        owner = step.f_locals.get("self")
        operator = owner if isinstance(owner, Operator) else None
        step = step.f_back  # type: ignore[assignment]
    lines = traceback.extract_stack(frame)
    places = [i for i, line in enumerate(lines) if _is_users(line.filename)]
    first = places[0] if places else max(0, len(lines) - _FRAMES_MAX)
    line = lines[places[-1]] if places else None
    at = f"{os.path.basename(line.filename)}:{line.lineno}, in {line.name}" if line else ""
    text = "".join(traceback.format_list(lines[first:][-_FRAMES_MAX:])).rstrip("\n")[-_CHARACTERS_MAX:]
    if operator is None:
        return replace(task, at=at, lines=text)
    return replace(task, operator=f"'{operator.node.name}'", site=str(operator.node.site), at=at, lines=text)


def _is_users(filename: str) -> bool:
    """Whether a line is the user's: not the engine's, Spark's, the Python library's or the system's."""
    return not (is_engine_file(filename) or filename.startswith((sys.base_prefix, sys.prefix, "<")))


def stalled_tasks(store: Store, epoch: int) -> list[StalledTask]:
    """Reads and removes the stored reports of an epoch's stalled tasks. Unreadable ones are skipped."""
    tasks: list[StalledTask] = []
    for name in store.list(SPECS):
        if not is_stalled(name) or epoch_of_spec(name) != epoch:
            continue
        try:
            tasks.append(StalledTask(**unseal(store.get(name), "stalled-task", FORMAT, name)))
            store.delete(name)
        except (StoreDamagedError, TypeError) as error:
            _LOG.warning("%s cannot be read; this report of a stalled task is lost: %s", name, error)
    return tasks


def text_of_stalled(tasks: Sequence[StalledTask], *, with_lines: bool = False) -> str:
    """A summary of tasks that have not acknowledged, in one line, or with the stack of each."""
    if not tasks:
        return "No task has reported its position"
    texts = [f"{task.sentence()}\n{task.lines}" if with_lines else task.sentence() for task in tasks[:_TASKS_SHOWN]]
    more = [f"{len(tasks) - _TASKS_SHOWN} more tasks have not either"] if len(tasks) > _TASKS_SHOWN else []
    return ("\n" if with_lines else ". ").join([*texts, *more])
