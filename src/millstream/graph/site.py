"""Where in the user's program a call was made, so that an error can point at it.

A site is found by walking up the stack to the first frame that is not Millstream's own. It is captured when
the call is made, because when the plan is checked or a task fails that stack is long gone.
"""

from __future__ import annotations

import linecache
import os
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import FrameType
from typing import TypeVar

from millstream.errors import ProgramError, TypeMismatchError

__all__ = [
    "PACKAGE_FOLDER",
    "UNKNOWN_SITE",
    "Site",
    "StatementSite",
    "at_site",
    "here",
    "in_plain_words",
    "refuse",
    "refuse_type",
]

T = TypeVar("T")

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


@dataclass(frozen=True)
class StatementSite(Site):
    """A statement that was typed. `line` is its number: people see no other."""

    def __str__(self) -> str:
        return f"{self.file} {self.line}"


def at_site(site: Site, call: Callable[[], T]) -> T:
    """What `call` returns; for what it calls the user's line is `site`, which is no line of Python: a statement.

    >>> at_site(Site("views.sql", 7), lambda: "nothing was asked")
    'nothing was asked'
    """
    return call()


def here() -> Site:
    """The nearest caller outside Millstream, or the site that was named before one was reached.

    >>> here().line > 0
    True
    """
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is at_site.__code__:
            site: Site = frame.f_locals["site"]
            return site
        file = frame.f_code.co_filename
        if not file.startswith((PACKAGE_FOLDER, "<frozen")) and not _is_made_for_us(frame):
            return Site(file, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return UNKNOWN_SITE


def _is_made_for_us(frame: FrameType) -> bool:
    """Whether it runs what was made at run time for one of our modules, as the __init__ of a dataclass is."""
    name = str(frame.f_globals.get("__name__"))
    return frame.f_code.co_filename == "<string>" and name.partition(".")[0] == __name__.partition(".")[0]


def refuse(message: str, kind: type[ProgramError] = ProgramError) -> ProgramError:
    """A ProgramError, or a more special one, at the user's line."""
    return kind(in_plain_words(message), at=str(here()))


def refuse_type(message: str) -> TypeMismatchError:
    """The same of an argument that is not of a type that the call takes: a TypeError too, as PyFlink's."""
    return TypeMismatchError(in_plain_words(message), at=str(here()))


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
