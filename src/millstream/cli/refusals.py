"""Reports that a command failed: a line on standard error, and an exit code (listed in `cli/main.py`)."""

from __future__ import annotations

import sys

from millstream.errors import MillstreamError
from millstream.graph.error_report import show_error

__all__ = ["refuse"]


def refuse(error: MillstreamError, code: int = 2) -> int:
    """Print the error; returns the exit code."""
    show_error(error, sys.stderr)
    return code
