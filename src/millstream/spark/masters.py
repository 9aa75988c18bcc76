"""Where a Spark master runs its tasks: on this machine, or on others too; and whether and how it can be reached.

What is only right on one machine is asked here: the loopback address, shuffle files in this machine's memory, stores
in a folder of its disk.
"""

from __future__ import annotations

import re
import socket
from typing import Any

from millstream.common.options import STORE_SHARED
from millstream.errors import ConfigurationError, PlatformError

__all__ = [
    "check_store_reachable",
    "ended_application",
    "has_ended",
    "is_one_machine",
    "is_one_process",
    "lost_application",
    "reach_master",
]

_ONE_MACHINE = re.compile(r"local(\[.*\])?|local-cluster\[.*\]")
_CONNECT_S = 10.0


def ended_application(master: str, *, is_registered: bool = True) -> PlatformError:
    """The error of an application that the cluster has given up; or that no master has ever taken."""
    if not is_registered:
        return PlatformError(
            f"what listens at master {master} does not answer as a master of Spark's does. Look whether it is one, of "
            "this version, and whether it reaches this machine (spark.driver.host, spark.driver.port)"
        )
    return PlatformError(
        f"master {master} has ended the application, because its executors could not be started. Their logs, on "
        "the workers, say why (a local folder that cannot be written to, a Java that is missing)"
    )


def has_ended(context: Any) -> bool:
    """Whether a Spark context is over: stopped, given up by its cluster, or gone with its JVM."""
    try:
        return context._jsc is None or bool(context._jsc.sc().isStopped())
    except Exception:
        return True  # nobody is left to be asked


def lost_application(master: str) -> PlatformError:
    """The error of an application that ended under a running job. No restart of the job can help: it has no Spark."""
    return PlatformError(
        f"Spark's application on master {master} has ended under the job: its session was stopped, the driver's JVM "
        "has died, or the cluster has removed it (its page and the JVM's log say why). Nothing is lost: start the job "
        "again, in a new process, and it goes on from its newest epoch"
    )


def reach_master(master: str) -> str | None:
    """The address of this machine that a standalone master is reached from, and so reaches it; None for other kinds.

    Raises PlatformError when nobody listens there: Spark would try for a minute, and say so in its log alone.
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
        f"master {master} cannot be reached from here ({'; '.join(refusals)}). Look whether it runs, and whether its "
        "address and port are those on its page; or leave --master out to run on this machine"
    )


def is_one_machine(master: str) -> bool:
    """Whether all tasks run on the driver's machine.

    >>> [is_one_machine(master) for master in ("local[4]", "local-cluster[2,1,1024]", "spark://a:7077", "yarn")]
    [True, True, False, False]
    """
    return _ONE_MACHINE.fullmatch(master.strip()) is not None


def is_one_process(master: str) -> bool:
    """Whether all tasks run in the driver's JVM: there is nowhere else for a task to run.

    >>> [is_one_process(master) for master in ("local[4]", "local-cluster[2,1,1024]", "spark://a:7077", "yarn")]
    [True, False, False, False]
    """
    return re.fullmatch(r"local(\[.*\])?", master.strip()) is not None


def check_store_reachable(url: str, master: str, *, shared: bool) -> None:
    """Refuse a store that the master's tasks cannot reach; `shared`: all machines have the folder under this name.

    >>> check_store_reachable("file:///jobs/clicks", "spark://a:7077", shared=False)
    Traceback (most recent call last):
    millstream.errors.ConfigurationError: store file:///jobs/clicks is a folder of this machine, but tasks of master \
spark://a:7077 run on others. Give a --store in an object store; or, if the folder is mounted under this name on every \
machine, set millstream.store.shared to true
    """
    if url.startswith("memory:"):
        raise ConfigurationError(
            f"store {url} is in this process's memory, but Spark's tasks (master {master}) run in other processes. "
            "Give a --store that is a folder or in an object store"
        )
    if url.startswith("file:") and not shared and not is_one_machine(master):
        raise ConfigurationError(
            f"store {url} is a folder of this machine, but tasks of master {master} run on others. Give a --store in "
            "an object store; or, if the folder is mounted under this name on every machine, set "
            f"{STORE_SHARED.key} to true"
        )
