"""The Spark session a job runs on: made for the user with the right settings, or theirs, checked.

Settings come in two kinds. Those of the *application* are fixed when its JVM starts: we set them when we make it,
and check those that matter when the user brings one. Those of the *session* we set ourselves, in a session of our
own that shares the user's application: their own session keeps its settings.

Nothing here starts a JVM before Java and PySpark have been found to be of a version that works.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from millstream.errors import PlatformError

__all__ = ["APPLICATION_SETTINGS", "SESSION_SETTINGS", "check_platform", "make_session", "our_session"]

JAVA_VERSIONS = (17, 21)
PYSPARK_SERIES = "4.3"
_LOCAL_PREFIX = "millstream-spark-"
_LOCAL_BYTES_MIN = 4 << 30

# Measured in docs/decisions/0003: what makes the smallest epoch small, and keeps a long-running driver flat.
APPLICATION_SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.locality.wait": "0",
    "spark.shuffle.compress": "false",
    "spark.cleaner.periodicGC.interval": "2min",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "40",
    "spark.ui.retainedTasks": "400",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.driver.memory": "1g",
    # Blocks are arrays of megabytes, which Java's usual collector keeps in regions of their own: an exchange of large
    # blocks is a sixth faster without it (docs/benchmarks.md, exchanges).
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC",
}

SESSION_SETTINGS: Mapping[str, str] = {
    # Adaptive execution merges shuffle partitions: a task would get the envelopes of several subtasks.
    "spark.sql.adaptive.enabled": "false",
    # Our plans are trivial and our work is in Python: compiling Java for them only costs time.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # An envelope holds a whole block, so few of them make a large Arrow batch.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
    "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "false",
}


def check_platform() -> None:
    """Java 17 or 21 and PySpark 4.3, or an error that says how to get them."""
    import pyspark

    if not pyspark.__version__.startswith(PYSPARK_SERIES + "."):
        raise PlatformError(
            f"PySpark {pyspark.__version__} is installed, Millstream needs {PYSPARK_SERIES}. "
            f"Run: pip install 'pyspark=={PYSPARK_SERIES}.*'"
        )
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else "java"
    install = "Run: apt-get install openjdk-17-jre-headless (or set JAVA_HOME to a Java 17 or 21)"
    try:
        printed = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlatformError(f"no Java was found ({java}: {error}); Spark runs on Java 17 or 21. {install}") from error
    found = re.search(r'version "(\d+)', printed)
    version = int(found.group(1)) if found else 0
    if version not in JAVA_VERSIONS:
        raise PlatformError(f"{java} is Java {version or printed.strip()!r}; Spark 4.3 runs on 17 or 21. {install}")


def make_session(master: str, settings: Mapping[str, str], log: Path | None = None) -> SparkSession:
    """The application's session, started now if this process has none. The JVM writes to `log`, not to the screen."""
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    check_platform()
    # Workers must be this very Python, with its packages: without this Spark starts whatever `python3` is.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # … and find the modules beside the user's program, as the program itself does.
    beside = [path for path in (sys.path[0], os.environ.get("PYTHONPATH", "")) if path]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(os.pathsep.join(beside).split(os.pathsep)))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder: Any = SparkSession.builder
    builder = builder.master(master).appName("millstream")
    for key, value in {**APPLICATION_SETTINGS, **_local_dir(), **settings}.items():
        builder = builder.config(key, value)
    log = log or Path(tempfile.gettempdir(), f"millstream-spark-{os.getpid()}.log")
    with _screen_to(log):
        session: SparkSession = builder.getOrCreate()
    session.sparkContext.setLogLevel("WARN")
    return session


def our_session(session: SparkSession) -> SparkSession:
    """A session of our own in the user's application, after checking that the application is safe to run on."""
    if not session.version.startswith(PYSPARK_SERIES + "."):
        raise PlatformError(f"the Spark session is version {session.version}, Millstream needs {PYSPARK_SERIES}")
    if session.sparkContext.getConf().get("spark.python.worker.reuse", "true") != "true":
        raise PlatformError(
            "spark.python.worker.reuse is false: every epoch would open every function anew. "
            "Start the session with it true (the default)"
        )
    ours = session.newSession()
    for key, value in SESSION_SETTINGS.items():
        ours.conf.set(key, value)
    return ours


def _local_dir(memory: Path = Path("/dev/shm")) -> dict[str, str]:
    """Shuffle files live for one epoch: keep them in memory where the system offers a memory file system.

    Spark removes its files when it ends, but not when it is killed, and memory is not given back by itself. So the
    folder is named after this process, and those of processes that are gone are removed first.
    """
    if not memory.is_dir() or not os.access(memory, os.W_OK):
        return {}
    for left in memory.glob(f"{_LOCAL_PREFIX}*"):
        owner = left.name.removeprefix(_LOCAL_PREFIX)
        if owner.isdigit() and not Path("/proc", owner).exists():
            shutil.rmtree(left, ignore_errors=True)
    free = os.statvfs(memory)
    if free.f_bavail * free.f_frsize < _LOCAL_BYTES_MIN:
        return {}
    mine = memory / f"{_LOCAL_PREFIX}{os.getpid()}"
    mine.mkdir(exist_ok=True)
    atexit.register(shutil.rmtree, mine, ignore_errors=True)
    return {"spark.local.dir": str(mine)}


@contextmanager
def _screen_to(log: Path) -> Iterator[None]:
    """While the JVM starts it inherits our screen: give it a file instead, for good."""
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    kept = os.dup(1), os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(kept[0], 1)
        os.dup2(kept[1], 2)
        for descriptor in (*kept, target):
            os.close(descriptor)
