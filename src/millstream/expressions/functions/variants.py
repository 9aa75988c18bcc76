"""VARIANT: a semi-structured value, represented as JSON. PARSE_JSON constructs it, `v['a'][1]` accesses its elements,
JSON_STRING writes it."""

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
    "The value of a JSON text. If duplicate keys are allowed the last counts, otherwise they are an error.",
    FAMILY,
    is_expensive=True,
)
scalar(
    "TRY_PARSE_JSON(text [, allow_duplicate_keys])",
    _PARAMETERS,
    VariantType(),
    "The same; NULL if the text is not JSON.",
    FAMILY,
    nulls="always",
    may_fail=False,
    is_expensive=True,
)
