"""A graph for one job of tables: the nodes of its plan, and the program's streams that it reads, but nothing else.

Streams that the program has built but not executed remain in its environment: a query is a separate job, with a
separate store (`table/operations/job_stores.py`). A query whose rows the program collects starts from scratch every
time, in a store that is removed with it.
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
    """Lets the environment build a separate job inside the block, with this store if any."""
    program, settings = environment._builder, environment._configuration
    environment._builder = program.separate_job()
    environment._configuration = Configuration(settings)
    if store is not None:
        environment._configuration.set_string(STORE.key, store)
    try:
        yield environment._builder
    finally:
        environment._builder, environment._configuration = program, settings
