"""What a server serves: a job's states at its epochs, as `millstream.query` gives them, seen through narrow protocols.

The server knows nothing of stores and segments. It asks a `ServedJob` for an epoch and the epoch for values, and all
values of one answer come from one epoch. Whether a key group belongs to this server is asked here too, by the hash that
the job itself uses.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.query.window_reads import WindowView
from millstream.records.columns import arrow_type
from millstream.state.keys.key_columns import is_stored_as_is, key_column, key_column_of_arrow
from millstream.state.schemas.saved_types import type_from

__all__ = ["ServedEpoch", "ServedJob", "ServedState"]


@dataclass(frozen=True)
class ServedState:
    """A queryable state. Types are as a manifest writes them: "LONG", {"row": [...]}, "PICKLED" for none.

    `key_groups` is how many there are, the maximum parallelism of the operator; 0 where keys cannot be told apart so.
    """

    name: str
    kind: str
    key_type: Any
    value_type: Any
    is_pickled: bool
    key_groups: int

    def groups_of(self, keys: Sequence[Any]) -> list[int]:
        """The key group of every key.

        >>> ServedState("totals", "value", "STRING", "LONG", False, 128).groups_of(["a", "b"])
        [76, 83]
        """
        groups: list[int] = key_column(list(keys), self._declared).groups(self.key_groups).tolist()
        return groups

    def groups_of_column(self, keys: pa.Array) -> list[int]:
        """The key group of every key of a column; without a loop over the keys where it is of their declared type."""
        declared = self._declared
        if declared is None or not is_stored_as_is(declared) or keys.type != arrow_type(declared):
            return self.groups_of(keys.to_pylist())
        groups: list[int] = key_column_of_arrow(keys).groups(self.key_groups).tolist()
        return groups

    def column(self, keys: Sequence[Any]) -> pa.Array:
        """Keys as a column of their declared type."""
        return pa.array(keys, None if self._declared is None else arrow_type(self._declared))

    @property
    def _declared(self) -> TypeInformation | None:
        return None if self.key_type == "PICKLED" else type_from(self.key_type, f"the key of '{self.name}'")


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
