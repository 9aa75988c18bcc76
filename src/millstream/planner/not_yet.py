"""What SQL has and is not built yet, said at its place in the text."""

from __future__ import annotations

from millstream.errors import NotYetError
from millstream.sql.places import problem
from millstream.sql.syntax import Node, Span

__all__ = ["LATER", "is_function_of_flinks", "not_yet"]

LATER = "tables that change (issue 19)"
_FUNCTIONS = frozenset(("OBJECT_OF", "OBJECT_UPDATE", "PARSE_JSON", "TRY_PARSE_JSON"))


def is_function_of_flinks(name: str) -> bool:
    """Whether Flink has a function of this name that is not built here: those of BITMAP, VARIANT and objects."""
    return name.upper() in _FUNCTIONS or name.upper().startswith("BITMAP_")


def not_yet(name: str, where: Node | Span | None, instead: str = "", comes_with: str = LATER) -> NotYetError:
    """The standard sentence, and the place under it."""
    sentence = str(NotYetError.of(name, comes_with, instead))
    return NotYetError(problem(sentence, where).message)
