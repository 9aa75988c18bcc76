"""Arrays, maps and rows: constructors, element access, and functions that return new collections.

A value searched in an array is cast to the type of its elements. Arrays that are combined get a common type. Element
access returns NULL for a missing element, so its result is always nullable.
"""

from __future__ import annotations

from typing import Any

from millstream.expressions.coercion import can_cast, common_type
from millstream.expressions.data_type import DataType
from millstream.expressions.functions.registry import Arguments, Bind, Binding, SignatureError
from millstream.expressions.functions.signatures import (
    ANY,
    ARRAY,
    BOOLEAN,
    MAP,
    STRING,
    TEXT,
    WHOLE,
    Parameter,
    optional,
    refusal,
    repeated,
    same_as,
    scalar,
)
from millstream.expressions.nested_types import ArrayType, MapType, MultisetType, RowType
from millstream.expressions.types import BooleanType, IntegralType, IntType, NullType, VariantType, is_text

__all__: list[str] = []

FAMILY = "collections"
_COLLECTION = Parameter(
    "an array, map or multiset", lambda type_: type_ if isinstance(type_, ArrayType | MapType | MultisetType) else None
)
_TEXTS = Parameter(
    "an array of text",
    lambda type_: type_ if isinstance(type_, ArrayType) and is_text(type_.element_type) else None,
)
_SORTABLE = Parameter(
    "an array of values with an order",
    lambda type_: type_ if isinstance(type_, ArrayType) and _has_order(type_.element_type) else None,
)


def _has_order(type_: DataType) -> bool:
    return not isinstance(type_, ArrayType | MapType | MultisetType | RowType | BooleanType)


def _element(arguments: Arguments) -> DataType:
    array = arguments.types[0]
    assert isinstance(array, ArrayType)
    return array.element_type


def _sole_element(arguments: Arguments) -> DataType:
    return _element(arguments).with_nullability(True)


def _bind_array(arguments: Arguments) -> Binding:
    if not arguments.types:
        raise SignatureError("ARRAY takes at least one value. Write ARRAY[value, …].")
    shared = _unify("ARRAY", "ARRAY[value, …]", arguments.types)
    return Binding((shared,) * len(arguments), ArrayType(shared, False))


def _unify(name: str, syntax: str, types: tuple[DataType, ...]) -> DataType:
    """The common type of values, nullable if any of them is."""
    shared = common_type(types)
    if shared is None:
        raise refusal(name, syntax, "values of one type", types)
    return shared.with_nullability(any(type_.is_nullable or isinstance(type_, NullType) for type_ in types))


def _bind_map(arguments: Arguments) -> Binding:
    syntax = "MAP[key, value, …]"
    if not arguments.types or len(arguments) % 2:
        raise SignatureError(f"MAP takes keys and values in turn, at least one of each. Write {syntax}.")
    key = _unify("MAP", syntax, arguments.types[::2])
    value = _unify("MAP", syntax, arguments.types[1::2])
    return Binding((key, value) * (len(arguments) // 2), MapType(key, value, False))


def _bind_row(arguments: Arguments) -> Binding:
    names = [f"EXPR${place}" for place in range(len(arguments))]
    return Binding(arguments.types, RowType.of(names, arguments.types, False))


def _bind_field(arguments: Arguments) -> Binding:
    name = dict(arguments.options).get("name")
    row = arguments.types[0]
    if not isinstance(row, RowType):
        raise refusal("FIELD", "row.field", "a row", arguments.types)
    field = next((each for each in row.fields if each.name == name), None)
    if field is None:
        known = ", ".join(row.names)
        raise SignatureError(f"the row has no field {name!r}; its fields are {known}")
    nullable = field.data_type.is_nullable or row.is_nullable
    return Binding(arguments.types, field.data_type.with_nullability(nullable))


def _bind_item(arguments: Arguments) -> Binding:
    syntax = "array[index] or map[key]"
    if len(arguments) != 2:
        raise refusal("ITEM", syntax, "a collection and an index or key", arguments.types)
    collection, place = arguments.types
    if isinstance(collection, ArrayType):
        constant = arguments.constant(1)
        if isinstance(constant, int) and constant < 1:
            raise SignatureError(f"array indexes start at 1, so there is no element {constant}")
        if isinstance(place, NullType):
            place = IntType()
        if not isinstance(place, IntegralType):
            raise refusal("an array", syntax, "an integer as index", [place])
        return Binding((collection, place), collection.element_type.nullable())
    if isinstance(collection, MapType):
        key = collection.key_type.with_nullability(place.is_nullable)
        if is_text(key) and is_text(place):  # the searched string may have any length
            return Binding((collection, place), collection.value_type.nullable())
        if not can_cast(place.nullable(), key.nullable(), explicit=False):
            raise refusal("the map", syntax, f"{key.nullable()} as its key", [place])
        return Binding((collection, key), collection.value_type.nullable())
    if isinstance(collection, VariantType):
        if not is_text(place) and not isinstance(place, IntegralType | NullType):
            raise refusal("a variant", "variant['key'] or variant[index]", "text or an integer", [place])
        return Binding((collection, place), VariantType())
    raise refusal("ITEM", syntax, "an array, a map or a variant", [collection])


def _with_needle(name: str, syntax: str, result: str) -> Bind:
    """The rule for an array and an element value. `result`: BOOLEAN, INT, ARRAY, or WIDER (an array with the value)."""

    def bind(arguments: Arguments) -> Binding:
        if len(arguments) != 2 or not isinstance(arguments.types[0], ArrayType):
            raise refusal(name, syntax, "an array and a value", arguments.types)
        array, needle = arguments.types
        assert isinstance(array, ArrayType)
        is_nullable = needle.is_nullable or isinstance(needle, NullType)
        element = array.element_type.with_nullability(is_nullable)
        if not can_cast(needle.nullable(), element.nullable(), explicit=False):
            raise refusal(name, syntax, f"a value of {element.nullable()} for this array", [needle])
        wider = ArrayType(array.element_type.with_nullability(array.element_type.is_nullable or is_nullable))
        types: dict[str, DataType] = {
            "BOOLEAN": BooleanType(array.is_nullable),
            "INT": IntType(array.is_nullable or is_nullable),
            "ARRAY": array,
            "WIDER": wider.with_nullability(array.is_nullable or is_nullable),
        }
        array_type = wider.with_nullability(array.is_nullable) if result == "WIDER" else array
        return Binding((array_type, element), types[result])

    return bind


def _bind_map_from_arrays(arguments: Arguments) -> Binding:
    syntax = "MAP_FROM_ARRAYS(keys, values)"
    if len(arguments) != 2 or not all(isinstance(type_, ArrayType) for type_ in arguments.types):
        raise refusal("MAP_FROM_ARRAYS", syntax, "two arrays", arguments.types)
    keys, values = arguments.types
    assert isinstance(keys, ArrayType) and isinstance(values, ArrayType)
    nullable = keys.is_nullable or values.is_nullable
    return Binding((keys, values), MapType(keys.element_type, values.element_type, nullable))


def _keys(arguments: Arguments) -> DataType:
    pairs = arguments.types[0]
    assert isinstance(pairs, MapType)
    return ArrayType(pairs.key_type)


def _values(arguments: Arguments) -> DataType:
    pairs = arguments.types[0]
    assert isinstance(pairs, MapType)
    return ArrayType(pairs.value_type)


def _entries(arguments: Arguments) -> DataType:
    pairs = arguments.types[0]
    assert isinstance(pairs, MapType)
    return ArrayType(RowType.of(("key", "value"), (pairs.key_type, pairs.value_type)))


def _define_constructors() -> None:
    safe: dict[str, Any] = {"family": FAMILY, "may_fail": False}
    scalar("ARRAY[value, …]", (), STRING, "An array of values.", name="ARRAY", bind=_bind_array, **safe)
    doc = "A map of keys and values."
    scalar("MAP[key, value, …]", (), STRING, doc, FAMILY, name="MAP", bind=_bind_map)
    scalar("ROW(value, …)", (), STRING, "A row of values.", bind=_bind_row, **safe)
    doc = "A field of a row."
    scalar("row.field", (), STRING, doc, name="FIELD", bind=_bind_field, method="get", **safe)
    doc = "The element at an index from 1, or the value of a key; NULL if there is none."
    scalar("collection[index]", (), STRING, doc, FAMILY, name="ITEM", bind=_bind_item, method="at")
    doc = "The only element; NULL if there is none, an error if there are more."
    scalar("ELEMENT(array)", [ARRAY], _sole_element, doc, FAMILY, nulls="always", method="element")
    doc = "The number of elements."
    scalar("CARDINALITY(collection)", [_COLLECTION], IntType(), doc, method="cardinality", **safe)


def _define_percentile() -> None:
    """The scalar function that implements the aggregate PERCENTILE."""
    doc = "The values at percentages of the ordered elements."
    scalar(
        "PERCENTILE(array, percentage)",
        [ARRAY, ANY],
        lambda arguments: arguments.types[1],
        doc,
        FAMILY,
        name="$PERCENTILE",
    )


def _define_searches() -> None:
    for name, result, doc in (
        ("ARRAY_CONTAINS", "BOOLEAN", "Whether the array contains a value; NULL can be searched too."),
        ("ARRAY_POSITION", "INT", "The index of a value, from 1; 0 if it is absent."),
        ("ARRAY_REMOVE", "ARRAY", "The array without the elements equal to a value."),
        ("ARRAY_APPEND", "WIDER", "The array with a value appended."),
        ("ARRAY_PREPEND", "WIDER", "The array with a value prepended."),
    ):
        syntax = f"{name}(array, value)"
        rule = _with_needle(name, syntax, result)
        scalar(syntax, (), STRING, doc, FAMILY, bind=rule, may_fail=False, method=name.lower())


def _define_arrays() -> None:
    safe: dict[str, Any] = {"family": FAMILY, "may_fail": False}
    for name, doc in (
        ("ARRAY_DISTINCT", "The distinct elements, in order of first occurrence."),
        ("ARRAY_REVERSE", "The elements from last to first."),
    ):
        scalar(f"{name}(array)", [ARRAY], same_as(0), doc, method=name.lower(), **safe)
    doc = "The elements from one index to another, inclusive; negative indexes count from the end."
    places = [ARRAY, WHOLE, optional(WHOLE)]
    scalar("ARRAY_SLICE(array, first [, last])", places, same_as(0), doc, method="array_slice", **safe)
    doc = "The sorted elements; by default ascending, with NULLs first if ascending, else last."
    order = [_SORTABLE, optional(BOOLEAN), optional(BOOLEAN)]
    scalar("ARRAY_SORT(array [, ascending [, nulls_first]])", order, same_as(0), doc, method="array_sort", **safe)
    for name, doc in (
        ("ARRAY_UNION", "The distinct elements of both arrays."),
        ("ARRAY_EXCEPT", "The distinct elements of the first that are not in the second."),
        ("ARRAY_INTERSECT", "The distinct elements of the first that are in the second."),
    ):
        both = [ARRAY, ARRAY]
        scalar(f"{name}(array, array)", both, same_as(0), doc, common=(0, 1), method=name.lower(), **safe)
    doc = "The elements of all arrays."
    scalar("ARRAY_CONCAT(array, …)", [repeated(ARRAY)], same_as(0), doc, common=(0, -1), method="array_concat", **safe)
    for name, doc in (("ARRAY_MAX", "The greatest element."), ("ARRAY_MIN", "The least element.")):
        scalar(f"{name}(array)", [_SORTABLE], _element, doc, nulls="always", method=name.lower(), **safe)
    doc = "The strings joined by a delimiter; NULLs are skipped unless replaced by a string."
    texts = [_TEXTS, TEXT, optional(TEXT)]
    scalar("ARRAY_JOIN(array, delimiter [, null_text])", texts, STRING, doc, method="array_join", **safe)


def _define_maps() -> None:
    safe: dict[str, Any] = {"family": FAMILY, "may_fail": False}
    scalar("MAP_KEYS(map)", [MAP], _keys, "The keys.", method="map_keys", **safe)
    scalar("MAP_VALUES(map)", [MAP], _values, "The values.", method="map_values", **safe)
    scalar("MAP_ENTRIES(map)", [MAP], _entries, "The entries, as rows of key and value.", method="map_entries", **safe)
    doc = "The entries of all maps; a later value replaces an earlier one."
    scalar("MAP_UNION(map, …)", [repeated(MAP)], same_as(0), doc, common=(0, -1), method="map_union", **safe)
    doc = "A map from an array of keys and an array of values of the same length."
    scalar("MAP_FROM_ARRAYS(keys, values)", (), STRING, doc, FAMILY, bind=_bind_map_from_arrays)


_define_constructors()
_define_percentile()
_define_searches()
_define_arrays()
_define_maps()
