"""References of the VARIANT functions."""

from __future__ import annotations

from millstream.runtime.expressions.json_text import JsonError
from millstream.runtime.expressions.kernel import CallContext, EvaluationError, reference
from millstream.runtime.expressions.references.null_rules import null_of_null
from millstream.runtime.expressions.variants import parse_variant

__all__: list[str] = []


@reference("PARSE_JSON")
@null_of_null
def parse_json(context: CallContext, text: str, takes_last: bool = False) -> str:
    try:
        return parse_variant(text, takes_last)
    except JsonError as problem:
        raise EvaluationError(str(problem)) from None


@reference("TRY_PARSE_JSON")
@null_of_null
def try_parse_json(context: CallContext, text: str, takes_last: bool = False) -> str | None:
    try:
        return parse_variant(text, takes_last)
    except JsonError:
        return None
