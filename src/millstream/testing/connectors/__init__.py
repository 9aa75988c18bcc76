"""Checks custom sources and sinks: replay, exactly-once output, clear errors.

    check_source(source)                              everything a source promises
    check_sink(make, read, records=[...])             everything a sink promises
    Broken(what, make, says=(...))                    a connector that must fail, and the words its error must have

Each returns a `Report` whose text lists every check in a sentence, and raises `ConnectorCheckError` with that text if a
promise is broken. No pytest is needed; in a test the call alone is the test.
"""

from __future__ import annotations

from millstream.testing.connectors.clear_errors import Broken
from millstream.testing.connectors.report import Check, ConnectorCheckError, Report
from millstream.testing.connectors.sink_kit import check_sink
from millstream.testing.connectors.source_kit import check_source

__all__ = ["Broken", "Check", "ConnectorCheckError", "Report", "check_sink", "check_source"]
