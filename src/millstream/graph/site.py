"""Where in the user's program a call was made, so that an error can point at it.

A site is found by walking up the stack to the first frame that is not Millstream's own. It is captured when
the call is made, because when the plan is checked or a task fails that stack is long gone.
"""

from __future__ import annotations

import linecache
import os
import sys
from dataclasses import dataclass

from millstream.errors import ProgramError

__all__ = ["PACKAGE_FOLDER", "UNKNOWN_SITE", "Site", "here", "refuse"]

PACKAGE_FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
"""Where Millstream's own modules lie: what a frame or a module is told by."""


@dataclass(frozen=True)
class Site:
    """A line of the user's program. `text` prints short: `job.py:41`."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"

    @property
    def code(self) -> str:
        """The line itself, as far as its file can still be read."""
        return linecache.getline(self.file, self.line).strip()


UNKNOWN_SITE = Site("<unknown>", 0)


def here() -> Site:
    """The nearest caller outside Millstream.

    >>> here().line > 0
    True
    """
    frame = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((PACKAGE_FOLDER, "<frozen")):
            return Site(file, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return UNKNOWN_SITE


def refuse(message: str) -> ProgramError:
    """A ProgramError at the user's line."""
    return ProgramError(message, at=str(here()))
