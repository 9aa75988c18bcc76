"""Functions of `Expression` for rows, arrays and maps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.graph.site import refuse
from millstream.sql.syntax import FieldAccess, ItemAccess
from millstream.table.expression_methods.syntax_holder import SyntaxHolder, node_of

if TYPE_CHECKING:
    from millstream.table.expression import Expression

__all__ = ["CollectionMethods"]


class CollectionMethods(SyntaxHolder):
    """Functions of rows, arrays and maps."""

    def get(self, name_or_index: str | int) -> Expression[Any]:
        """A field of a row, by its name or its position, counted from 0."""
        if isinstance(name_or_index, bool) or not isinstance(name_or_index, str | int):
            raise refuse(f"get: found {name_or_index!r}, expected a field's name, or its position counted from 0")
        return self._made(
            FieldAccess(self._node, name_or_index if isinstance(name_or_index, str) else f"#{name_or_index}")
        )

    @property
    def flatten(self) -> Expression[Any]:
        """All fields of a row, as columns."""
        return self._made(FieldAccess(self._node, "*"))

    def at(self, index: Any) -> Expression[Any]:
        """An element of an array by its position, counted from 1, or of a map by its key."""
        return self._made(ItemAccess(self._node, node_of(index)))

    @property
    def cardinality(self) -> Expression[Any]:
        """The number of elements."""
        return self._call("CARDINALITY")

    @property
    def element(self) -> Expression[Any]:
        """The only element of an array; NULL if it is empty."""
        return self._call("ELEMENT")

    def array_append(self, addition: Any) -> Expression[Any]:
        """The array with an element appended."""
        return self._call("ARRAY_APPEND", addition)

    def array_contains(self, needle: Any) -> Expression[Any]:
        """Whether the array contains an element."""
        return self._call("ARRAY_CONTAINS", needle)

    def array_distinct(self) -> Expression[Any]:
        """The array without duplicates."""
        return self._call("ARRAY_DISTINCT")

    def array_position(self, needle: Any) -> Expression[Any]:
        """The position of an element, counted from 1; 0 if it is missing."""
        return self._call("ARRAY_POSITION", needle)

    def array_prepend(self, addition: Any) -> Expression[Any]:
        """The array with an element prepended."""
        return self._call("ARRAY_PREPEND", addition)

    def array_remove(self, needle: Any) -> Expression[Any]:
        """The array without the elements equal to a value."""
        return self._call("ARRAY_REMOVE", needle)

    def array_reverse(self) -> Expression[Any]:
        """The array, reversed."""
        return self._call("ARRAY_REVERSE")

    def array_slice(self, start_offset: Any, end_offset: Any = None) -> Expression[Any]:
        """The elements between two positions, counted from 1, both included."""
        return self._call("ARRAY_SLICE", start_offset, end_offset)

    def array_sort(self, ascending_order: Any = None, null_first: Any = None) -> Expression[Any]:
        """The array, sorted."""
        return self._call("ARRAY_SORT", ascending_order, null_first)

    def array_union(self, array: Any) -> Expression[Any]:
        """The distinct elements of both arrays."""
        return self._call("ARRAY_UNION", array)

    def array_concat(self, *arrays: Any) -> Expression[Any]:
        """The concatenation of the arrays."""
        return self._call("ARRAY_CONCAT", *arrays)

    def array_max(self) -> Expression[Any]:
        """The largest element."""
        return self._call("ARRAY_MAX")

    def array_join(self, delimiter: Any, null_replacement: Any = None) -> Expression[Any]:
        """The elements, concatenated with a delimiter."""
        return self._call("ARRAY_JOIN", delimiter, null_replacement)

    def array_min(self) -> Expression[Any]:
        """The smallest element."""
        return self._call("ARRAY_MIN")

    def array_except(self, array: Any) -> Expression[Any]:
        """The distinct elements that the other array lacks."""
        return self._call("ARRAY_EXCEPT", array)

    def array_intersect(self, array: Any) -> Expression[Any]:
        """The distinct common elements of both arrays."""
        return self._call("ARRAY_INTERSECT", array)

    @property
    def map_keys(self) -> Expression[Any]:
        """The keys, as an array."""
        return self._call("MAP_KEYS")

    def map_union(self, *maps: Any) -> Expression[Any]:
        """The entries of all maps; a duplicate key has the last map's value."""
        return self._call("MAP_UNION", *maps)

    @property
    def map_values(self) -> Expression[Any]:
        """The values, as an array."""
        return self._call("MAP_VALUES")

    @property
    def map_entries(self) -> Expression[Any]:
        """The entries, as an array of rows."""
        return self._call("MAP_ENTRIES")

    def object_update(self, *kv: Any) -> Expression[Any]:
        """The object with some fields replaced: name, value, name, value, …"""
        return self._call("OBJECT_UPDATE", *kv)
