"""What brings records in and takes them out: the contracts, and one module or folder per system.

`contracts` says what a source and a sink promise. Everything else in this package is one of the two.
"""

from __future__ import annotations

from millstream.connectors.contracts import Sink, SinkWriter, Source, SourceContext, Split, WriterContext
from millstream.connectors.two_phase import TwoPhaseSink

__all__ = ["Sink", "SinkWriter", "Source", "SourceContext", "Split", "TwoPhaseSink", "WriterContext"]
