"""VARIANT: a value of which only its JSON is known. PARSE_JSON makes it of text, `v['a'][1]` looks into it, JSON_STRING
writes it."""

from __future__ import annotations

from millstream.expressions.functions.signatures import BOOLEAN, TEXT, optional, scalar
from millstream.expressions.types import VariantType

__all__: list[str] = []

FAMILY = "variants"
_PARAMETERS = [TEXT, optional(BOOLEAN)]
scalar(
    "PARSE_JSON(text [, allow_duplicate_keys])",
    _PARAMETERS,
    VariantType(),
    "The value that a text in JSON is. Of equal keys the last counts if that is allowed; else they are an error.",
    FAMILY,
    is_expensive=True,
)
scalar(
    "TRY_PARSE_JSON(text [, allow_duplicate_keys])",
    _PARAMETERS,
    VariantType(),
    "The same, and NULL where the text is no JSON.",
    FAMILY,
    nulls="always",
    may_fail=False,
    is_expensive=True,
)
