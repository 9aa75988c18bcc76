"""A Spark standalone cluster on this machine: a master and workers, from PySpark's own classes.

Each worker imitates a machine of its own: an address (127.0.0.2, .3, …), a folder for its work and others for its
executors' local and temporary files, including their local tier. Executors run in an environment without millstream
(`executor_python`), as `python3.…` on their PATH. A killed worker takes its executors along, as a machine would; its
folders stay until `lose_disk`.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil
import pyspark
from waits.patience import PATIENCE_S

from servers.executor_python import executor_python
from servers.server_process import HOST, ServerProcess, free_port

__all__ = ["SparkCluster", "SparkMaster", "SparkWorker"]

SPARK_HOME = Path(pyspark.__file__).parent
_DAEMON = {
    "SPARK_HOME": str(SPARK_HOME),
    "SPARK_DAEMON_MEMORY": "128m",
    "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}
_EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"


class SparkMaster(ServerProcess):
    """`url` is the master URL for drivers; `state` its report of workers and applications."""

    name = "spark-master"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.port, self._page = free_port(), free_port()
        self.url = f"spark://{HOST}:{self.port}"

    def command(self) -> Sequence[str]:
        options = ["--host", HOST, "--port", str(self.port), "--webui-port", str(self._page)]
        return [str(SPARK_HOME / "bin" / "spark-class"), "org.apache.spark.deploy.master.Master", *options]

    def environment(self) -> Mapping[str, str]:
        return _DAEMON

    def is_ready(self) -> bool:
        return bool(self.state()["status"] == "ALIVE")

    def state(self) -> dict[str, Any]:
        # `urlopen` leaks the connection if no response arrives.
        with contextlib.closing(http.client.HTTPConnection(HOST, self._page, timeout=5)) as connection:
            connection.request("GET", "/json/")
            return dict(json.loads(connection.getresponse().read()))


class SparkWorker(ServerProcess):
    """Worker `index` of a cluster; its executors are its children, and end with it."""

    name = "spark-worker"

    def __init__(self, folder: Path, index: int, master: SparkMaster, cores: int, memory_mb: int, python: Path) -> None:
        super().__init__(folder)
        self.host = f"127.0.0.{2 + index}"
        self.local_folder, self.temporary_folder = folder / "local", folder / "tmp"
        self._master, self._cores, self._memory_mb, self._python = master, cores, memory_mb, python

    def command(self) -> Sequence[str]:
        options = {
            "--host": self.host,
            "--webui-port": "0",
            "--cores": str(self._cores),
            "--memory": f"{self._memory_mb}m",
            "--work-dir": str(self.folder / "work"),
        }
        words = [word for option in options.items() for word in option]
        worker = "org.apache.spark.deploy.worker.Worker"
        return [str(SPARK_HOME / "bin" / "spark-class"), worker, *words, self._master.url]

    def environment(self) -> Mapping[str, str]:
        for disk in (self.local_folder, self.temporary_folder):
            disk.mkdir(parents=True, exist_ok=True)
        return {
            **_DAEMON,
            "SPARK_LOCAL_DIRS": str(self.local_folder),
            "TMPDIR": str(self.temporary_folder),  # the folder of its executors' local tier
            # Executors see nothing of the tests' own environment: neither its interpreter nor its modules.
            "PATH": f"{self._python.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
            "PYTHONPATH": "",
            "PYSPARK_PYTHON": "",
            "PYSPARK_DRIVER_PYTHON": "",
            "VIRTUAL_ENV": "",
        }

    def is_ready(self) -> bool:
        workers = self._master.state()["workers"]
        return any(worker["host"] == self.host and worker["state"] == "ALIVE" for worker in workers)

    def executors(self) -> dict[str, psutil.Process]:
        """The ids of its running executors."""
        found = {}
        for process in psutil.Process(self.pid).children(recursive=True) if self.is_running() else ():
            try:
                words = process.cmdline()
            except psutil.Error:  # it has just ended
                continue
            if _EXECUTOR in words:
                found[words[words.index("--executor-id") + 1]] = process
        return found


class SparkCluster:
    """A context manager: started by `with`, removed afterwards, and also when the tests are killed
    (`servers.guard`).
    """

    def __init__(
        self, folder: Path, workers: int = 3, cores: int = 1, memory_mb: int = 512, python: Path | None = None
    ) -> None:
        python = python or executor_python()
        self.folder = folder
        self.cores, self.memory_mb = cores, memory_mb
        self.master = SparkMaster(folder / "master")
        self.workers = [
            SparkWorker(folder / f"worker-{index}", index, self.master, cores, memory_mb, python)
            for index in range(workers)
        ]
        self.master_url = self.master.url

    def __enter__(self) -> SparkCluster:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def start(self) -> None:
        """Start the processes that do not run, and wait until the master knows all workers."""
        try:
            for server in (self.master, *self.workers):
                if not server.is_running():
                    server.folder.mkdir(parents=True, exist_ok=True)
                    server.start() if server is self.master else server.launch()
            for worker in self.workers:
                worker.wait_until_ready()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Kill all processes and remove their folders."""
        for server in (*self.workers, self.master):
            server.remove()

    def settings(self) -> dict[str, str]:
        """Driver settings for small JVMs: executors that fit into the workers, one on each, with little JIT
        compilation, which does not pay within a minute.
        """
        return {
            "spark.executor.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": f"{self.memory_mb}m",
            "spark.executor.cores": str(self.cores),
        }

    # --- failures of a machine ---

    def kill_worker(self, index: int) -> None:
        """Kill worker `index` with -9, with its executors: the machine has failed."""
        self.workers[index].kill()

    def restart_worker(self, index: int) -> None:
        """The machine is back, with its previous disk."""
        self.workers[index].restart()

    def lose_disk(self, index: int) -> None:
        """Remove the contents of the killed worker's disk."""
        worker = self.workers[index]
        assert not worker.is_running(), f"worker {index} runs: kill it first"
        for folder in (worker.local_folder, worker.temporary_folder, worker.folder / "work"):
            shutil.rmtree(folder, ignore_errors=True)

    def kill_executor(self, index: int) -> list[str]:
        """Kill the executors of worker `index` with -9; the worker starts others. Returns their ids."""
        killed = []
        for number, process in self.workers[index].executors().items():
            process.send_signal(signal.SIGKILL)
            killed.append(number)
        return killed

    def executor_ids(self) -> list[str]:
        """The running executors of all workers."""
        return sorted((number for worker in self.workers for number in worker.executors()), key=int)

    def wait_for_executors(self, count: int, timeout_s: float = PATIENCE_S) -> list[str]:
        """Wait until this many executors run; returns their ids."""
        deadline = time.monotonic() + timeout_s
        while len(found := self.executor_ids()) != count:
            assert time.monotonic() < deadline, f"{len(found)} executors run, {count} expected"
            time.sleep(0.05)
        return found

    def executor_logs(self) -> str:
        """The ends of the executors' output: for a test that failed."""
        files = sorted(self.folder.glob("worker-*/work/*/*/stderr"))
        return "\n".join(f"--- {file}\n{file.read_text(errors='replace')[-2000:]}" for file in files)
