"""Connectors: the contracts of sources and sinks, and one module or package per external system.

`contracts` defines the promises of a source and of a sink. Everything else in this package implements one of them.
"""

from __future__ import annotations

from millstream.connectors.contracts import Sink, SinkWriter, Source, SourceContext, Split, WriterContext
from millstream.connectors.two_phase import TwoPhaseSink

__all__ = ["Sink", "SinkWriter", "Source", "SourceContext", "Split", "TwoPhaseSink", "WriterContext"]
