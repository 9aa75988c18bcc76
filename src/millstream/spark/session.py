"""The Spark session a job runs on: made for the user with the right settings, or theirs, checked.

Settings come in two kinds. Those of the *application* are fixed when its JVM starts: we set them when we make it,
and check those that matter when the user brings one. Those of the *session* we set ourselves, in a session of our
own that shares the user's application: their own session keeps its settings.

Nothing here starts a JVM before Java and PySpark have been found to be of a version that works.

Files that the JVM writes are its user's alone (`private_folders`), and no secret is on its command line (`jvm_start`).
"""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import SparkSession

from millstream.errors import PlatformError
from millstream.spark.interrupts import left_on_interrupt
from millstream.spark.jvm_start import started_in_private
from millstream.spark.masters import ended_application, is_one_machine, reach_master
from millstream.spark.private_folders import SHUFFLE_PREFIX, fresh_shuffle_folder
from millstream.storage.temporary_logs import fresh_log

__all__ = [
    "APPLICATION_SETTINGS",
    "SESSION_SETTINGS",
    "SILENCE_SETTINGS",
    "WORKER_ENVIRONMENT",
    "check_platform",
    "chosen_master",
    "has_application",
    "local_folder_of",
    "make_session",
    "memory_folder_of",
    "our_session",
]

JAVA_VERSIONS = (17, 21)
PYSPARK_SERIES = "4.3"
# As the user set it: a session that we make sets it, too.
_USERS_PYTHON = os.environ.get("PYSPARK_PYTHON")
_IMPORTING = threading.Lock()

# Measured in docs/decisions/0003: what makes the smallest epoch small, and keeps a long-running driver flat.
APPLICATION_SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.locality.wait": "0",
    # A subtask belongs where its state is (`spark.stickiness`), not where most of its input of one epoch was written.
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.shuffle.compress": "false",
    # Spark would write a file for every receiver first where there are up to 200 of them: every task sends to all.
    "spark.shuffle.sort.bypassMergeThreshold": "16",
    "spark.cleaner.periodicGC.interval": "2min",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "40",
    "spark.ui.retainedTasks": "400",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.driver.memory": "1g",
    # Blocks are arrays of megabytes, which Java's usual collector keeps in regions of their own: an exchange of large
    # blocks is a sixth faster without it (docs/understand/benchmarks.md, exchanges).
    # … and without its second compiler: what the JVM does for us is short, or copies bytes, and is no faster by it. It
    # cost a third of a core-second in every new job, two at the start (docs/understand/benchmarks.md, SQL).
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:TieredStopAtLevel=1",
}

# On a cluster, an executor that has said nothing for so long is given up. Left to itself Spark takes two to three
# minutes, in which the epoch stands still; an executor that is given up without need costs no more than one that dies.
SILENCE_SETTINGS: Mapping[str, str] = {
    "spark.executor.heartbeatInterval": "5s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "45s",
    "spark.network.timeoutInterval": "5s",
}

# On a cluster, a task that failed twice on one executor is tried on another. It prefers the one that has its state, and
# left to itself Spark tries it there until the epoch has failed, and in the next one again, while that disk is full.
EXCLUSION_SETTINGS: Mapping[str, str] = {
    "spark.excludeOnFailure.taskAndStage.enabled": "true",
    "spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor": "2",
    "spark.excludeOnFailure.task.maxTaskAttemptsPerNode": "3",
    "spark.scheduler.excludeOnFailure.unschedulableTaskSetTimeout": "5s",
}

# The memory of Python workers, whose batches come and go in pieces of some hundred kilobytes. Arrow's allocator asks
# the system for huge pages, and the system stops the worker until it has freed one: the first use of memory took twice
# as long. The C library gives such pieces back each time and gets them anew, page by page; it may keep so many bytes.
# Arrow's gives back at once, too; it may keep what it has for ten seconds, until the next epoch (decisions 0025, 0027).
WORKER_ENVIRONMENT: Mapping[str, str] = {
    "MIMALLOC_PURGE_DELAY": "10000",
    "MIMALLOC_ALLOW_THP": "0",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
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
        output = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=60, check=False).stderr
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PlatformError(f"no Java was found ({java}: {error}); Spark runs on Java 17 or 21. {install}") from error
    match = re.search(r'version "(\d+)', output)
    version = int(match.group(1)) if match else 0
    if version not in JAVA_VERSIONS:
        raise PlatformError(f"{java} is Java {version or output.strip()!r}; Spark 4.3 runs on 17 or 21. {install}")


def has_application() -> bool:
    """Whether this process has a JVM with an application of Spark in it: a session is there at once."""
    return SparkContext._active_spark_context is not None


def make_session(master: str, settings: Mapping[str, str], log: Path | None = None) -> SparkSession:
    """The application's session, started now if this process has none. The JVM writes to `log`, not to the screen."""
    _import_what_spark_imports_late()
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    check_platform()
    _quiet_py4j()
    master = chosen_master(master, settings)
    address = None if is_one_machine(master) else reach_master(master)
    cluster = {} if address is None else {"spark.driver.host": address}
    cluster |= _about_failures(master, {**_submitted(), **settings})
    os.environ["PYSPARK_PYTHON"] = _interpreter_of_tasks(master, settings)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Local workers find the modules beside the user's program, as the program itself does; to others they are sent.
    module_paths = [path for path in (sys.path[0], os.environ.get("PYTHONPATH", "")) if path]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(os.pathsep.join(module_paths).split(os.pathsep)))
    builder: Any = SparkSession.builder
    builder = builder.master(master).appName("millstream")
    chosen = {
        **APPLICATION_SETTINGS,
        **_worker_environment(),
        **_shuffle_dir(master, settings),
        **cluster,
        **_submitted(),
        **settings,
    }
    log = log or fresh_log("spark")
    with _screen_to(log), _address_for(master), started_in_private(chosen) as public:
        for key, value in public.items():
            builder = builder.config(key, value)
        session = left_on_interrupt(partial(_started, builder, master, log))
    session.sparkContext.setLogLevel("WARN")
    # The thread that made it has it for its own; the program, on this one, expects it to be the active one, too.
    SparkSession._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)
    return session


def _quiet_py4j() -> None:
    """A program that sets logging to INFO asks for what it and we say, and not for each connection to the JVM that is
    closed. Warnings of py4j still come, and whoever sets a level for it has it."""
    logger = logging.getLogger("py4j")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)


def _import_what_spark_imports_late() -> None:
    """Spark imports pandas when it makes the first plan. Two jobs that start at the same time would do it in two
    threads, and one of them meet a module that is half there."""
    with _IMPORTING, suppress(ImportError):
        import pandas  # noqa: F401


def _worker_environment() -> dict[str, str]:
    """What tasks' processes are told of memory; what the user says in the environment of the program stays."""
    return {f"spark.executorEnv.{key}": os.environ.get(key, value) for key, value in WORKER_ENVIRONMENT.items()}


_NOBODY_ANSWERS = "All masters are unresponsive"
"""What Spark writes to its log, and nowhere else, when no master has taken the application within a minute."""


def _about_failures(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """On a cluster: when an executor is given up, and when a task is tried elsewhere, where nobody says anything of
    that."""
    chosen: dict[str, str] = {}
    if not any(key in SILENCE_SETTINGS or key == "spark.network.timeout" for key in settings):
        chosen.update(SILENCE_SETTINGS)
    if not any("excludeOnFailure" in key or key == "spark.task.maxFailures" for key in settings):
        chosen.update(EXCLUSION_SETTINGS)
    return {} if is_one_machine(master) else chosen


def _started(builder: Any, master: str, log: Path) -> SparkSession:
    try:
        session: SparkSession = builder.getOrCreate()
        return session
    except Exception as error:
        if is_one_machine(master):
            raise
        if "stopped SparkContext" in str(error):
            is_registered = _NOBODY_ANSWERS not in log.read_text(errors="replace")
            raise ended_application(master, is_registered=is_registered) from error
        lines = str(error).strip().splitlines() or [type(error).__name__]
        # What the JVM says stands behind a line that says how it was called.
        why = next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0])
        raise PlatformError(
            f"Spark could not start an application on master {master} ({why}). Look whether a master of Spark's is "
            "what listens there, and whether it reaches this machine (spark.driver.host, spark.driver.port)"
        ) from error


def chosen_master(master: str, settings: Mapping[str, str]) -> str:
    """The master that the session will have: Spark's own name for it wins, in the settings or given to spark-submit."""
    return settings.get("spark.master") or _submitted().get("spark.master") or master


def _submitted() -> dict[str, str]:
    """What spark-submit was told, if it has started this program: its JVM is there already."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return {key: value for key, value in SparkConf().getAll() if key != "spark.app.name"}


def _interpreter_of_tasks(master: str, settings: Mapping[str, str]) -> str:
    """The Python that tasks run in. On this machine it is this very one, with its packages: Spark would start whatever
    `python3` is. On a cluster it is the one that the user names, or the one of the same version that executors find."""
    if is_one_machine(master):
        return sys.executable
    named = {**_submitted(), **settings}.get("spark.pyspark.python") or _USERS_PYTHON
    return named or f"python{sys.version_info[0]}.{sys.version_info[1]}"


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


def _shuffle_dir(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Shuffle files in this machine's memory, where all tasks are on it and nobody says otherwise."""
    if not is_one_machine(master) or "spark.local.dir" in settings or os.environ.get("SPARK_LOCAL_DIRS"):
        return {}
    folder = fresh_shuffle_folder()
    return {} if folder is None else {"spark.local.dir": str(folder.path)}


def local_folder_of(session: SparkSession) -> str:
    """Where Spark's temporary files are, as far as the driver knows; those of a cluster's machines may be elsewhere."""
    settings = session.sparkContext.getConf()
    return os.environ.get("SPARK_LOCAL_DIRS") or settings.get("spark.local.dir", "") or tempfile.gettempdir()


def memory_folder_of(session: SparkSession) -> str | None:
    """The folder in memory that we gave the session's shuffle files: only tasks of this machine can have one. None
    where somebody wants them elsewhere, or nobody to read them."""
    settings = session.sparkContext.getConf()
    folder = settings.get("spark.local.dir", "") or ""
    is_ours = Path(folder).name.startswith(SHUFFLE_PREFIX) and Path(folder).is_dir()
    return folder if is_ours and settings.get("spark.io.encryption.enabled", "false") != "true" else None


@contextmanager
def _address_for(master: str) -> Iterator[None]:
    """While the JVM starts: no address for others to reach it by, where all tasks are on this machine."""
    if "SPARK_LOCAL_IP" in os.environ or not is_one_machine(master):
        yield
        return
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    try:
        yield
    finally:
        # Another program that this one starts may have a cluster for its master.
        os.environ.pop("SPARK_LOCAL_IP", None)


@contextmanager
def _screen_to(log: Path) -> Iterator[None]:
    """While the JVM starts it inherits our screen: give it a file instead, for good."""
    log.parent.mkdir(parents=True, exist_ok=True)
    sys.stdout.flush()
    sys.stderr.flush()
    screen = os.dup(1), os.dup(2)
    target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.dup2(target, 1)
        os.dup2(target, 2)
        yield
    finally:
        os.dup2(screen[0], 1)
        os.dup2(screen[1], 2)
        for descriptor in (*screen, target):
            os.close(descriptor)
