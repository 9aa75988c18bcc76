"""A separate graph for one table job: only the nodes of its plan, and the program's streams that it reads.

Streams that the program has built but not executed remain in its environment, because a query is a separate job with a
separate store (`table/operations/job_stores.py`). A query whose rows the program collects always starts empty, in a
store that is removed when it ends.
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
    """Makes the environment build a separate job inside the block, in this store if given."""
    program, settings = environment._builder, environment._configuration
    environment._builder = program.separate_job()
    environment._configuration = Configuration(settings)
    if store is not None:
        environment._configuration.set_string(STORE.key, store)
    try:
        yield environment._builder
    finally:
        environment._builder, environment._configuration = program, settings
