"""Errors for unsupported SQL, with their position in the text."""

from __future__ import annotations

from millstream.errors import LATER, NotAvailableError, NotYetError
from millstream.sql.places import problem
from millstream.sql.syntax import Node, Span

__all__ = ["LATER", "NO_MODELS", "not_yet", "refused_function"]


NO_MODELS = (
    "Millstream calls no models. Call yours in a user function: @udf, with func_type='pandas' for batches of rows"
)
_COLLECT = "Collect the rows with an aggregate, for example (SELECT ARRAY_AGG(v) FROM t)"
_UNBUILT = {
    "ML_PREDICT": NO_MODELS,
    "ML_EVALUATE": NO_MODELS,
    "VECTOR_SEARCH": NO_MODELS,
    "ARRAY QUERY": _COLLECT,
    "MAP QUERY": _COLLECT,
    "MULTISET QUERY": _COLLECT,
}
_OF_TABLES = ("TO_CHANGELOG", "FROM_CHANGELOG")


def refused_function(name: str, where: Node | Span | None) -> NotYetError | NotAvailableError | None:
    """The error for a Flink function that Millstream lacks; None for other names."""
    if name.upper() in _UNBUILT:
        written = name.upper().replace(" QUERY", "(SELECT …)")
        sentence = f"the function {written} is not available: {_UNBUILT[name.upper()]}"
        return NotAvailableError(problem(sentence, where).message)
    if name.upper() in _OF_TABLES:
        words = f"it takes a table. Write it in FROM: SELECT * FROM {name.upper()}(input => TABLE t)"
        return NotAvailableError(problem(f"the function {name.upper()} is not available here: {words}", where).message)
    return None


def not_yet(name: str, where: Node | Span | None, instead: str = "", version: str = LATER) -> NotYetError:
    """The standard error for an unsupported feature, with its position."""
    sentence = str(NotYetError.of(name, version, instead))
    return NotYetError(problem(sentence, where).message)
