"""A job on a cluster of two executor processes, one of which is killed in the middle. Run by test_lost_executor.

    python lost_executor_program.py STORE

Prints one JSON line: what was published, how often the job restarted, and which process was killed.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import threading
import time
from typing import Any

import psutil

from millstream.common import Configuration, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.spark.session import make_session
from millstream.testing import Collect, Script

RECORDS = 400
KILL_AFTER_EPOCHS = 3


def slow(value: int) -> int:
    time.sleep(0.003)
    return value


def executors() -> list[psutil.Process]:
    """The executor processes that Spark's two workers have started, below this process."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it may end while we look
            if any("CoarseGrainedExecutorBackend" in part for part in process.cmdline()):
                found.append(process)
    return found


def kill_one_when(job: Any, killed: list[int]) -> None:
    """Kill an executor as soon as some epochs are committed: the next one is then under way."""
    while job.board.now.epoch < KILL_AFTER_EPOCHS:
        time.sleep(0.005)
    time.sleep(0.1)
    found = executors()
    assert len(found) == 2, found
    os.kill(found[0].pid, signal.SIGKILL)
    killed.append(job.board.now.epoch)


def main(store: str) -> None:
    session = make_session("local-cluster[2,1,1024]", {"spark.executor.memory": "512m"})
    env = StreamExecutionEnvironment.get_execution_environment().use_spark_session(session)
    env.set_parallelism(2).set_store(store)
    env.configure(Configuration().set_integer("millstream.epoch.max-records", 50))
    out = Collect()
    source = Script(range(0, RECORDS, 2), range(1, RECORDS, 2), type_info=Types.LONG())
    stream = env.add_source(source).rebalance().map(slow, Types.LONG())
    stream.key_by(lambda n: n % 13).map(slow, Types.LONG()).sink_to(out)
    job = env._launch("lost executor")
    killed: list[int] = []
    killer = threading.Thread(target=kill_one_when, args=(job, killed), daemon=True)
    killer.start()
    job.result()
    killer.join()
    answer = {
        "values": sorted(out.values),
        "restarts": job.board.now.restarts,
        "killed_at_epoch": killed[0],
        "epochs": job.board.now.epoch,
    }
    print("ANSWER " + json.dumps(answer), flush=True)
    session.stop()


if __name__ == "__main__":
    main(sys.argv[1])
