"""What SQL has and is not built yet, said at its place in the text."""

from __future__ import annotations

from millstream.errors import NotYetError
from millstream.sql.places import problem
from millstream.sql.syntax import Node, Span

__all__ = ["LATER", "not_yet"]

LATER = "tables that change (issue 19)"


def not_yet(name: str, where: Node | Span | None, instead: str = "", comes_with: str = LATER) -> NotYetError:
    """The standard sentence, and the place under it."""
    sentence = str(NotYetError.of(name, comes_with, instead))
    return NotYetError(problem(sentence, where).message)
