"""A folder of this machine, and whether it may have changed since it was listed: one look at its time says so.

For who must not wait. "Unchanged" is certain: a folder whose time was long past when it was listed gets another time by
any change afterwards. Where that is not so, or nobody knows, the answer is that it may have changed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

__all__ = ["ListedFolder"]

_SETTLED_MS = 100
_TRUSTED_S = 1.0  # a file server may answer from memory for a while


class ListedFolder:
    """How a folder stood when it was listed last.

    >>> ListedFolder().is_unchanged()
    False
    """

    def __init__(self) -> None:
        self._noted: tuple[str, int, float] | None = None

    def note(self, folder: Path | None, now_ms: int) -> None:
        """It is about to be listed. None: it is none of this machine."""
        self._noted = None
        if folder is not None:
            changed_ns = _changed_ns(str(folder))
            # Clocks of file systems tick by milliseconds: what changes within a tick of the listing is not told apart.
            if changed_ns is not None and now_ms - changed_ns // 1_000_000 > _SETTLED_MS:
                self._noted = (str(folder), changed_ns, time.monotonic())

    def is_unchanged(self) -> bool:
        """Whether a listing would find what the last one found."""
        noted = self._noted
        return noted is not None and time.monotonic() - noted[2] < _TRUSTED_S and _changed_ns(noted[0]) == noted[1]


def _changed_ns(folder: str) -> int | None:
    try:
        return os.stat(folder).st_mtime_ns
    except OSError:
        return None
