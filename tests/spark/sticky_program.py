"""Subtasks on a cluster of three executor processes. Run by test_sticky_subtasks.

    python sticky_program.py STORE WHAT

WHAT: `steady` (executors live; two widths, a loop, a change of parallelism), `killed` (one is killed on the way),
`straggling` (a task is slow, and Spark starts it a second time). Prints one JSON line.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from typing import Any

from lost_executor_program import executors

from millstream.checkpoint.manifest import ManifestLog
from millstream.common import Configuration, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.jobs.epochs.epoch_statistics import statistics_of
from millstream.spark.session import make_session
from millstream.storage.store import open_store
from millstream.testing import Collect, Script

RECORDS = 600
EPOCH_RECORDS = 30
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "50ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.3",
    "spark.speculation.minTaskRuntime": "200ms",
}


def straggle(value: int) -> int:
    """The first attempt at some records is far slower than its neighbours are, and than the second attempt."""
    from pyspark import TaskContext

    context = TaskContext.get()
    if value % 100 == 7 and context is not None and context.attemptNumber() == 0:
        time.sleep(4)
    return value


def pass_on(value: int) -> int:
    return value


def wait_for_epoch(job: Any, epoch: int) -> None:
    while job.board.now.epoch < epoch:
        time.sleep(0.01)


def disturb(job: Any, what: str, told: dict[str, Any]) -> None:
    """What happens to the job from outside."""
    wait_for_epoch(job, 6)
    if what == "killed":
        victim = executors()[0]
        told["disturbed_at"] = job.board.now.epoch
        os.kill(victim.pid, signal.SIGKILL)
    elif what == "steady":
        told["disturbed_at"] = job.board.now.epoch
        job.rescale(2)


def main(store: str, what: str) -> None:
    settings = {"spark.executor.memory": "512m", "spark.driver.memory": "512m"}
    session = make_session("local-cluster[3,1,512]", settings | (SPECULATION if what == "straggling" else {}))
    env = StreamExecutionEnvironment.get_execution_environment().use_spark_session(session)
    env.set_parallelism(3).set_store(store)
    configuration = Configuration().set_integer("millstream.epoch.max-records", EPOCH_RECORDS)
    configuration.set_string("millstream.retention.epochs", "1000").set_string("millstream.placement.wait", "5 s")
    env.configure(configuration)
    out = Collect()
    source = Script(range(0, RECORDS, 2), range(1, RECORDS, 2), type_info=Types.LONG())
    stream = env.add_source(source).rebalance().map(straggle if what == "straggling" else pass_on, Types.LONG())
    stream.key_by(lambda n: n % 13).map(pass_on, Types.LONG()).set_parallelism(2).sink_to(out)
    job = env._launch("sticky")
    told: dict[str, Any] = {}
    disturber = threading.Thread(target=disturb, args=(job, what, told), daemon=True)
    disturber.start()
    job.result()
    log = ManifestLog(open_store(store))
    manifests = [log.read(epoch) for epoch in log.epochs()]
    statistics = [statistics_of(manifest) or {} for manifest in manifests]
    answer = {
        "values": sorted(out.values),
        "restarts": job.board.now.restarts,
        "stays": [[one["number"], one["tasks"], one["tasks_stayed"]] for one in statistics if "tasks_stayed" in one],
        "shown": job.board.now.stayed_share,
        **told,
    }
    print("ANSWER " + json.dumps(answer), flush=True)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
