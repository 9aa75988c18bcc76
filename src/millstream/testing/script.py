"""A source that follows a script of records, epochs, watermarks, pauses and crashes.

    Script([1, 2, EPOCH, 3, CRASH, 4, Watermark(10), 5])

Every item is a record, except these marks:

- `EPOCH` ends the running epoch; the following items belong to the next.
- `Watermark(t)` sets the source's own event time to `t` ms and ends the epoch, because event time moves between epochs:
  the following items see it.
- `CRASH` makes the task fail at this item, once. The preceding records of its epoch have been sent by then and are read
  again after the restart; the second time the mark is skipped.
- `Pause(ms)` ends the epoch and advances the script's `ManualClock` by `ms` before the following items.

The offset of a split is the index of the next item, so a script can be replayed from any position, as a source must.
The job's store records that a crash has happened: this works in any process that runs the task, on Spark too.
"""

from __future__ import annotations

import copy
import secrets
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from millstream.common.typeinfo import TypeInformation
from millstream.connectors.contracts import Offset, Read, Source, SourceContext, Split
from millstream.errors import ProgramError
from millstream.graph.site import refuse
from millstream.records.watermarks import MIN_WATERMARK
from millstream.storage.store import Store
from millstream.testing.manual_clock import ManualClock

__all__ = ["CRASH", "EPOCH", "Mark", "Pause", "Script", "ScriptedCrash", "Watermark"]


class Mark(Enum):
    """Marks without a value. An enum, because its members keep their identity when shipped to a task."""

    CRASH = "crash"
    EPOCH = "epoch"


CRASH = Mark.CRASH
EPOCH = Mark.EPOCH


@dataclass(frozen=True)
class Watermark:
    """No following record is older than `timestamp_ms`."""

    timestamp_ms: int


@dataclass(frozen=True)
class Pause:
    """Processing time passes."""

    ms: int


class ScriptedCrash(RuntimeError):
    """The failure raised by `CRASH`."""


class Script(Source):
    """A bounded source that yields `items` and obeys their marks. Further lists are further splits.

    >>> script = Script(["a", "b", EPOCH, "c"])
    >>> context = SourceContext(now_ms=0, run_started_ms=0, parallelism=1)
    >>> [split] = script.splits(context)
    >>> script.reach(split, 0, budget=100, context=context)
    3
    >>> list(script.read(split, 0, 3))
    [['a', 'b']]
    """

    bounded = True

    def __init__(
        self,
        items: Iterable[Any],
        *more_splits: Iterable[Any],
        type_info: TypeInformation | None = None,
        clock: ManualClock | None = None,
    ) -> None:
        for split in (items, *more_splits):
            if isinstance(split, str | bytes) or not isinstance(split, Iterable):
                raise refuse(
                    f"Script: found {split!r} ({type(split).__name__}), expected a list of items for each split"
                )
        self._items = tuple(tuple(split) for split in (items, *more_splits))
        self.type_info = type_info
        self.single = len(self._items) == 1
        self._clock = clock
        self._pauses_over: set[tuple[int, int]] = set()
        self._has_watermarks = any(isinstance(item, Watermark) for split in self._items for item in split)
        self._id = secrets.token_hex(4)
        self._store: Store | None = None
        self._replays = False
        if clock is None and any(isinstance(item, Pause) for split in self._items for item in split):
            raise ProgramError("Script: a Pause needs a clock to move. Pass clock=, the ManualClock given to run()")

    @property
    def crashes(self) -> int:
        """The number of crashes in the script."""
        return sum(item is CRASH for split in self._items for item in split)

    def splits(self, context: SourceContext) -> Sequence[Split]:
        return [Split(f"script-{number}", 0, number) for number in range(len(self._items))]

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        items, index, records = self._items[split.info], offset, 0
        while index < len(items):
            item = items[index]
            if isinstance(item, Pause):
                if index > offset:
                    break
                self._pause(split.info, index, item.ms)
            elif _is_record(item):
                if records == budget:
                    break
                records += 1
            index += 1
            if item is EPOCH or isinstance(item, Watermark):
                break
        return index

    def _pause(self, split: int, index: int, ms: int) -> None:
        """Pause once, no matter how often the epoch after the pause is planned."""
        assert self._clock is not None
        if (split, index) not in self._pauses_over:
            self._pauses_over.add((split, index))
            self._clock.advance(ms)

    def finished(self, split: Split, offset: Offset) -> bool:
        return bool(offset >= len(self._items[split.info]))

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        records: list[Any] = []
        for index in range(start, stop):
            item = self._items[split.info][index]
            if _is_record(item):
                records.append(item)
            elif item is CRASH and self._first_time(split, index):
                # The preceding records have been sent when the task dies, as in a real crash.
                if records:
                    yield records
                raise ScriptedCrash(f"the script crashes at item {index} of split {split.name}")
        if records:
            yield records
        return stop

    def _first_time(self, split: Split, index: int) -> bool:
        if self._replays:
            return False
        if self._store is None:
            return True
        return self._store.create(f"scripts/{self._id}/{split.name}-{index}", b"crashed")

    def watermark(self, split: Split, offset: Offset) -> int | None:
        if not self._has_watermarks:
            return None
        passed = self._items[split.info][:offset]
        return max((item.timestamp_ms for item in passed if isinstance(item, Watermark)), default=MIN_WATERMARK)

    def opened(self, store: Store, session: Any) -> Source:
        opened = copy.copy(self)
        opened._store = store
        opened._pauses_over = set()
        return opened

    def reopened(self, store: Store, session: Any) -> Source:
        """Open for the replay of a committed epoch: crashes are skipped."""
        reopened = copy.copy(self)
        reopened._replays = True
        return reopened

    def describe(self) -> str:
        return f"script of {sum(len(split) for split in self._items)} items"


def _is_record(item: Any) -> bool:
    return not isinstance(item, (Mark, Watermark, Pause))
