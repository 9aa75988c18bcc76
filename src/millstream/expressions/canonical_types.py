"""Types whose values have a canonical form and are constructed only by SQL functions: BITMAP and VARIANT.

Equal values have equal bytes, so they are compared, grouped and stored as bytes. Values from outside (files, streams,
user-defined functions) could violate this, and are rejected with the name of the function that validates them.
"""

from __future__ import annotations

from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import types_within
from millstream.expressions.types import BitmapType, VariantType

__all__ = ["CANONICAL_TYPES", "construction_hint"]

CANONICAL_TYPES = (BitmapType, VariantType)


def construction_hint(data_type: DataType) -> str | None:
    """How to construct values of a type that contains a canonical type; None if it contains none.

    >>> construction_hint(VariantType())
    'VARIANT is constructed by PARSE_JSON: declare STRING, and write PARSE_JSON(…) in the query'
    """
    for inner in types_within(data_type):
        if isinstance(inner, BitmapType):
            return (
                "BITMAP is constructed by BITMAP_FROM_BYTES: declare BYTES, and write BITMAP_FROM_BYTES(…) in the query"
            )
        if isinstance(inner, VariantType):
            return "VARIANT is constructed by PARSE_JSON: declare STRING, and write PARSE_JSON(…) in the query"
    return None
