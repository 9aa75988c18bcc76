"""Drives a source that must fail, epoch after epoch, up to a time limit."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from millstream.connectors.contract_checks import is_complete, is_finished, opened_source
from millstream.connectors.contracts import SourceContext
from millstream.datastream.functions.source_and_sink import JavaFunctionWrapper
from millstream.storage.local import LocalStore
from millstream.testing.connectors.clear_errors import Broken, check_error
from millstream.testing.connectors.source_ranges import SourceReader

__all__ = ["error_of"]

_EVERYTHING = 1_000_000
_PAUSE_S = 0.05


def error_of(broken: Broken, session: Any, secrets: Sequence[str]) -> Callable[[], str]:
    """The check that `broken`, used as a driver uses it, fails with a clear error."""

    def use(source: Any) -> None:
        engine = source._connector if isinstance(source, JavaFunctionWrapper) else source
        with tempfile.TemporaryDirectory(prefix="millstream-kit-") as folder:
            context = SourceContext(now_ms=1_000_000, run_started_ms=1_000_000, parallelism=1, uid="source")
            ready = opened_source(engine, LocalStore(Path(folder), fsync=False), session)
            try:
                _ask_until(time.monotonic() + broken.within_s, SourceReader(ready, context))
            finally:
                ready.close()

    return lambda: check_error(broken, use, secrets)


def _ask_until(deadline: float, reader: SourceReader) -> None:
    """Poll as a driver does, epoch after epoch, until the input ends: a source may wait in case a failure is
    transient."""
    positions: dict[str, Any] = {}
    while time.monotonic() < deadline:
        splits = reader.splits()
        for split in splits:
            walk = reader.walk(split, _EVERYTHING, 3, start=positions.get(split.name, split.start))
            positions[split.name] = walk.ranges[-1].end if walk.ranges else positions.get(split.name, split.start)
        is_over = all(is_finished(reader.source, split, positions[split.name]) for split in splits)
        if is_over and is_complete(reader.source, reader.context):
            return
        time.sleep(_PAUSE_S)
