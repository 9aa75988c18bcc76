"""What SQL has and is not built yet, said at its place in the text."""

from __future__ import annotations

from millstream.errors import NotAvailableError, NotYetError
from millstream.sql.places import problem
from millstream.sql.syntax import Node, Span

__all__ = ["LATER", "not_yet", "refused_function"]

LATER = "tables that change (issue 19)"

_MODELS = (
    "Millstream calls no models. Call yours in a function of the program's: @udf, with func_type='pandas' for many rows"
)
_UNBUILT = {"ML_PREDICT": _MODELS, "ML_EVALUATE": _MODELS, "VECTOR_SEARCH": _MODELS}
_LATER = {
    "TO_CHANGELOG": "to_changelog_stream, whose rows have their kinds",
    "FROM_CHANGELOG": "from_changelog_stream, or a table with a changelog format as debezium-json",
}


def refused_function(name: str, where: Node | Span | None) -> NotYetError | NotAvailableError | None:
    """The error of a function that Flink has and Millstream has not; None for all others."""
    if name.upper() in _UNBUILT:
        sentence = f"the function {name.upper()} is not available: {_UNBUILT[name.upper()]}"
        return NotAvailableError(problem(sentence, where).message)
    if name.upper() in _LATER:
        return not_yet(f"the function {name.upper()}", where, _LATER[name.upper()], "functions of changelogs")
    return None


def not_yet(name: str, where: Node | Span | None, instead: str = "", comes_with: str = LATER) -> NotYetError:
    """The standard sentence, and the place under it."""
    sentence = str(NotYetError.of(name, comes_with, instead))
    return NotYetError(problem(sentence, where).message)
