"""Runs jobs of tables, or of streams, in this process: a program inside the block runs without Spark.

The real engine runs, with tasks called one after another, as in `run`. A job has a store in memory unless its program
names one (`millstream.store`). For programs that execute their jobs themselves, as table programs do.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from millstream.datastream.environment.launch_defaults import with_job_receiver
from millstream.graph.nodes import Graph
from millstream.jobs.clock import Clock, SystemClock
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.jobs.settings.job_settings import JobSettings
from millstream.runtime.task.local import LocalRunner
from millstream.storage.memory import MemoryStore
from millstream.storage.store import open_store

__all__ = ["jobs_in_memory"]


@contextmanager
def jobs_in_memory(clock: Clock | None = None) -> Iterator[None]:
    """Run the jobs executed inside the block in this process, without Spark.

    >>> from millstream.table import EnvironmentSettings, TableEnvironment
    >>> with jobs_in_memory():
    ...     t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    ...     t_env.execute_sql("SELECT 40 + 2 AS answer").print()
    +-------------+
    |      answer |
    +-------------+
    |          42 |
    +-------------+
    1 row in set
    """

    def started(graph: Graph, settings: JobSettings) -> Job:
        store = open_store(settings.store) if settings.store else MemoryStore(f"job-{secrets.token_hex(8)}")
        return Launch(clock or SystemClock(), LocalRunner(), store).prepare(graph, settings).start()

    with with_job_receiver(started):
        yield
