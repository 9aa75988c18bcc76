"""Digests, by value: hashing dominates the cost."""

from __future__ import annotations

from millstream.runtime.expressions.kernels.reference_kernels import register_by_value
from millstream.runtime.expressions.references import digests  # noqa: F401

__all__ = ["FUNCTIONS"]

FUNCTIONS = ("MD5", "SHA1", "SHA224", "SHA256", "SHA384", "SHA512", "SHA2")
register_by_value(*FUNCTIONS)
