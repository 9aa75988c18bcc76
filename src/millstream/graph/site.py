"""The line of the user's program from which a call was made, for errors.

A site is the innermost stack frame outside Millstream. It is captured when the call is made, because that stack no
longer exists when the plan is checked or a task fails.
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
"""The folder of Millstream's own modules; identifies their frames."""


@dataclass(frozen=True)
class Site:
    """A line of the user's program. `text` is its short form: `job.py:41`."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{os.path.basename(self.file)}:{self.line}"

    @property
    def code(self) -> str:
        """The text of the line, if its file can still be read."""
        return linecache.getline(self.file, self.line).strip()


UNKNOWN_SITE = Site("<unknown>", 0)


@dataclass(frozen=True)
class StatementSite(Site):
    """A statement entered interactively. Only its number, `line`, is shown."""

    def __str__(self) -> str:
        return f"{self.file} {self.line}"


def at_site(site: Site, call: Callable[[], T]) -> T:
    """Runs `call` with `site`, a statement instead of a Python line, as the user's line of all calls inside.

    >>> at_site(Site("views.sql", 7), lambda: "done")
    'done'
    """
    return call()


def here() -> Site:
    """The nearest caller outside Millstream, or the site of an enclosing `at_site`.

    >>> here().line > 0
    True
    """
    frame = sys._getframe(1)
    while frame is not None:
        if frame.f_code is at_site.__code__:
            site: Site = frame.f_locals["site"]
            return site
        file = frame.f_code.co_filename
        if not file.startswith((PACKAGE_FOLDER, "<frozen")) and not _is_generated(frame):
            return Site(file, frame.f_lineno)
        frame = frame.f_back  # type: ignore[assignment]
    return UNKNOWN_SITE


def _is_generated(frame: FrameType) -> bool:
    """Whether a frame runs generated code of a Millstream module, such as a dataclass's __init__."""
    name = str(frame.f_globals.get("__name__"))
    return frame.f_code.co_filename == "<string>" and name.partition(".")[0] == __name__.partition(".")[0]


def refuse(message: str, kind: type[ProgramError] = ProgramError) -> ProgramError:
    """A ProgramError or a subclass, at the user's line."""
    return kind(in_plain_words(message), at=str(here()))


def refuse_type(message: str) -> TypeMismatchError:
    """A TypeMismatchError at the user's line, which is also a TypeError, as PyFlink raises."""
    return TypeMismatchError(in_plain_words(message), at=str(here()))


def _a_kind(match: re.Match[str]) -> str:
    name = match.group(1)
    return f"{'an' if name[0] in 'AEIOaeio' else 'a'} {name}"


# Python's default representations of objects, and their readable form.
_PLAIN_WORDS = (
    (re.compile(r"<function (?:\S*\.)?<lambda> at 0x[0-9a-f]+>(?: \(function\))?"), "a lambda"),
    (re.compile(r"<(?:bound method|function) (\S+)(?: of .*?)? at 0x[0-9a-f]+>(?: \(\w+\))?>?"), r"the function \1"),
    (re.compile(r"<(?:[\w<>]+\.)*(\w+) object at 0x[0-9a-f]+>(?: \(\1\))?"), _a_kind),
    (re.compile(r"<class '(?:[\w<>]+\.)*(\w+)'>(?: \((?:type|ABCMeta)\))?"), r"the class \1"),
)


def in_plain_words(message: str) -> str:
    """The message without memory addresses and names of Millstream's modules.

    >>> in_plain_words(f"found {here} ({type(here).__name__}) and {Site}, expected a Site")
    'found the function here and the class Site, expected a Site'
    """
    for pattern, words in _PLAIN_WORDS:
        message = pattern.sub(words, message)
    return message
