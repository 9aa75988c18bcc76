"""JSON strings: predicates, access by path, and constructors.

JSON values are strings. A string constructed by JSON_OBJECT, JSON_ARRAY or JSON is inserted into other JSON unquoted;
all other strings are quoted.
"""

from __future__ import annotations

from typing import Any

from millstream.expressions.data_type import DataType
from millstream.expressions.functions.json_options import default_of, queried_type, returned_type
from millstream.expressions.functions.registry import Arguments, Bind, Binding, SignatureError
from millstream.expressions.functions.signatures import STRING, TEXT, Parameter, optional, refusal, scalar, signature
from millstream.expressions.nested_types import ArrayType, MapType, RowType
from millstream.expressions.types import (
    BinaryType,
    BooleanType,
    IntType,
    LocalZonedTimestampType,
    NullType,
    NumericType,
    TimestampType,
    VarBinaryType,
    VarCharType,
    VariantType,
    is_text,
)

__all__ = ["holds_json", "is_json_value"]

FAMILY = "json"
_TIMES = (TimestampType, LocalZonedTimestampType)
_SCALARS = (NumericType, BooleanType, BinaryType, VarBinaryType, *_TIMES, NullType, VariantType)
JSON_TEXT = Parameter(
    "JSON as text or VARIANT", lambda type_: type_ if isinstance(type_, VariantType) else TEXT.accept(type_)
)


def is_json_value(type_: DataType) -> bool:
    """Whether values of a type can be written as JSON."""
    if isinstance(type_, ArrayType):
        return is_json_value(type_.element_type)
    if isinstance(type_, MapType):
        return is_text(type_.key_type) and is_json_value(type_.value_type)
    if isinstance(type_, RowType):
        return all(map(is_json_value, type_.types))
    return is_text(type_) or isinstance(type_, _SCALARS)


def _json_text() -> VarCharType:
    """STRING marked as JSON. The mark survives constant folding and does not affect type equality."""
    marked = VarCharType(STRING.length, False)
    vars(marked)["holds_json"] = True
    return marked


def holds_json(type_: DataType) -> bool:
    """Whether a string of this type was constructed as JSON, which is inserted into other JSON unquoted."""
    return bool(vars(type_).get("holds_json", False))


def _check_values(name: str, syntax: str, types: tuple[DataType, ...]) -> None:
    for type_ in types:
        if not is_json_value(type_):
            raise refusal(
                name, syntax, "values representable in JSON, and maps with text keys; CAST others to STRING", [type_]
            )


def _bind_value(arguments: Arguments) -> Binding:
    syntax = "JSON_VALUE(json, path [RETURNING type] [DEFAULT value ON EMPTY] [DEFAULT value ON ERROR])"
    options = dict(arguments.options)
    type_ = returned_type(options)
    for name in ("on_empty", "on_error"):
        default_of(options, name, type_)
    return signature("JSON_VALUE", syntax, [JSON_TEXT, TEXT], type_, "always")(arguments)


def _bind_query(arguments: Arguments) -> Binding:
    syntax = "JSON_QUERY(json, path [RETURNING type] [WITH WRAPPER] [NULL ON EMPTY] [NULL ON ERROR])"
    type_ = queried_type(dict(arguments.options))
    return signature("JSON_QUERY", syntax, [JSON_TEXT, TEXT], type_, "always")(arguments)


def _bind_exists(arguments: Arguments) -> Binding:
    syntax = "JSON_EXISTS(json, path [FALSE ON ERROR])"
    unknown = dict(arguments.options).get("on_error") == "UNKNOWN"
    return signature("JSON_EXISTS", syntax, [JSON_TEXT, TEXT], BooleanType(), "always" if unknown else "any")(arguments)


def _bind_object(arguments: Arguments) -> Binding:
    syntax = "JSON_OBJECT(key VALUE value, …)"
    keys, values = arguments.types[::2], arguments.types[1::2]
    if len(keys) != len(values) or not all(map(is_text, keys)):
        raise refusal("JSON_OBJECT", syntax, "strings as keys, each with a value", arguments.types)
    constants = [arguments.constant(place) for place in range(0, len(arguments), 2)]
    if not all(isinstance(key, str) for key in constants):
        raise SignatureError(f"a key of JSON_OBJECT must be a constant text and not NULL. Call it as {syntax}.")
    _check_values("JSON_OBJECT", syntax, values)
    return Binding(arguments.types, _json_text())


def _bind_array(arguments: Arguments) -> Binding:
    _check_values("JSON_ARRAY", "JSON_ARRAY(value, …)", arguments.types)
    return Binding(arguments.types, _json_text())


def _bind_string(arguments: Arguments) -> Binding:
    if len(arguments) != 1:
        raise refusal("JSON_STRING", "JSON_STRING(value)", "one value", arguments.types)
    _check_values("JSON_STRING", "JSON_STRING(value)", arguments.types)
    type_ = arguments.types[0]
    return Binding(arguments.types, STRING.with_nullability(type_.is_nullable or isinstance(type_, NullType)))


def _define(syntax: str, doc: str, bind: Bind, **flags: Any) -> None:
    scalar(syntax, (), STRING, doc, FAMILY, bind=bind, is_expensive=True, **flags)


def _define_tests() -> None:
    doc = "Whether a string is JSON of the specified kind; FALSE for NULL."
    boolean = BooleanType()
    safe: dict[str, Any] = {"nulls": "never", "may_fail": False, "is_expensive": True}
    scalar("text IS JSON", [TEXT], boolean, doc, FAMILY, name="IS JSON", method="is_json", **safe)
    for kind in ("VALUE", "SCALAR", "ARRAY", "OBJECT"):
        noun = "JSON" if kind == "VALUE" else f"JSON's {kind.lower()}"
        for negation in ("", "NOT "):
            name = f"IS {negation}JSON {kind}"
            doc = f"Whether a string is {negation.lower()}{noun}; NULL is not JSON."
            scalar(f"text {name}", [TEXT], boolean, doc, FAMILY, name=name, **safe)


def _define_readers() -> None:
    doc = "The scalar at a path: text, number or boolean."
    _define("JSON_VALUE(json, path [RETURNING type] …)", doc, _bind_value, method="json_value")
    doc = "The array or object at a path, as JSON."
    _define("JSON_QUERY(json, path [RETURNING type] [wrapper] …)", doc, _bind_query, method="json_query")
    doc = "Whether a path has a match other than null."
    _define("JSON_EXISTS(json, path [FALSE ON ERROR])", doc, _bind_exists, method="json_exists")
    expensive: dict[str, Any] = {"family": FAMILY, "may_fail": False, "is_expensive": True, "nulls": "always"}
    path = [JSON_TEXT, optional(TEXT)]
    doc = "The number of elements, 1 for a scalar; NULL for malformed JSON or if the path has no match."
    scalar("JSON_LENGTH(json [, path])", path, IntType(), doc, method="json_length", **expensive)
    doc = "OBJECT, ARRAY, STRING, NUMBER, BOOLEAN or NULL; SQL NULL for malformed JSON or if the path has no match."
    scalar("JSON_TYPE(json [, path])", path, STRING, doc, method="json_type", **expensive)


def _define_makers() -> None:
    _define("JSON_OBJECT(key VALUE value, …)", "An object of keys and values.", _bind_object)
    _define("JSON_ARRAY(value, …)", "An array of values, without NULLs unless NULL ON NULL is specified.", _bind_array)
    _define("JSON_STRING(value)", "The value as JSON.", _bind_string, may_fail=False)
    doc = "JSON text, to be inserted into JSON_OBJECT or JSON_ARRAY unquoted."
    scalar("JSON(text)", [TEXT], lambda arguments: _json_text(), doc, FAMILY, is_expensive=True)
    safe: dict[str, Any] = {"family": FAMILY, "may_fail": False, "is_expensive": True}
    doc = "The text as a JSON string, quoted and escaped."
    scalar("JSON_QUOTE(text)", [TEXT], STRING, doc, method="json_quote", **safe)
    doc = "The text without its quotes and escapes; unchanged if it is not a JSON string."
    scalar("JSON_UNQUOTE(text)", [TEXT], STRING, doc, method="json_unquote", **safe)


_define_tests()
_define_readers()
_define_makers()
