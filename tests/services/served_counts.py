"""A counting job, in memory, as a query server sees it: tests decide when an epoch is committed and with which values.

It replaces `millstream.query`, whose own tests run jobs. Tests with it cover everything between a client and the
library: HTTP, Flight, rights, limits, replicas.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from millstream.query.errors import EpochGoneError, NoEpochError, StateKindError, UnknownStateError
from millstream.query.window_reads import WindowView
from millstream.query.wire.servers import ServedState

GROUPS = 128


@dataclass(frozen=True)
class CountedEpoch:
    """One epoch: the values of every state."""

    epoch: int
    committed_ms: int
    values: dict[str, dict[Any, Any]]
    watermark: int | None = 5_000
    described: dict[str, ServedState] = field(default_factory=dict)
    gate: threading.Event = field(default_factory=threading.Event)
    waiting: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    """Gives one for every `get` that has come to the gate."""
    _portions: list[int] = field(default_factory=list)

    def states(self) -> list[ServedState]:
        return list(self.described.values())

    def state(self, name: str) -> ServedState:
        if name not in self.described:
            raise UnknownStateError(f"job 'counts' has no state {name!r}. It has: {', '.join(self.described)}.")
        return self.described[name]

    def get(self, state: str, key: Any) -> Any:
        self.waiting.release()
        self.gate.wait()
        if state == "open":
            raise StateKindError(f"state '{state}' is windows. Ask for its windows.")
        return self.values.get(state, {}).get(key)

    @property
    def asked(self) -> int:
        """The number of keys read by `get_many` so far."""
        return sum(self._portions)

    def get_many(self, state: str, keys: Sequence[Any]) -> list[Any]:
        self._portions.append(len(keys))
        return [self.get(state, key) for key in keys]

    def get_columns(self, state: str, keys: pa.Array) -> pa.RecordBatch:
        values = self.get_many(state, keys.to_pylist())
        found = pa.array([value is not None for value in values])
        return pa.RecordBatch.from_arrays([keys, found, pa.array(values, pa.int64())], ["key", "found", "value"])

    def windows(self, state: str, key: Any) -> list[WindowView]:
        return [WindowView(0, 10_000, self.values.get(state, {}).get(key))]

    def scan(self, state: str, prefix: Any = None, limit: int | None = None) -> pa.RecordBatchReader:
        rows = sorted((k, v) for k, v in self.values.get(state, {}).items() if k.startswith(prefix or ""))[:limit]
        return pa.table({"key": [k for k, _ in rows], "value": [v for _, v in rows]}).to_reader(1)

    def close(self) -> None:
        pass


class CountedJob:
    """A job with states of texts, numbers, rows, windows, and one that is pickled."""

    job, job_id = "counts", "0f" * 16

    def __init__(self) -> None:
        states = [
            ServedState("totals", "value", "STRING", "LONG", False, GROUPS),
            ServedState("numbers", "value", "LONG", "LONG", False, GROUPS),
            ServedState("pairs", "value", {"tuple": ["STRING", "LONG"]}, "LONG", False, GROUPS),
            ServedState("untyped", "value", "PICKLED", "STRING", False, GROUPS),
            ServedState("things", "value", "STRING", "PICKLED", True, GROUPS),
            ServedState("open", "window", "STRING", "LONG", False, GROUPS),
        ]
        self._states = {state.name: state for state in states}
        self._epochs: list[CountedEpoch] = []
        self.gone = 0  # this many of the first are not retained

    def commit(self, *, is_slow: bool = False, **values: dict[Any, Any]) -> int:
        """Commit an epoch with these values in addition to those of the previous one."""
        number = len(self._epochs) + 1
        before = self._epochs[-1].values if self._epochs else {}
        merged = {name: {**before.get(name, {}), **values.get(name, {})} for name in self._states}
        epoch = CountedEpoch(number, 1_000 * number, merged, described=self._states)
        if not is_slow:
            epoch.gate.set()
        self._epochs.append(epoch)
        return number

    def set_name_in_errors(self, name: str) -> None:
        pass

    def check_ahead(self, bytes_max: int) -> None:
        pass

    def known_newest(self, is_sought: bool = False) -> None:
        """Nothing has a fast path."""

    def newest(self) -> CountedEpoch:
        if not self._epochs:
            raise NoEpochError("job 'counts' has committed nothing yet. Ask again later.")
        return self._epochs[-1]

    def at(self, epoch: int | None = None, time: int | None = None) -> CountedEpoch:
        if epoch is not None and epoch > len(self._epochs):
            raise NoEpochError(f"job 'counts' has no epoch {epoch} yet. Ask again later.")
        for one in reversed(self._epochs[self.gone :]):
            if one.epoch == epoch or (time is not None and one.committed_ms <= time):
                return one
        raise EpochGoneError(f"job 'counts' retains no epoch {epoch}. It has {self.gone + 1} to {len(self._epochs)}.")

    def points(self, state: str, key: Any) -> Iterator[tuple[int, int, Any]]:
        return ((one.epoch, one.committed_ms, one.get(state, key)) for one in self._epochs)

    def close(self) -> None:
        pass
