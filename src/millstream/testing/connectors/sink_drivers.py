"""Scenes with more than one driver: a driver that resumes late, two at once; other jobs and sinks with the same
target."""

from __future__ import annotations

import threading

from millstream.connectors.contract_checks import restored_pending
from millstream.connectors.contracts import RestorePoint
from millstream.testing.connectors.rehearsal import Actor
from millstream.testing.connectors.report import Checklist, Skipped
from millstream.testing.connectors.sink_scene import Scene, SinkTrial

__all__ = ["check_drivers"]

_RACES = 5
_RACE_TIMEOUT_S = 60.0


def check_drivers(checks: Checklist, trial: SinkTrial) -> None:
    checks.run("late-driver", "a driver that wakes up late changes nothing", lambda: _late(trial))
    checks.run("two-drivers", "two drivers that commit the same at once publish it once", lambda: _race(trial))
    checks.run("two-jobs", "epochs of another job with the same number are distinct", lambda: _two_jobs(trial))
    checks.run("two-sinks", "two sinks of one job may write to the same place", lambda: _two_sinks(trial))
    checks.run("restore", "going back to an older epoch changes no published output", lambda: _restore(trial))


def _late(trial: SinkTrial) -> str:
    """A driver was paused before commit(); its successor committed and continued; now it continues too."""
    if not trial.is_exact:
        raise Skipped("it promises at-least-once")
    scene, (first, second) = trial.scene(), trial.halves()
    scene.job.decide(scene.job.stage(first), first)
    late = scene.job.replace_driver()
    scene.job.commit()
    scene.job.run(second)
    _unless_refused(scene, late, 0)
    scene.check(so_far=True)
    scene.end()
    _unless_refused(scene, late, 0)
    scene.check()
    return ""


def _unless_refused(scene: Scene, late: Actor, number: int) -> None:
    """A late driver may be fenced by the output, which also counts as changing nothing."""
    try:
        scene.job.commit(number, late)
    except Exception:
        return


def _race(trial: SinkTrial) -> str:
    """Either driver may be rejected; afterwards the remaining one commits once more."""
    scene = trial.scene()
    for number in range(_RACES):
        records = trial.records[number::_RACES]
        scene.job.decide(scene.job.stage(records), records)
        rival = scene.job.replace_driver()
        start = threading.Barrier(2)

        def commit(actor: Actor, start: threading.Barrier = start) -> None:
            start.wait(_RACE_TIMEOUT_S)
            _unless_refused(scene, actor, -1)

        threads = [threading.Thread(target=commit, args=(actor,), daemon=True) for actor in (rival, scene.job.actor)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(_RACE_TIMEOUT_S)
            assert not thread.is_alive(), f"two commits at once do not end within {_RACE_TIMEOUT_S:g} s"
        scene.job.commit()
        scene.check(so_far=True)
    scene.end()
    return f"{_RACES} races"


def _two_jobs(trial: SinkTrial) -> str:
    scene, (first, second) = trial.scene(), trial.halves()
    other = trial.job(scene.place)
    for half in (first[::2], first[1::2]):
        scene.job.run(half)
        other.run(second[: len(half)])
        second = second[len(half) :]
    scene.end(other)
    return ""


def _two_sinks(trial: SinkTrial) -> str:
    scene, (first, second) = trial.scene(), trial.halves()
    other = trial.job(scene.place)
    other.job, other.uid = scene.job.job, "sink/other"
    scene.job.run(first)
    other.run(second)
    scene.end(other)
    return ""


def _restore(trial: SinkTrial) -> str:
    """Restore in the job's own store, and as a fork next to the original job, which continues."""
    scene, (first, second) = trial.scene(), trial.halves()
    scene.job.run(first)
    pending, sentence = scene.job.pending, ""
    for job in (scene.job.job, "another-job"):
        point = RestorePoint(scene.job.epoch, scene.job.uid, trial.store, job, scene.job.job)
        for _ in range(2):  # it is called again if the start fails afterwards
            _, sentence = restored_pending(trial.make(scene.place), pending, point)
        scene.check(so_far=True)
    scene.job.run(second)
    scene.end()
    return f"it says: {sentence}" if sentence else ""
