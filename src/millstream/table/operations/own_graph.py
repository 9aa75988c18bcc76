"""A graph for one job of tables: what its plan adds, and what of the program's streams it reads, but nothing else.

Streams that the program has begun and not yet executed stay in its environment: a query is a job of its own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.graph.builder import GraphBuilder

__all__ = ["own_graph"]


@contextmanager
def own_graph(environment: StreamExecutionEnvironment) -> Iterator[GraphBuilder]:
    """Let the environment build another job inside the block, beside what it has."""
    program = environment._builder
    environment._builder = program.beside()
    try:
        yield environment._builder
    finally:
        environment._builder = program
