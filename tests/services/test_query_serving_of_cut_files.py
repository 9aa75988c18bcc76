"""A serving job survives truncation of its store's files: queries get an error, and the job continues.

The job runs in a process of its own: access to a truncated memory map would end that process with SIGBUS.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import json, os, sys, time
from pathlib import Path

import httpx
from programs.queryable import PAIR, Keeps

from millstream.common import Configuration, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.jobs.clock import SystemClock
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.state.segments import open_segments
from millstream.storage import open_store
from millstream.testing import EPOCH, Collect, Script

STATES = ("total", "largest", "place", "names", "seen")
RELEASE = sys.argv[1] + "-release"


def wait(value):
    while value[0] == "held" and not os.path.exists(RELEASE):
        time.sleep(0.01)
    return value


# So little is held in memory that nearly every question reads a file.
open_segments._OF_THIS_PROCESS._bytes_max = 1
env = StreamExecutionEnvironment.get_execution_environment(
    Configuration().set_string("millstream.query.listen", "127.0.0.1:0")
)
items = [*((f"key {n}", n) for n in range(500)), EPOCH, ("held", 0), EPOCH, ("held", 0)]
stream = env.add_source(Script(items, type_info=PAIR)).map(wait, PAIR).filter(lambda value: value[0] != "held")
stream.key_by(lambda value: value[0], Types.STRING()).process(Keeps()).uid("keeper").sink_to(Collect())
job = Launch(SystemClock(), LocalRunner(), open_store(sys.argv[1])).start(env._graph("served"), env._job_settings())
while job.board.now.epoch < 1:
    time.sleep(0.01)


def asked():
    url = f"{job.board.now.query_url}/v1/jobs/served/states"
    return [httpx.get(f"{url}/{state}/keys/key%207", timeout=60).status_code for state in STATES]


before = asked()
for file in Path(sys.argv[1], "segments").rglob("*.arrow"):
    os.truncate(file, 10)
after = asked()
Path(RELEASE).touch()
job.result()
print(json.dumps({"before": before, "after": after, "status": job.status().name, "epoch": job.board.now.epoch}))
"""


def test_files_truncated_under_a_serving_job_are_query_errors_and_the_job_continues(
    tmp_path: Path,
) -> None:
    tests = Path(__file__).resolve().parents[1]
    path = os.pathsep.join([str(tests), str(tests.parent / "src"), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "store")],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, "PYTHONPATH": path},
    )
    assert done.returncode == 0, (done.returncode, done.stderr[-3000:])
    summary = json.loads(done.stdout.splitlines()[-1])
    assert summary["before"] == [200] * 5
    assert summary["after"].count(200) <= 1 and set(summary["after"]) - {200} == {500}, summary
    assert (summary["status"], summary["epoch"] >= 3) == ("FINISHED", True)
