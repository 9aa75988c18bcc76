"""Where in the user's program a call was made, so that an error can point at it.

A site is found by walking up the stack to the first frame that is not Millstream's own. It is captured when
the call is made, because when the plan is checked or a task fails that stack is long gone.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
from dataclasses import dataclass
from types import FrameType

from millstream.errors import ProgramError

__all__ = ["PACKAGE_FOLDER", "UNKNOWN_SITE", "Site", "here", "in_plain_words", "refuse"]

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
        if not file.startswith((PACKAGE_FOLDER, "<frozen")) and not _is_made_for_us(frame):
            return Site(file, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return UNKNOWN_SITE


def _is_made_for_us(frame: FrameType) -> bool:
    """Whether it runs what was made at run time for one of our modules, as the __init__ of a dataclass is."""
    name = str(frame.f_globals.get("__name__"))
    return frame.f_code.co_filename == "<string>" and name.partition(".")[0] == __name__.partition(".")[0]


def refuse(message: str) -> ProgramError:
    """A ProgramError at the user's line."""
    return ProgramError(in_plain_words(message), at=str(here()))


def _a_kind(match: re.Match[str]) -> str:
    name = match.group(1)
    return f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


# What Python says of objects that do not say it themselves, and what a person would.
_PLAIN_WORDS = (
    (re.compile(r"<function (?:\S*\.)?<lambda> at 0x[0-9a-f]+>(?: \(function\))?"), "a lambda"),
    (re.compile(r"<(?:bound method|function) (\S+)(?: of .*?)? at 0x[0-9a-f]+>(?: \(\w+\))?>?"), r"the function \1"),
    (re.compile(r"<(?:[\w<>]+\.)*(\w+) object at 0x[0-9a-f]+>(?: \(\1\))?"), _a_kind),
    (re.compile(r"<class '(?:[\w<>]+\.)*(\w+)'>(?: \((?:type|ABCMeta)\))?"), r"the class \1"),
)


def in_plain_words(message: str) -> str:
    """A message without addresses in memory and names of our modules.

    >>> in_plain_words(f"found {here} ({type(here).__name__}) and {Site}, expected a Site")
    'found the function here and the class Site, expected a Site'
    """
    for pattern, words in _PLAIN_WORDS:
        message = pattern.sub(words, message)
    return message
