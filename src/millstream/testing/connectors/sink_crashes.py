"""Scenes in which a task or a driver dies before, between and inside steps, and another one restarts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from millstream.connectors.contract_checks import staged_items
from millstream.testing.connectors.crash_points import CrashPoints
from millstream.testing.connectors.crash_processes import NURSERY, DoomedCommit
from millstream.testing.connectors.rehearsal import Actor
from millstream.testing.connectors.report import Checklist, Skipped
from millstream.testing.connectors.sink_scene import Scene, SinkTrial

__all__ = ["check_crashes"]

_PROCESS_POINTS = 8
_BURIAL_TIMEOUT_S = 2.0


def check_crashes(checks: Checklist, trial: SinkTrial) -> None:
    checks.run("repeat", "the same commit once more changes nothing", lambda: _repeat(trial))
    checks.run("task", "output of a dead task is never visible", lambda: _dead_task(trial))
    checks.run("task-twice", "of two attempts of a task only the chosen one is visible", lambda: _task_twice(trial))
    checks.run("abort", "output of an aborted task is never visible", lambda: _abort(trial))
    checks.run("driver", "the next driver commits for one that died before commit()", lambda: _dead_driver(trial))
    checks.run("crash", "a crash at any line of commit() loses and doubles nothing", lambda: _crash(trial))
    checks.run(
        "crash-process",
        "a process killed at any line of commit() loses and doubles nothing",
        lambda: _crash_process(trial),
    )
    checks.run("crash-task", "a crash at any line of a writer loses and doubles nothing", lambda: _crash_task(trial))


def _repeat(trial: SinkTrial) -> str:
    """Repeat a commit: by the same driver, by its successor, and of an epoch before the last."""
    scene, (first, second) = trial.scene(), trial.halves()
    scene.job.run(first)
    scene.job.commit()
    scene.job.run(second)
    scene.job.replace_driver()
    scene.job.commit(-1)
    scene.job.commit(-1)
    scene.end()
    scene.job.commit(-1)
    scene.check()
    return ""


def _dead_task(trial: SinkTrial) -> str:
    """One task died before staging, one after: neither is in a manifest."""
    scene, (first, second) = trial.scene(), trial.halves()
    scene.job.run(first)
    scene.job.writers(second)
    scene.job.stage(second)
    scene.job.run(second)
    scene.end()
    return ""


def _task_twice(trial: SinkTrial) -> str:
    """Two concurrent attempts of every task. The one that staged first loses."""
    scene, (first, second) = trial.scene(), trial.halves()
    losing, winning = scene.job.writers(first), scene.job.writers(first)
    for writer in losing:
        staged_items(writer)
    staged = [item for writer in winning for item in staged_items(writer)]
    for writer in losing:
        writer.abort()
    scene.job.decide(staged, first)
    scene.job.commit()
    scene.job.run(second)
    scene.end()
    return ""


def _abort(trial: SinkTrial) -> str:
    scene, (first, second) = trial.scene(), trial.halves()
    for writer in scene.job.writers(first):
        writer.abort()
    if trial.is_exact:
        scene.must_be_empty("after abort()")
    scene.job.run(first)
    for writer in scene.job.writers(second):
        writer.abort()
    scene.job.run(second)
    scene.end()
    return ""


def _dead_driver(trial: SinkTrial) -> str:
    """The driver wrote the manifest and died: once with a later epoch to follow, once at the last one."""
    scene, (first, second) = trial.scene(), trial.halves()
    scene.job.decide(scene.job.stage(first), first)
    scene.job.replace_driver()
    scene.job.commit()
    scene.job.run(second)
    scene.job.decide(scene.job.stage([]), [], final=True)
    scene.job.replace_driver()
    scene.job.commit()
    scene.check()
    return ""


def _crash(trial: SinkTrial) -> str:
    points, moments = _moments(trial, trial.crash_points, by_exception=True)
    for moment in moments:
        scene = _before_commit(trial)
        points.crash(scene.job.commit, moment)
        _commit_again(scene, points.place(moment))
    return f"{len(moments)} moments"


def _crash_process(trial: SinkTrial) -> str:
    if trial.session is not None:
        raise Skipped("it needs a Spark session")
    points, moments = _moments(trial, _PROCESS_POINTS)
    for moment in moments:
        scene = _before_commit(trial)
        commit, publish = scene.job.commits[-1]
        NURSERY.crash(DoomedCommit(scene.job.actor.sink, commit, publish, trial.store, moment))
        _commit_again(scene, points.place(moment))
    return f"{len(moments)} moments"


def _before_commit(trial: SinkTrial) -> Scene:
    """A scene with one published epoch, and the manifest of the last one written."""
    scene, (first, second) = trial.scene(), trial.halves()
    scene.job.run(first)
    scene.job.decide(scene.job.stage(second), second, final=True)
    return scene


def _moments(trial: SinkTrial, many: int, *, by_exception: bool = False) -> tuple[CrashPoints, list[int]]:
    scene = _before_commit(trial)
    points = CrashPoints(scene.job.actor.sink)
    points.count(scene.job.commit)
    return points, points.chosen(many, by_exception=by_exception)


def _commit_again(scene: Scene, place: str) -> None:
    """The next driver repeats the commit of the dead one, whose connections end with its process."""
    dead = scene.job.replace_driver()
    scene.job.actors.remove(dead)
    burial = threading.Thread(target=_close, args=(dead,), daemon=True)
    burial.start()
    burial.join(_BURIAL_TIMEOUT_S)  # it may block on its own lock forever

    def act() -> None:
        scene.job.commit()
        scene.check()

    _tried(act, f"after a crash at {place}")


def _close(dead: Actor) -> None:
    with suppress(Exception):
        dead.opened.close()


def _crash_task(trial: SinkTrial) -> str:
    first, second = trial.halves()
    example = trial.scene()
    points = CrashPoints(example.job.actor.sink)
    points.count(lambda: example.job.stage(first))
    moments = points.chosen(trial.crash_points, by_exception=True)
    for moment in moments:
        scene = trial.scene()
        points.crash(lambda scene=scene: scene.job.stage(first), moment)  # type: ignore[misc]

        def go_on(scene: Scene = scene) -> None:
            scene.job.run(first)
            scene.job.run(second)
            scene.end()

        _tried(go_on, f"after a crash at {points.place(moment)}")
    return f"{len(moments)} moments"


def _tried(act: Callable[[], Any], when: str) -> None:
    try:
        act()
    except AssertionError as error:
        raise AssertionError(f"{when}: {error}") from error
    except Exception as error:
        raise AssertionError(f"{when} it raised {type(error).__name__}: {error}") from error
