"""While any task runs in the process the garbage collector runs rarely; afterwards its thresholds are restored."""

from __future__ import annotations

import gc
import threading

from millstream.runtime.task.garbage import fewer_collections


def test_the_last_of_several_tasks_restores_the_collectors_thresholds() -> None:
    usual = gc.get_threshold()
    inside, leave = threading.Event(), threading.Event()

    def other_task() -> None:
        with fewer_collections():
            inside.set()
            leave.wait(60)

    thread = threading.Thread(target=other_task)
    with fewer_collections():
        thread.start()
        assert inside.wait(60)
    assert gc.get_threshold()[0] > usual[0], "the other task still runs"
    leave.set()
    thread.join()
    assert gc.get_threshold() == usual


def test_a_failed_task_restores_the_collectors_thresholds() -> None:
    usual = gc.get_threshold()
    try:
        with fewer_collections():
            raise ValueError
    except ValueError:
        pass
    assert gc.get_threshold() == usual
