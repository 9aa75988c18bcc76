"""Where a Spark master runs its tasks: on this machine, or on others too.

What is only right on one machine is asked here: the loopback address, shuffle files in this machine's memory, stores
in a folder of its disk.
"""

from __future__ import annotations

import re

from millstream.common.options import STORE_SHARED
from millstream.errors import ConfigurationError

__all__ = ["check_store_reachable", "is_one_machine", "is_one_process"]

_ONE_MACHINE = re.compile(r"local(\[.*\])?|local-cluster\[.*\]")


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
