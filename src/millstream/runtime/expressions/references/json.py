"""References of the JSON functions, verified against Flink 2.3."""

from __future__ import annotations

import base64
import datetime as dt
import decimal
import re
from typing import Any

from millstream.expressions.data_type import DataType
from millstream.expressions.functions.json import holds_json
from millstream.expressions.functions.json_options import default_of
from millstream.expressions.nested_types import ArrayType, MapType, RowType
from millstream.expressions.row_expressions import Call, Literal
from millstream.expressions.types import DoubleType, IntType, LocalZonedTimestampType, VarCharType, VariantType
from millstream.runtime.expressions.java_text import of_units, units_of
from millstream.runtime.expressions.json_paths import MISSING, JsonPath, json_path
from millstream.runtime.expressions.json_text import JsonError, WrittenNumber, json_text, read_json
from millstream.runtime.expressions.kernel import CallContext, EvaluationError, reference
from millstream.runtime.expressions.number_texts import float_text
from millstream.runtime.expressions.references.formats import iso_moment
from millstream.runtime.expressions.references.null_rules import null_of_null
from millstream.runtime.expressions.variants import read_variant

__all__ = ["json_value"]

_KINDS = ("VALUE", "SCALAR", "ARRAY", "OBJECT")
_NAMES = tuple(f"IS {negation}JSON {kind}" for kind in _KINDS for negation in ("", "NOT "))
_SHORT = {'"': '\\"', "\\": "\\\\", "/": "\\/", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_LONG = {short[1]: character for character, short in _SHORT.items()}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)


@reference("IS JSON", *_NAMES)
def is_json(context: CallContext, text: str | None) -> bool:
    """The kind is taken from the function's name or from an option of the call."""
    words = context.call.function.split()
    kind = words[-1] if words[-1] in _KINDS else context.option("kind", "VALUE")
    return _is_kind(text, kind) != ("NOT" in words)


def _is_kind(text: str | None, kind: str) -> bool:
    if text is None:
        return False
    try:
        value = read_json(text)
    except JsonError:
        return False
    return {
        "VALUE": True,
        "SCALAR": not isinstance(value, list | dict),
        "ARRAY": isinstance(value, list),
        "OBJECT": isinstance(value, dict),
    }[kind]


def _match(text: str, path: str) -> tuple[JsonPath, Any]:
    """The path and its match, or None. Malformed JSON is not a match for lax paths; null is an error for strict
    ones."""
    route = json_path(path)
    try:
        document = read_json(text)
    except JsonError:
        if route.is_strict:
            raise
        return route, None
    if document is None:
        raise JsonError("null has no members")
    value = route.find(document)
    if value is None and route.is_strict:
        raise JsonError("the match is null")
    return route, None if value is MISSING else value


@reference("JSON_EXISTS")
@null_of_null
def json_exists(context: CallContext, text: str, path: str) -> bool | None:
    behaviour = context.option("on_error", "FALSE")
    try:
        return _match(text, path)[1] is not None
    except JsonError as problem:
        if behaviour == "ERROR":
            raise EvaluationError(str(problem)) from None
        return {"TRUE": True, "FALSE": False, "UNKNOWN": None}[behaviour]


@reference("JSON_VALUE")
@null_of_null
def json_value(context: CallContext, text: str, path: str) -> Any:
    """JSON_VALUE. For lax paths, null, arrays and objects are treated as EMPTY; any other failure is an ERROR."""
    try:
        route, value = _match(text, path)
        if isinstance(value, list | dict):
            if route.is_strict:
                raise JsonError("the match is an array or object, not a scalar")
            value = None
    except JsonError as problem:
        return _fallback(context, "on_error", str(problem))
    if value is None:
        return _fallback(context, "on_empty", f"the path {path!r} has no match")
    return _convert(value, context.type)


def _fallback(context: CallContext, option: str, reason: str) -> Any:
    word, default = default_of(dict(context.call.options), option, context.type)
    if word == "ERROR":
        raise EvaluationError(reason)
    return default


def _convert(value: Any, type_: DataType) -> Any:
    """Converts a scalar to the type of RETURNING."""
    if isinstance(type_, VarCharType):
        text = of_units(value) if isinstance(value, str) else json_text(value)
        return text[: type_.length]
    is_number = isinstance(value, int | decimal.Decimal) and not isinstance(value, bool)
    if isinstance(type_, IntType):
        fits = isinstance(value, int) and is_number and -(2**31) <= value < 2**31
    elif isinstance(type_, DoubleType):
        fits, value = is_number, float(value) if is_number else value
    else:
        fits = isinstance(value, bool)
    if not fits:
        raise EvaluationError(
            f"{json_text(value) if not isinstance(value, float) else value} is not a valid {type_.nullable()}"
        )
    return value


@reference("JSON_QUERY")
@null_of_null
def json_query(context: CallContext, text: str, path: str) -> Any:
    """JSON_QUERY: an array or object, or any value wrapped in an array; with RETURNING ARRAY the elements as
    strings."""
    wrapper = context.option("wrapper", "WITHOUT").removesuffix("_ARRAY")
    try:
        route, value = _match(text, path)
        keeps = wrapper == "WITHOUT" or (wrapper == "CONDITIONAL" and isinstance(value, list))
        value = value if value is None or keeps else [value]
        if value is not None and not isinstance(value, list | dict):
            if route.is_strict:
                raise JsonError("the match is not an array or object")
            value = None
        if isinstance(value, dict) and isinstance(context.type, ArrayType):
            raise JsonError("the match is an object, not an array")
    except JsonError as problem:
        return _query_result(context, _query_fallback(context.option("on_error", "NULL"), str(problem)))
    if value is None:
        reason = f"the path {path!r} has no match"
        return _query_result(context, _query_fallback(context.option("on_empty", "NULL"), reason))
    return _query_result(context, value)


def _query_result(context: CallContext, value: Any) -> Any:
    """Converts a JSON value to the result of JSON_QUERY."""
    if value is None:
        return None
    if not isinstance(context.type, ArrayType):
        return _cut(json_text(value), context.type)
    type_ = context.type.element_type
    return [
        None if each is None else _cut(of_units(each) if isinstance(each, str) else json_text(each), type_)
        for each in value
    ]


def _cut(text: str, type_: DataType) -> str:
    return text[: type_.length] if isinstance(type_, VarCharType) else text


def _query_fallback(behaviour: str, reason: str) -> Any:
    behaviour = behaviour.replace("_", " ")  # the Table API uses underscores
    if behaviour == "ERROR":
        raise EvaluationError(reason)
    return {"NULL": None, "EMPTY ARRAY": [], "EMPTY OBJECT": {}}[behaviour]


def _at(text: str, path: str | None) -> Any:
    """The single match of a path; MISSING if the path does not match or the string is not JSON."""
    try:
        document = read_json(text)
        if path is None:
            return document
        route = json_path(path)
        value = route.find(document)
    except JsonError:
        return MISSING
    if route.is_definite or value is MISSING:
        return value
    return value[0] if len(value) == 1 else MISSING


@reference("JSON_LENGTH")
@null_of_null
def json_length(context: CallContext, text: str, path: str | None = None) -> int | None:
    value = _at(text, path)
    if value is MISSING:
        return None
    return len(value) if isinstance(value, list | dict) else 1


@reference("JSON_TYPE")
@null_of_null
def json_type(context: CallContext, text: str, path: str | None = None) -> str | None:
    value = _at(text, path)
    names = {dict: "OBJECT", list: "ARRAY", str: "STRING", bool: "BOOLEAN", type(None): "NULL"}
    return None if value is MISSING else names.get(type(value), "NUMBER")


# --- constructing JSON ------------------------------------------------------------------------------------------------


def _plain(value: Any, type_: DataType) -> Any:
    """Converts an SQL value for `json_text`."""
    if value is None or isinstance(value, bool | int | decimal.Decimal):
        return value
    if isinstance(type_, VariantType):
        return read_variant(value)
    if isinstance(type_, ArrayType):
        return [_plain(each, type_.element_type) for each in value]
    if isinstance(type_, MapType):
        return {key: _plain(each, type_.value_type) for key, each in value.items()}
    if isinstance(type_, RowType):
        return {name: _plain(each, field) for name, field, each in zip(type_.names, type_.types, value, strict=True)}
    if isinstance(value, float):
        # As a DOUBLE, formatted like Java's decimals: 1.0E+10, 0.000010.
        shown = float_text(value)
        is_number = shown.lstrip("-") not in ("NaN", "Infinity")
        return WrittenNumber(str(decimal.Decimal(shown)) if value else "0.0") if is_number else shown
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, dt.datetime):
        return iso_moment(value) + ("Z" if isinstance(type_, LocalZonedTimestampType) else "")
    return value


def _argument(context: CallContext, place: int, value: Any) -> Any:
    """A value to insert into JSON; results of JSON functions are inserted as JSON."""
    argument = context.call.arguments[place]
    is_json = isinstance(argument, Call | Literal) and holds_json(argument.type)
    if value is not None and is_json:
        return read_json(value)
    return _plain(value, argument.type)


@reference("JSON_OBJECT")
def json_object(context: CallContext, *parts: Any) -> str:
    """JSON_OBJECT with sorted keys; NULL values are included unless ABSENT ON NULL is specified."""
    absent = context.option("on_null", "NULL") == "ABSENT"
    pairs: dict[str, Any] = {}
    for place in range(0, len(parts), 2):
        key, value = parts[place], parts[place + 1]
        if key is not None and (value is not None or not absent):  # keys are constants, which are not NULL
            pairs[key] = _argument(context, place + 1, value)
    return json_text(pairs)


@reference("JSON_ARRAY")
def json_array(context: CallContext, *values: Any) -> str:
    absent = context.option("on_null", "ABSENT") == "ABSENT"
    items = [_argument(context, place, value) for place, value in enumerate(values) if value is not None or not absent]
    return json_text(items)


@reference("JSON_STRING")
@null_of_null
def json_string(context: CallContext, value: Any) -> str:
    return json_text(_plain(value, context.argument_types[0]))


@reference("JSON")
@null_of_null
def json_(context: CallContext, text: str) -> str:
    try:
        return json_text(read_json(text))
    except JsonError as problem:
        raise EvaluationError(str(problem)) from None


@reference("JSON_QUOTE")
@null_of_null
def json_quote(context: CallContext, text: str) -> str:
    """Escapes all characters beyond ASCII as Flink does: an emoji by its code point, then by its second UTF-16 unit."""
    quoted: list[str] = []
    for character in text:
        if character <= "\x7f":
            quoted.append(_SHORT.get(character, character))
        else:
            quoted.append(f"\\u{ord(character):04x}")
            if character > "\uffff":
                quoted.append(f"\\u{ord(units_of(character)[1]):04x}")
    return f'"{"".join(quoted)}"'


@reference("JSON_UNQUOTE")
@null_of_null
def json_unquote(context: CallContext, text: str) -> str:
    if len(text) < 2 or text[0] != '"' or text[-1] != '"':
        return text
    inside = text[1:-1]
    for match in _ESCAPE.finditer(inside):
        if match[1] is None and match[2] not in _LONG:
            return text
    if re.search(r"(?<!\\)(?:\\\\)*\\$", inside):
        return text
    units = _ESCAPE.sub(lambda match: chr(int(match[1], 16)) if match[1] else _LONG[match[2]], inside)
    return of_units(units)
