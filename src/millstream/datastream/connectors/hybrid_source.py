"""Reading one source to its end and going on with the next, such as files and then Kafka.

Comes with connectors. The names and signatures are PyFlink's, so that programs can be written against them; making
or calling any of them says that it is not built yet, and what does the job meanwhile.
"""

from __future__ import annotations

from typing import Any

from millstream.datastream.connectors.base import Source
from millstream.errors import NotYetError

__all__ = [
    "HybridSource",
    "HybridSourceBuilder",
]

_INSTEAD = "union() of the sources, which reads them side by side"


def _not_yet(name: str) -> NotYetError:
    return NotYetError.of(name, "connectors", _INSTEAD)


class HybridSource(Source):
    """PyFlink's `HybridSource`; not built yet."""

    def __init__(self, j_hybrid_source: Any = None) -> None:
        raise _not_yet("HybridSource")

    @staticmethod
    def builder(first_source: Any = None) -> Any:
        raise _not_yet("HybridSource.builder")


class HybridSourceBuilder:
    """PyFlink's `HybridSourceBuilder`; not built yet."""

    def __init__(self, j_hybrid_source_builder: Any = None) -> None:
        raise _not_yet("HybridSourceBuilder")

    def add_source(self, source: Any = None) -> Any:
        raise _not_yet("HybridSourceBuilder.add_source")

    def build(self) -> Any:
        raise _not_yet("HybridSourceBuilder.build")
