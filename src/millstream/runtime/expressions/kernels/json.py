"""JSON kernels, by value: parsing dominates the cost, and each string is parsed once."""

from __future__ import annotations

from millstream.runtime.expressions.kernels.reference_kernels import register_by_value
from millstream.runtime.expressions.references import json  # noqa: F401

__all__ = ["FUNCTIONS"]

FUNCTIONS = ("JSON_EXISTS", "JSON_VALUE", "JSON_QUERY", "JSON_LENGTH", "JSON_TYPE", "JSON_OBJECT", "JSON_ARRAY")
register_by_value(*FUNCTIONS, "IS JSON", "JSON_STRING", "JSON", "JSON_QUOTE", "JSON_UNQUOTE")
register_by_value(
    *(f"IS {negation}JSON {kind}" for kind in ("VALUE", "SCALAR", "ARRAY", "OBJECT") for negation in ("", "NOT "))
)
