"""Tracks the cached streams of an environment: which caches are complete, and their locations.

A cached stream is a separate node. For every job the environment sets where each cache can be read, or where the job
can write it; the compiler replaces the node (`compiler.passes.fill_caches`). Every job writes caches to a separate
folder, and the first complete one is used, so failed or concurrent jobs do no harm.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
import weakref
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from millstream.graph.nodes import Cache, Graph, Node
from millstream.runtime.exchange.cached_blocks import CachedSource, CacheSink, cached_source
from millstream.storage.store import open_store

__all__ = ["EnvironmentCaches"]


class EnvironmentCaches:
    """`directory` returns the location of caches; None means a temporary folder of the machine."""

    def __init__(self, directory: Callable[[], str | None]) -> None:
        self._directory = directory
        self._urls: defaultdict[int, list[str]] = defaultdict(list)  # folders written by jobs, by stream
        self._root: str | None = None

    def offered(self, graph: Graph) -> Graph:
        """The graph with the location from which each cached stream is read, or to which it is written."""
        return replace(graph, nodes=tuple(map(self._offered, graph.nodes)))

    def _offered(self, node: Node) -> Node:
        cache = node.operation
        if not isinstance(cache, Cache):
            return node
        source = self._source(node, cache)
        if source is not None:
            return replace(node, operation=replace(cache, source=source))
        url = f"{self._folder()}/{secrets.token_hex(8)}"
        self._urls[cache.node].append(url)
        return replace(node, operation=replace(cache, sink=CacheSink(url, node.name)))

    def _source(self, node: Node, cache: Cache) -> CachedSource | None:
        sources = (cached_source(url, node.name, node.output_type) for url in self._urls[cache.node])
        return next((source for source in sources if source is not None), None)

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
        """Removes the caches of a stream; the next job that uses it computes it again."""
        for url in self._urls.pop(id, []):
            _empty(url)

    def close(self) -> None:
        """Removes all caches."""
        for id in list(self._urls):
            self.invalidate(id)


def _empty(url: str) -> None:
    if "://" not in url:
        shutil.rmtree(Path(url), ignore_errors=True)
        return
    store = open_store(url)
    for name in store.list(""):
        store.delete(name)
