"""What a server serves: a job's states at its epochs, as `millstream.query` gives them, seen through narrow protocols."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import pyarrow as pa

from millstream.query.window_reads import WindowView
from millstream.query.wire.served_state import ServedState

__all__ = ["ServedEpoch", "ServedJob"]


class ServedEpoch(Protocol):
    """One committed epoch; close it where it was asked for by number or time."""

    @property
    def epoch(self) -> int:
        """Its number."""

    @property
    def watermark(self) -> int | None:
        """Event time, in milliseconds."""

    @property
    def committed_ms(self) -> int:
        """When it was committed, by the clock of the job's driver."""

    def get(self, state: str, key: Any) -> Any:
        """The value, or None."""

    def get_many(self, state: str, keys: Sequence[Any]) -> list[Any]:
        """The values in the order of the keys."""

    def get_columns(self, state: str, keys: pa.Array) -> pa.RecordBatch:
        """Columns key, found, value."""

    def windows(self, state: str, key: Any) -> Sequence[WindowView]:
        """The windows still open for a key."""

    def scan(self, state: str, prefix: Any = None, limit: int | None = None) -> pa.RecordBatchReader:
        """Rows of the state."""

    def close(self) -> None:
        """Let it go."""


class ServedJob(Protocol):
    """A job whose states are asked for."""

    @property
    def job(self) -> str:
        """Its name."""

    @property
    def job_id(self) -> str:
        """Its id."""

    def states(self) -> Sequence[ServedState]:
        """What can be asked for."""

    def state(self, name: str) -> ServedState:
        """One of them; an error that says what exists."""

    def newest(self) -> ServedEpoch:
        """The newest committed epoch; never goes backwards. It need not be closed."""

    def at(self, epoch: int | None = None, time_ms: int | None = None) -> ServedEpoch:
        """A retained epoch; to be closed."""

    def series(self, state: str, key: Any) -> Sequence[tuple[int, int, Any]]:
        """The value at every retained epoch, with its number and commit time."""
