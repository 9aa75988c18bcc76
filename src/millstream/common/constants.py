"""Limits that PyFlink programs compare against: Java's 64-bit integers, which bound timestamps and watermarks."""

from __future__ import annotations

__all__ = ["DEFAULT_OUTPUT_TAG", "MAX_LONG_VALUE", "MIN_LONG_VALUE"]

MIN_LONG_VALUE = -(1 << 63)
MAX_LONG_VALUE = (1 << 63) - 1
DEFAULT_OUTPUT_TAG = ""
"""The name of a stream's main output, where side outputs have theirs."""
