"""A job of several stages of two widths on a cluster. Run by test_sticky_subtasks.

    python sticky_program.py MASTER STORE WHAT

WHAT: `steady` (its parallelism is changed on the way), `killed` (an executor is killed on the way), `straggling` (some
tasks are slow the first time, and Spark starts them a second time), `joined` (asks for a machine with two cores beside
those with one, by a file `STORE-marks/wanted`, and goes on until that has had its share for some epochs). Prints one
JSON line.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
from pyspark import TaskContext
from pyspark.sql import SparkSession

from millstream.checkpoint.manifest import ManifestLog
from millstream.common import Configuration, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.jobs.epochs.epoch_statistics import statistics_of
from millstream.spark.executors import own_place
from millstream.storage.store import open_store
from millstream.testing import Collect, Script

RECORDS = 360
EPOCH_RECORDS = 30
DISTURBED_AT = 5
STRAGGLERS = (107, 307)
EXECUTORS = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    # The first task waits until all three are there: one that comes later would get its share, and that is a move.
    "spark.cores.max": "3",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": "120s",
}
UNEVEN = {
    **EXECUTORS,
    "spark.cores.max": "5",
    "spark.scheduler.minRegisteredResourcesRatio": "0.6",
}
del UNEVEN["spark.executor.cores"]  # an executor has all that its machine has
JOINED_RECORDS = 12_000
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.minTaskRuntime": "300ms",
}
OURS = {
    "millstream.epoch.max-records": str(EPOCH_RECORDS),
    "millstream.retention.epochs": "1000",
    "millstream.store.shared": "true",
}


def wait_for_epoch(job: Any, epoch: int) -> None:
    while job.board.now.epoch < epoch and not job.wait(0.01):
        pass


def kill_an_executor() -> None:
    """One of this application's, with -9."""
    context: Any = SparkSession.active().sparkContext
    for process in psutil.process_iter(["cmdline"]):
        with contextlib.suppress(psutil.Error):
            words = process.info["cmdline"] or []
            if "--executor-id" in words and context.applicationId in words:
                process.kill()
                return
    raise AssertionError("there is no executor to kill")


def disturb(job: Any, what: str, marks: Path) -> None:
    wait_for_epoch(job, DISTURBED_AT)
    if what == "steady":
        job.rescale(2)
    elif what == "killed":
        kill_an_executor()
    elif what == "joined":
        before = set(places_in(marks).values())
        (marks / "wanted").touch()
        while len([place for place in places_in(marks).values() if place not in before]) < 2 and not job.wait(0.05):
            pass
        wait_for_epoch(job, job.board.now.epoch + 6)
        job.stop()


def places_in(marks: Path) -> dict[str, str]:
    """Where each subtask of the widest stage ran last."""
    return {mark.name.partition("-")[2]: mark.read_text() for mark in marks.glob("subtask-*")}


def main(master: str, store: str, what: str) -> None:
    marks = Path(store + "-marks")
    marks.mkdir()

    def straggle(value: int) -> int:
        """The first attempt at some records takes far longer than its neighbours, and than the second attempt."""
        context = TaskContext.get()
        if what == "joined" and context is not None:
            mark = marks / f"subtask-{context.partitionId()}"
            fresh = mark.with_name(f"new-{os.getpid()}")
            fresh.write_text(own_place())
            fresh.replace(mark)
        if what == "straggling" and value in STRAGGLERS and context is not None:
            (marks / f"{value}-{context.attemptNumber()}").touch()
            if context.attemptNumber() == 0:
                time.sleep(20)
        return value

    width, records = (5, JOINED_RECORDS) if what == "joined" else (3, RECORDS)
    env = StreamExecutionEnvironment.get_execution_environment().set_parallelism(width).set_store(store)
    configuration = Configuration()
    executors = UNEVEN if what == "joined" else EXECUTORS
    for key, value in {**executors, **OURS, **(SPECULATION if what == "straggling" else {})}.items():
        configuration.set_string(key, value)
    env.configure(configuration.set_string("millstream.spark.master", master))
    out = Collect()
    source = Script(range(0, records, 2), range(1, records, 2), type_info=Types.LONG())
    stream = env.add_source(source).rebalance().map(straggle, Types.LONG())
    stream.key_by(lambda n: n % 13).map(lambda n: n, Types.LONG()).set_parallelism(2).sink_to(out)
    job = env._launch("sticky")
    disturber = threading.Thread(target=disturb, args=(job, what, marks), daemon=True)
    disturber.start()
    job.result()
    log = ManifestLog(open_store(store))
    statistics = [statistics_of(log.read(epoch)) or {} for epoch in log.epochs()]
    answer = {
        "values": sorted(out.values),
        "stays": [[one["number"], one["tasks"], one["tasks_stayed"]] for one in statistics if "tasks_stayed" in one],
        "run_ms": [round(one["run_ms"]) for one in statistics if "run_ms" in one],
        "attempts": sorted(mark.name for mark in marks.glob("[0-9]*")),
        "shown": job.board.now.stayed_share,
        "places": places_in(marks),
        "restarts": job.board.now.restarts,
    }
    print("ANSWER " + json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
