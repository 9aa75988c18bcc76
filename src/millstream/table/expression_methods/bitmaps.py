"""Bitmap functions of `Expression`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.table.expression_methods.syntax_holder import SyntaxHolder

if TYPE_CHECKING:
    from millstream.table.expression import Expression

__all__ = ["BitmapMethods"]


class BitmapMethods(SyntaxHolder):
    """Functions of bitmaps."""

    def bitmap_and(self, bitmap2: Any) -> Expression[Any]:
        """The intersection of both bitmaps."""
        return self._call("BITMAP_AND", bitmap2)

    def bitmap_andnot(self, bitmap2: Any) -> Expression[Any]:
        """The numbers that the other bitmap lacks."""
        return self._call("BITMAP_ANDNOT", bitmap2)

    def bitmap_and_agg(self) -> Expression[Any]:
        """The intersection of the group's bitmaps."""
        return self._call("BITMAP_AND_AGG")

    def bitmap_and_cardinality_agg(self) -> Expression[Any]:
        """The cardinality of the intersection of the group's bitmaps."""
        return self._call("BITMAP_AND_CARDINALITY_AGG")

    def bitmap_build(self) -> Expression[Any]:
        """The bitmap of an array of numbers."""
        return self._call("BITMAP_BUILD")

    def bitmap_build_agg(self) -> Expression[Any]:
        """The bitmap of the group's numbers."""
        return self._call("BITMAP_BUILD_AGG")

    def bitmap_build_cardinality_agg(self) -> Expression[Any]:
        """The number of distinct values in the group."""
        return self._call("BITMAP_BUILD_CARDINALITY_AGG")

    def bitmap_cardinality(self) -> Expression[Any]:
        """The cardinality of the bitmap."""
        return self._call("BITMAP_CARDINALITY")

    def bitmap_from_bytes(self) -> Expression[Any]:
        """Deserialises a bitmap from bytes."""
        return self._call("BITMAP_FROM_BYTES")

    def bitmap_or(self, bitmap2: Any) -> Expression[Any]:
        """The union of both bitmaps."""
        return self._call("BITMAP_OR", bitmap2)

    def bitmap_or_agg(self) -> Expression[Any]:
        """The union of the group's bitmaps."""
        return self._call("BITMAP_OR_AGG")

    def bitmap_or_cardinality_agg(self) -> Expression[Any]:
        """The cardinality of the union of the group's bitmaps."""
        return self._call("BITMAP_OR_CARDINALITY_AGG")

    def bitmap_to_array(self) -> Expression[Any]:
        """The numbers of the bitmap, as an array."""
        return self._call("BITMAP_TO_ARRAY")

    def bitmap_to_bytes(self) -> Expression[Any]:
        """The bitmap, serialised to bytes."""
        return self._call("BITMAP_TO_BYTES")

    def bitmap_to_string(self) -> Expression[Any]:
        """The numbers of the bitmap, as a string."""
        return self._call("BITMAP_TO_STRING")

    def bitmap_xor(self, bitmap2: Any) -> Expression[Any]:
        """The symmetric difference of both bitmaps."""
        return self._call("BITMAP_XOR", bitmap2)

    def bitmap_xor_agg(self) -> Expression[Any]:
        """The symmetric difference of the group's bitmaps."""
        return self._call("BITMAP_XOR_AGG")

    def bitmap_xor_cardinality_agg(self) -> Expression[Any]:
        """The cardinality of the symmetric difference of the group's bitmaps."""
        return self._call("BITMAP_XOR_CARDINALITY_AGG")
