"""The Flink version of the supported Python API. `millstream --version` prints Millstream's own version."""

from __future__ import annotations

__version__ = "2.3.0"
