"""The Spark session of a job: created with the right settings, or the user's, after checks.

Settings are of two kinds. *Application* settings are fixed when the JVM starts: we set them if we start it, and check
the important ones if the user provides it. *Session* settings are set in a separate session that shares the user's
application; the user's own session keeps its settings.

No JVM starts before suitable versions of Java and PySpark have been verified.

Files of the JVM are private to its user (`private_folders`), and no secret is on its command line (`jvm_start`).
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
from millstream.spark.interrupts import abandon_on_interrupt
from millstream.spark.jvm_start import private_jvm_start
from millstream.spark.masters import application_ended_error, is_one_machine, reach_master
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
    "separate_session",
]

JAVA_VERSIONS = (17, 21)
PYSPARK_SERIES = "4.3"
# The value set by the user; `make_session` overwrites the variable.
_USERS_PYTHON = os.environ.get("PYSPARK_PYTHON")
_IMPORTING = threading.Lock()

# Measured in docs/decisions/0003: these settings keep the smallest epoch short and the memory of a long-running driver
# constant.
APPLICATION_SETTINGS: Mapping[str, str] = {
    "spark.ui.enabled": "false",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.python.worker.reuse": "true",
    "spark.locality.wait": "0",
    # A subtask should run where its state is (`spark.stickiness`), not where most of its input was written.
    "spark.shuffle.reduceLocality.enabled": "false",
    "spark.shuffle.compress": "false",
    # Up to 200 receivers, Spark would first write one file per receiver; every task sends to all.
    "spark.shuffle.sort.bypassMergeThreshold": "16",
    "spark.cleaner.periodicGC.interval": "2min",
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "40",
    "spark.ui.retainedTasks": "400",
    "spark.sql.ui.retainedExecutions": "10",
    "spark.driver.memory": "1g",
    # Blocks are arrays of megabytes, which Java's default collector stores in separate regions: an exchange of large
    # blocks is a sixth faster with the parallel one (docs/understand/benchmarks.md, exchanges).
    # Also without the second compiler: the JVM's work for us is short or copies bytes, and does not benefit from it. It
    # cost a third of a core-second in every new job, two at the start (docs/understand/benchmarks.md, SQL).
    "spark.driver.extraJavaOptions": "-XX:+UseParallelGC -XX:TieredStopAtLevel=1",
}

# On a cluster, executors without a heartbeat for this long are considered lost. Spark's default is two to three
# minutes, during which the epoch stalls; an executor that is removed unnecessarily costs no more than one that dies.
SILENCE_SETTINGS: Mapping[str, str] = {
    "spark.executor.heartbeatInterval": "5s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "45s",
    "spark.network.timeoutInterval": "5s",
}

# On a cluster, a task that failed twice on an executor is retried on another. Tasks prefer the executor with their
# state; by default Spark would retry there until the epoch fails, and again in the next one, while that disk is full.
EXCLUSION_SETTINGS: Mapping[str, str] = {
    "spark.excludeOnFailure.taskAndStage.enabled": "true",
    "spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor": "2",
    "spark.excludeOnFailure.task.maxTaskAttemptsPerNode": "3",
    "spark.scheduler.excludeOnFailure.unschedulableTaskSetTimeout": "5s",
}

# The memory of Python workers, whose batches are allocated in pieces of some hundred kilobytes. Arrow's allocator
# requests huge pages, and the system blocks the worker until it has freed one: the first use of memory took twice as
# long. The C library returns such pieces each time and gets them again page by page; it may retain this much. Arrow's
# allocator also returns memory at once; here it may retain it for ten seconds, until the next epoch (decisions 0025,
# 0027).
WORKER_ENVIRONMENT: Mapping[str, str] = {
    "MIMALLOC_PURGE_DELAY": "10000",
    "MIMALLOC_ALLOW_THP": "0",
    "MALLOC_MMAP_THRESHOLD_": str(32 << 20),
    "MALLOC_TRIM_THRESHOLD_": str(64 << 20),
}

SESSION_SETTINGS: Mapping[str, str] = {
    # Adaptive execution merges shuffle partitions: a task would receive the envelopes of several subtasks.
    "spark.sql.adaptive.enabled": "false",
    # Our plans are trivial and the work is in Python: compiling Java for them only costs time.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    # An envelope holds a whole block, so few of them make a large Arrow batch.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "64",
    "spark.sql.execution.arrow.maxBytesPerBatch": "16m",
    "spark.sql.classic.shuffleDependency.fileCleanup.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "false",
}


def check_platform() -> None:
    """Requires Java 17 or 21 and PySpark 4.3; the error explains how to install them."""
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
    """Whether this process has a JVM with a Spark application, so that a session is available at once."""
    return SparkContext._active_spark_context is not None


def make_session(master: str, settings: Mapping[str, str], log: Path | None = None) -> SparkSession:
    """The application's session, started now if this process has none. The JVM's output goes to `log`."""
    _import_pandas()
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    check_platform()
    _quiet_py4j()
    master = chosen_master(master, settings)
    address = None if is_one_machine(master) else reach_master(master)
    cluster = {} if address is None else {"spark.driver.host": address}
    cluster |= _failure_settings(master, {**_submit_settings(), **settings})
    os.environ["PYSPARK_PYTHON"] = _interpreter_of_tasks(master, settings)
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    # Local workers import modules next to the user's program, as the program itself does; to others they are sent.
    module_paths = [path for path in (sys.path[0], os.environ.get("PYTHONPATH", "")) if path]
    os.environ["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(os.pathsep.join(module_paths).split(os.pathsep)))
    builder: Any = SparkSession.builder
    builder = builder.master(master).appName("millstream")
    chosen = {
        **APPLICATION_SETTINGS,
        **_worker_environment(),
        **_shuffle_dir(master, settings),
        **cluster,
        **_submit_settings(),
        **settings,
    }
    log = log or fresh_log("spark")
    with _screen_to(log), _address_for(master), private_jvm_start(chosen) as public:
        for key, value in public.items():
            builder = builder.config(key, value)
        session = abandon_on_interrupt(partial(_start, builder, master, log))
    session.sparkContext.setLogLevel("WARN")
    # The session is active only in the thread that created it; the program expects it to be active in this one too.
    SparkSession._get_j_spark_session_class(session._jvm).setActiveSession(session._jsparkSession)
    return session


def _quiet_py4j() -> None:
    """Raises py4j's log level to WARNING: at INFO, it would log every closed connection to the JVM. A level set by the
    program is respected."""
    logger = logging.getLogger("py4j")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)


def _import_pandas() -> None:
    """Imports pandas, which Spark imports when it creates the first plan. Two jobs that start concurrently would do so
    in two threads, and one could see a partially initialised module."""
    with _IMPORTING, suppress(ImportError):
        import pandas  # noqa: F401


def _worker_environment() -> dict[str, str]:
    """Memory settings for the environment of tasks' processes; values in the program's environment take precedence."""
    return {f"spark.executorEnv.{key}": os.environ.get(key, value) for key, value in WORKER_ENVIRONMENT.items()}


_UNRESPONSIVE = "All masters are unresponsive"
"""Spark writes this only to its log, when no master has accepted the application within a minute."""


def _failure_settings(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Settings for a cluster, unless the user sets others: when an executor is lost, and when a task is retried on
    another."""
    chosen: dict[str, str] = {}
    if not any(key in SILENCE_SETTINGS or key == "spark.network.timeout" for key in settings):
        chosen.update(SILENCE_SETTINGS)
    if not any("excludeOnFailure" in key or key == "spark.task.maxFailures" for key in settings):
        chosen.update(EXCLUSION_SETTINGS)
    return {} if is_one_machine(master) else chosen


def _start(builder: Any, master: str, log: Path) -> SparkSession:
    try:
        session: SparkSession = builder.getOrCreate()
        return session
    except Exception as error:
        if is_one_machine(master):
            raise
        if "stopped SparkContext" in str(error):
            is_registered = _UNRESPONSIVE not in log.read_text(errors="replace")
            raise application_ended_error(master, is_registered=is_registered) from error
        lines = str(error).strip().splitlines() or [type(error).__name__]
        # The JVM's message follows a line about the call.
        reason = next((line.removeprefix(": ") for line in lines if line.startswith(": ")), lines[0])
        raise PlatformError(
            f"Spark could not start an application on master {master} ({reason}). Check that a Spark master listens "
            "there, and that it reaches this machine (spark.driver.host, spark.driver.port)"
        ) from error


def chosen_master(master: str, settings: Mapping[str, str]) -> str:
    """The effective master: the program's or spark-submit's spark.master takes precedence."""
    return settings.get("spark.master") or _submit_settings().get("spark.master") or master


def _submit_settings() -> dict[str, str]:
    """The settings of spark-submit, if it started this program; its JVM is already running."""
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return {}
    SparkContext._ensure_initialized()
    return {key: value for key, value in SparkConf().getAll() if key != "spark.app.name"}


def _interpreter_of_tasks(master: str, settings: Mapping[str, str]) -> str:
    """The Python interpreter of tasks. On this machine it is the driver's own, with its packages, not any `python3`.
    On a cluster it is the one that the user specifies, or `python3.x` of the driver's version on the executors."""
    if is_one_machine(master):
        return sys.executable
    named = {**_submit_settings(), **settings}.get("spark.pyspark.python") or _USERS_PYTHON
    return named or f"python{sys.version_info[0]}.{sys.version_info[1]}"


def separate_session(session: SparkSession) -> SparkSession:
    """A separate session in the user's application, after checking that the application is safe to run on."""
    if not session.version.startswith(PYSPARK_SERIES + "."):
        raise PlatformError(f"the Spark session is version {session.version}, Millstream needs {PYSPARK_SERIES}")
    if session.sparkContext.getConf().get("spark.python.worker.reuse", "true") != "true":
        raise PlatformError(
            "spark.python.worker.reuse is false: every epoch would reopen every function. "
            "Start the session with it true (the default)"
        )
    separate = session.newSession()
    for key, value in SESSION_SETTINGS.items():
        separate.conf.set(key, value)
    return separate


def _shuffle_dir(master: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Puts shuffle files in memory if all tasks run on this machine and the user sets no folder."""
    if not is_one_machine(master) or "spark.local.dir" in settings or os.environ.get("SPARK_LOCAL_DIRS"):
        return {}
    folder = fresh_shuffle_folder()
    return {} if folder is None else {"spark.local.dir": str(folder.path)}


def local_folder_of(session: SparkSession) -> str:
    """Spark's folder of temporary files, as far as the driver knows; machines of a cluster may use others."""
    settings = session.sparkContext.getConf()
    return os.environ.get("SPARK_LOCAL_DIRS") or settings.get("spark.local.dir", "") or tempfile.gettempdir()


def memory_folder_of(session: SparkSession) -> str | None:
    """The in-memory folder that we configured for shuffle files, which exists only if all tasks run on this machine.
    None if the user configured another folder, or encryption."""
    settings = session.sparkContext.getConf()
    folder = settings.get("spark.local.dir", "") or ""
    is_private = Path(folder).name.startswith(SHUFFLE_PREFIX) and Path(folder).is_dir()
    return folder if is_private and settings.get("spark.io.encryption.enabled", "false") != "true" else None


@contextmanager
def _address_for(master: str) -> Iterator[None]:
    """While the JVM starts: binds it to the loopback address if all tasks run on this machine."""
    if "SPARK_LOCAL_IP" in os.environ or not is_one_machine(master):
        yield
        return
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    try:
        yield
    finally:
        # A program started by this one may use a cluster.
        os.environ.pop("SPARK_LOCAL_IP", None)


@contextmanager
def _screen_to(log: Path) -> Iterator[None]:
    """While the JVM starts it inherits our output streams: redirects them permanently to a file."""
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
