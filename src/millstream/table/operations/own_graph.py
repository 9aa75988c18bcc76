"""A graph for one job of tables: what its plan adds, and what of the program's streams it reads, but nothing else.

Streams that the program has begun and not yet executed stay in its environment: a query is a job of its own. So is its
store. The one that the environment was given is for the first INSERT of a program; the second has its name with `-2`
behind it, and so on: the same program, started again, finds each job's own. A query that the program only looks at
begins anew every time, in a store that is gone with it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from contextlib import contextmanager

from millstream.common.configuration import Configuration
from millstream.common.options import STORE
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.graph.builder import GraphBuilder

__all__ = ["own_graph"]


@contextmanager
def own_graph(environment: StreamExecutionEnvironment, job_number: int | None) -> Iterator[GraphBuilder]:
    """Let the environment build another job inside the block, beside what it has. `job_number`: which INSERT of the
    program it is, from 1; None: nobody goes on from it."""
    program, settings = environment._builder, environment._configuration
    environment._builder = program.beside()
    environment._configuration = Configuration(settings)
    store = settings.get_string(STORE.key, None)
    if store is not None and job_number != 1:
        # Beside the one that was given: where that is, tasks can reach it.
        ending = f"query-{secrets.token_hex(4)}" if job_number is None else str(job_number)
        environment._configuration.set_string(STORE.key, f"{store.rstrip('/')}-{ending}")
    try:
        yield environment._builder
    finally:
        environment._builder, environment._configuration = program, settings
