"""Properties of Spark masters: whether tasks run on this machine only, and whether the master can be reached.

Features that require a single machine depend on this: the loopback address, shuffle files in memory, stores in a local
folder.
"""

from __future__ import annotations

import re
import socket
from typing import Any

from millstream.common.options import STORE_SHARED
from millstream.errors import ConfigurationError, PlatformError

__all__ = [
    "application_ended_error",
    "application_lost_error",
    "check_store_reachable",
    "has_ended",
    "is_one_machine",
    "is_one_process",
    "reach_master",
]

_ONE_MACHINE = re.compile(r"local(\[.*\])?|local-cluster\[.*\]")
_CONNECT_S = 10.0


def application_ended_error(master: str, *, is_registered: bool = True) -> PlatformError:
    """The error of an application that the cluster removed, or that no master accepted."""
    if not is_registered:
        return PlatformError(
            f"the process listening at master {master} does not respond like a Spark master. Check that it is one, of "
            "this version, and that it reaches this machine (spark.driver.host, spark.driver.port)"
        )
    return PlatformError(
        f"master {master} has ended the application, because its executors could not be started. Their logs on the "
        "workers give the reason (a local folder that is not writable, a missing Java)"
    )


def has_ended(context: Any) -> bool:
    """Whether a Spark context has ended: stopped, removed by its cluster, or lost with its JVM."""
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except Exception:
        return True  # the JVM no longer responds


def application_lost_error(master: str) -> PlatformError:
    """The error of an application that ended during a job. Restarting the job cannot help: it has no Spark."""
    return PlatformError(
        f"Spark's application on master {master} has ended during the job: its session was stopped, the driver's JVM "
        "has died, or the cluster has removed it (its page and the JVM's log give the reason). Nothing is lost: start "
        "the job again in a new process, and it continues from its newest epoch"
    )


def reach_master(master: str) -> str | None:
    """This machine's address as seen by a standalone master, which can use it to connect back; None for other masters.

    Raises PlatformError if nothing listens there: Spark would retry for a minute, and report it only in its log.
    """
    if not master.startswith("spark://"):
        return None
    refusals = []
    for place in master.removeprefix("spark://").split(","):
        host, _, port = place.rpartition(":")
        try:
            with socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S) as connection:
                return str(connection.getsockname()[0])
        except ValueError:
            raise ConfigurationError(f"master {master}: found {place!r}, expected HOST:PORT after spark://") from None
        except OSError as error:
            refusals.append(f"{place}: {error}")
    raise PlatformError(
        f"master {master} cannot be reached from here ({'; '.join(refusals)}). Check that it runs, and that its "
        "address and port are those on its page; or omit --master to run on this machine"
    )


def is_one_machine(master: str) -> bool:
    """Whether all tasks run on the driver's machine.

    >>> [is_one_machine(master) for master in ("local[4]", "local-cluster[2,1,1024]", "spark://a:7077", "yarn")]
    [True, True, False, False]
    """
    return _ONE_MACHINE.fullmatch(master.strip()) is not None


def is_one_process(master: str) -> bool:
    """Whether all tasks run in the driver's JVM.

    >>> [is_one_process(master) for master in ("local[4]", "local-cluster[2,1,1024]", "spark://a:7077", "yarn")]
    [True, False, False, False]
    """
    return re.fullmatch(r"local(\[.*\])?", master.strip()) is not None


def check_store_reachable(url: str, master: str, *, shared: bool) -> None:
    """Rejects a store that the master's tasks cannot reach; `shared`: all machines have the folder at this path.

    >>> check_store_reachable("file:///jobs/clicks", "spark://a:7077", shared=False)
    Traceback (most recent call last):
    millstream.errors.ConfigurationError: store file:///jobs/clicks is a folder of this machine, but tasks of master \
spark://a:7077 run on others. Use a --store in an object store; or, if the folder is mounted at this path on every \
machine, set millstream.store.shared to true
    """
    if url.startswith("memory:"):
        raise ConfigurationError(
            f"store {url} is in this process's memory, but Spark's tasks (master {master}) run in other processes. "
            "Use a --store that is a folder or in an object store"
        )
    if url.startswith("file:") and not shared and not is_one_machine(master):
        raise ConfigurationError(
            f"store {url} is a folder of this machine, but tasks of master {master} run on others. Use a --store in "
            "an object store; or, if the folder is mounted at this path on every machine, set "
            f"{STORE_SHARED.key} to true"
        )
