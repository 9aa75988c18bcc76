"""VARIANT kernels, by value: parsing JSON dominates the cost, and each string is parsed once."""

from __future__ import annotations

from millstream.runtime.expressions.kernels.reference_kernels import register_by_value
from millstream.runtime.expressions.references import variants  # noqa: F401

__all__: list[str] = []

register_by_value("PARSE_JSON", "TRY_PARSE_JSON")
