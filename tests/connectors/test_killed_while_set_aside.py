"""A driver killed (-9) while it dead-letters rows: each row is then either in the table or in the folder, once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from servers.postgres import PostgresServer

SOURCE = Path(__file__).resolve().parents[2] / "src"
PROGRAM = """
import os, signal, sys
from millstream.common import Row, Types
from millstream.connectors.databases.sink import DatabaseSink as EngineSink
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.databases import DatabaseSink
from millstream.storage.local import LocalStore
from millstream.testing.local_jobs import jobs_in_memory

url, table, store, folder, steps = sys.argv[1:]
left = int(steps)


def step():
    global left
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    left -= 1


def watched(method, is_step):
    def call(self, *arguments):
        if not is_step(*arguments):
            return method(self, *arguments)
        step()
        result = method(self, *arguments)
        step()
        return result

    return call


LocalStore.put = watched(LocalStore.put, lambda name, data: name.startswith("refused/") or ".sink." in name)
EngineSink.commit = watched(EngineSink.commit, lambda commit, publish, _: any("refused" in item for item in publish))
rows = [Row(id=n, v="bad" if n % 3 == 1 else "good") for n in range(9)]
with jobs_in_memory():
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_store(store)
    stream = env.from_collection(rows, Types.ROW_NAMED(["id", "v"], [Types.INT(), Types.STRING()])).uid("rows")
    stream.sink_to(DatabaseSink(url, table).with_dead_letters(folder)).uid("sink")
    env.execute("ledger")
print("steps", int(steps) - left)
"""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize("steps", [2, 3, 5, 8], ids=["listed", "published", "half written", "written"])
def test_a_driver_killed_while_dead_lettering_leaves_each_row_in_one_place(
    postgres_server: PostgresServer, unique_name: str, tmp_path: Path, steps: int
) -> None:
    postgres_server.execute(f"create table {unique_name} (id int, v text, check (v <> 'bad'))")
    url = f"postgresql://postgres@127.0.0.1:{postgres_server.port}/test"
    places = (url, unique_name, str(tmp_path / "store"), str(tmp_path / "letters"))
    assert run(*places, str(steps)).returncode == -signal.SIGKILL
    last = run(*places, "1000")
    assert last.returncode == 0, last.stderr
    taken = postgres_server.execute(f"select id from {unique_name} order by id")
    assert [row[0] for row in taken] == [0, 2, 3, 5, 6, 8]
    [file] = (tmp_path / "letters").glob("*.arrow")
    with pa.ipc.open_file(str(file)) as letters:
        assert letters.read_all().column("id").to_pylist() == [1, 4, 7]
