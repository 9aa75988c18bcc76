"""The cached streams of an environment: which are computed already, where, and what that does to the next job's graph.

A cached stream is a node of its own. As long as there is no cache, a job that has the node computes what is above it
and writes the records beside; afterwards a source stands in the node's place, and what is above it is no part of later
jobs. Every job that fills a cache has a folder of its own, and the first that was filled counts: a job that failed, or
two that run at once, do no harm.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from millstream.errors import ProgramError
from millstream.graph.nodes import Cache, Edge, Graph, GraphBuilder, Node, Read, Write
from millstream.runtime.exchange.cached_blocks import CachedSource, CacheSink, cached_source
from millstream.storage.store import open_store

__all__ = ["EnvironmentCaches"]


@dataclass
class _Kept:
    """One cached stream: its node as the program made it, and the folders that jobs fill or have filled."""

    node: Node
    urls: list[str] = field(default_factory=list)


class EnvironmentCaches:
    """`directory` tells where the caches go; None: into a folder of the machine for temporary files."""

    def __init__(self, builder: GraphBuilder, directory: Callable[[], str | None]) -> None:
        self._builder = builder
        self._directory = directory
        self._kept: dict[int, _Kept] = {}
        self._root: str | None = None

    def add(self, node: Node) -> None:
        """Remember a node that was made for a cached stream."""
        self._kept[node.id] = _Kept(node)

    def use(self) -> None:
        """Put sources in the place of what is cached by now, and only of that."""
        for id, kept in self._kept.items():
            source = self._source(kept)
            name = f"Source: {kept.node.name}"
            node = kept.node if source is None else replace(kept.node, operation=Read(source), inputs=(), name=name)
            self._builder.nodes[id] = node

    def _source(self, kept: _Kept) -> CachedSource | None:
        found = (cached_source(url, kept.node.name, kept.node.output_type) for url in kept.urls)
        return next((source for source in found if source is not None), None)

    def filled(self, graph: Graph) -> Graph:
        """The graph with a sink for every cached stream that it computes."""
        caches = [node for node in graph.nodes if isinstance(node.operation, Cache)]
        if caches:
            _check_it_ends(graph, caches[0])
        sinks: list[Node] = []
        for node in caches:
            assert isinstance(node.operation, Cache)
            url = f"{self._folder()}/{secrets.token_hex(8)}"
            self._kept[node.operation.node].urls.append(url)
            sink = Write(CacheSink(url, node.name))
            id = len(graph.nodes) + len(sinks) + 1
            inputs = (Edge(node.id),)
            sinks.append(Node(id, sink, "Sink: Cache", inputs=inputs, parallelism=node.parallelism, site=node.site))
        return replace(graph, nodes=(*graph.nodes, *sinks))

    def _folder(self) -> str:
        if self._root is None:
            directory = self._directory()
            if directory is None:
                self._root = tempfile.mkdtemp(prefix="millstream-cache-")
                weakref.finalize(self, shutil.rmtree, self._root, ignore_errors=True)
            else:
                self._root = f"{directory.rstrip('/')}/cache-{secrets.token_hex(4)}"
                weakref.finalize(self, _empty, self._root)
        return self._root

    def invalidate(self, id: int) -> None:
        """Remove what is cached of a stream; the next job that has it computes it anew."""
        for url in self._kept[id].urls:
            _empty(url)
        self._kept[id].urls.clear()

    def close(self) -> None:
        """Remove all caches."""
        for id in self._kept:
            self.invalidate(id)


def _empty(url: str) -> None:
    if "://" not in url:
        shutil.rmtree(Path(url), ignore_errors=True)
        return
    store = open_store(url)
    for name in store.list(""):
        store.delete(name)


def _check_it_ends(graph: Graph, cache: Node) -> None:
    for node in graph.nodes:
        if isinstance(node.operation, Read) and not node.operation.source.bounded:
            raise ProgramError(
                f"cache: '{node.name}' ({node.site}) never ends, so the cached stream would never be whole. Cache only "
                "in jobs over bounded input, or write the stream to a sink",
                at=str(cache.site),
            )
