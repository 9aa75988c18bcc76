"""`millstream verify`: prints which epochs of a store are intact. Exit code 1 if a file is damaged."""

from __future__ import annotations

import json
import sys
from typing import TextIO

from millstream.checkpoint.verification import StoreReport
from millstream.cli.refusals import refuse
from millstream.errors import MillstreamError
from millstream.state_reader.verifying import verify

__all__ = ["verify_store"]


def verify_store(name: str, *, as_json: bool, screen: TextIO | None = None) -> int:
    """Print the report; returns the exit code."""
    screen = screen or sys.stdout
    try:
        report = _watched(name) if sys.stderr.isatty() else verify(name)
    except MillstreamError as error:
        return refuse(error)
    print(json.dumps(report.to_json()) if as_json else report.text(), file=screen)
    return 0 if report.is_whole else 1


def _watched(name: str) -> StoreReport:
    """Verify, and show the current file in the terminal, because a large store takes a while."""
    from rich.console import Console
    from rich.markup import escape

    with Console(stderr=True).status("reading manifests") as status:
        return verify(name, lambda file: status.update(escape(file)))
