"""The parts of segments that a process holds in memory because it cannot map them; the least recently used part goes.

Their number is bounded by bytes. Each part belongs to an owner, which can get it again. A part that a reader is using
lives until the reader is done, so a process may hold more for a moment. When an owner is gone, so are its parts.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections import OrderedDict, deque
from typing import Protocol

__all__ = ["BYTES_MAX", "PartOwner", "SegmentMemory"]

BYTES_MAX = 512 << 20
"""How many bytes of segments a process holds that it has not mapped."""


class PartOwner(Protocol):
    """An owner of parts in memory."""

    def let_go(self, part: int) -> None:
        """Forget a part; it is got again when it is needed."""


class SegmentMemory:
    """Which parts are held, by the order of their use.

    >>> class Owner:
    ...     def let_go(self, part):
    ...         print("let go of", part)
    >>> owner, memory = Owner(), SegmentMemory(bytes_max=10)
    >>> token = memory.join(owner)
    >>> memory.use(token, 1, 6); memory.use(token, 2, 4); memory.use(token, 1, 6); memory.use(token, 3, 4)
    let go of 2
    >>> memory.held_bytes
    10
    """

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._lock = threading.Lock()
        self._tokens = itertools.count()
        self._owners: dict[int, weakref.ref[PartOwner]] = {}
        self._parts: OrderedDict[tuple[int, int], int] = OrderedDict()
        self._dropped_tokens: deque[int] = deque()
        self.held_bytes = 0

    def join(self, owner: PartOwner) -> int:
        """Register an owner; returns the token by which it names itself."""
        token = next(self._tokens)
        # The collector may call back at any moment, while the lock is held too: it only leaves a note.
        weakref.finalize(owner, self._dropped_tokens.append, token).atexit = False
        with self._lock:
            self._owners[token] = weakref.ref(owner)
        return token

    def use(self, token: int, part: int, size: int) -> None:
        """A part of `size` bytes is used now."""
        with self._lock:
            self._forget_dropped()
            if (token, part) in self._parts:
                self._parts.move_to_end((token, part))
                return
            self._parts[token, part] = size
            self.held_bytes += size
            surplus = []
            while self.held_bytes > self._bytes_max and len(self._parts) > 1:
                (holder, number), freed = self._parts.popitem(last=False)
                self.held_bytes -= freed
                surplus.append((self._owners[holder](), number))
        for owner, number in surplus:
            if owner is not None:
                owner.let_go(number)

    def _forget_dropped(self) -> None:
        while self._dropped_tokens:
            token = self._dropped_tokens.popleft()
            self._owners.pop(token, None)
            for key in [key for key in self._parts if key[0] == token]:
                self.held_bytes -= self._parts.pop(key)
