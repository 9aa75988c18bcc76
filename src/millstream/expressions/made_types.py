"""Types whose values have one form only, which functions of SQL make: BITMAP and VARIANT.

Equal values are equal bytes there, and so they are compared, grouped and kept in state. Whoever could hand over bytes
or texts of his own as such (a file, a stream, a function of the program) is refused, and told which function checks.
"""

from __future__ import annotations

from millstream.expressions.data_type import DataType
from millstream.expressions.nested_types import types_within
from millstream.expressions.types import BitmapType, VariantType

__all__ = ["MADE_TYPES", "plain_way"]

MADE_TYPES = (BitmapType, VariantType)


def plain_way(data_type: DataType) -> str | None:
    """How values of a type that holds such a type come from outside; None: it holds none.

    >>> plain_way(VariantType())
    'VARIANT is made by PARSE_JSON: let it be STRING, and write PARSE_JSON(…) in the query'
    """
    for inner in types_within(data_type):
        if isinstance(inner, BitmapType):
            return "BITMAP is made by BITMAP_FROM_BYTES: let it be BYTES, and write BITMAP_FROM_BYTES(…) in the query"
        if isinstance(inner, VariantType):
            return "VARIANT is made by PARSE_JSON: let it be STRING, and write PARSE_JSON(…) in the query"
    return None
