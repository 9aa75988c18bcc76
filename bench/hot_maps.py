"""A map state of one key, over a store in a folder: epochs of one operator in this process, without Spark."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any

import psutil

from millstream.common.typeinfo import Types
from millstream.datastream.state import MapStateDescriptor
from millstream.runtime.keyed.keyed_backend import KeyedBackend
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.stored.accounts import SubtaskAccount
from millstream.state.tables.state_table import TableSetting
from millstream.storage import open_store

__all__ = ["HotMap"]

_LOADED_AT_ONCE = 100_000
_SAMPLED_EVERY = 20_000


class HotMap:
    """This many entries, loaded in epochs of 100,000."""

    def __init__(self, folder: str, entries: int) -> None:
        self._entries = entries
        self._segments = OpenSegments(open_store(folder))
        self._account, self._epoch = SubtaskAccount(), 0
        self._random = random.Random(1)
        for start in range(0, entries, _LOADED_AT_ONCE):
            part = range(start, min(start + _LOADED_AT_ONCE, entries))
            self._run(lambda state, part=part: state.put_all({number: number for number in part}))

    def touched_s(self, touched: int) -> float:
        """The processor time of an epoch that reads and writes this many scattered entries."""
        numbers = self._random.choices(range(self._entries), k=touched)

        def touch(state: Any) -> None:
            for number in numbers:
                state.put(number, state.get(number) + 1)

        started = time.process_time()
        self._run(touch)
        return time.process_time() - started

    def passed_bytes(self) -> int:
        """The growth of the process's private memory while a function iterates over the whole map."""
        process = psutil.Process()

        def go_through(state: Any) -> int:
            before, most = process.memory_full_info().uss, 0
            for at, _ in enumerate(state.items()):
                if at % _SAMPLED_EVERY == 0:
                    most = max(most, process.memory_full_info().uss - before)
            return most

        return int(self._run(go_through))

    def _run(self, function: Callable[[Any], Any]) -> Any:
        self._epoch += 1
        backend = KeyedBackend("op", Types.STRING(), 1, 128, 0)
        state = backend.get_map_state(MapStateDescriptor("map", Types.LONG(), Types.LONG()))
        nonce = f"n{self._epoch}"
        backend.begin(TableSetting("op", self._epoch, 0, nonce, range(128), 0, self._segments), {0: self._account})
        backend.visit(backend.column(["hot"]), ["hot"])
        backend.scope.enter(0)
        result = function(state)
        self._account = backend.end(0)
        return result
