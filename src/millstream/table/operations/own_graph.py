"""A graph for one job of tables: what its plan adds, and what of the program's streams it reads, but nothing else.

Streams that the program has begun and not yet executed stay in its environment: a query is a job of its own, with a
store of its own (`table/operations/job_stores.py`). A query that the program only looks at begins anew every time, in a
store that is gone with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millstream.common.configuration import Configuration
from millstream.common.options import STORE
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.graph.builder import GraphBuilder

__all__ = ["own_graph"]


@contextmanager
def own_graph(environment: StreamExecutionEnvironment, store: str | None) -> Iterator[GraphBuilder]:
    """Let the environment build another job inside the block, beside what it has, with this store if it has one."""
    program, settings = environment._builder, environment._configuration
    environment._builder = program.separate_job()
    environment._configuration = Configuration(settings)
    if store is not None:
        environment._configuration.set_string(STORE.key, store)
    try:
        yield environment._builder
    finally:
        environment._builder, environment._configuration = program, settings
