"""The version of Flink whose Python API is served. That of Millstream is its package's (`millstream --version`)."""

from __future__ import annotations

__version__ = "2.3.0"
