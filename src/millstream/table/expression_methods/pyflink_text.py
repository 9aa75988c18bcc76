"""An expression as PyFlink prints it: `plus(a, 1)`, `as(sum(a), 'total')`. Programs compare and log this text.

Flink prints the name of each built-in function's definition: `upper` for UPPER, `ARRAY_MAX` for ARRAY_MAX. `_NAMES`
lists only functions with two different names. SQL text (`call_sql`) is printed as written, in brackets. A node that
PyFlink can build in two ways is printed in the more usual form.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

from millstream.common.typeinfo.number_text import number_text
from millstream.sql import syntax

__all__ = ["pyflink_text"]

_NAMES = {
    "+": "plus", "-": "minus", "*": "times", "/": "divide", "%": "mod", "AND": "and", "OR": "or", "NOT": "not",
    "=": "equals", "<>": "notEquals", ">": "greaterThan", ">=": "greaterThanOrEqual", "<": "lessThan",
    "<=": "lessThanOrEqual", "IS NULL": "isNull", "IS NOT NULL": "isNotNull", "IS TRUE": "isTrue",
    "IS FALSE": "isFalse", "IS NOT TRUE": "isNotTrue", "IS NOT FALSE": "isNotFalse", "$SUM0": "sum0",
    "LISTAGG": "listAgg", "STDDEV_POP": "stddevPop", "STDDEV_SAMP": "stddevSamp", "VAR_POP": "varPop",
    "VAR_SAMP": "varSamp", "CHAR_LENGTH": "charLength", "INITCAP": "initCap", "TRANSLATE": "TRANSLATE3",
    "REGEXP_EXTRACT": "regexpExtract", "REGEXP_REPLACE": "regexpReplace", "FROM_BASE64": "fromBase64",
    "TO_BASE64": "toBase64", "PARSE_URL": "parseUrl", "SPLIT_INDEX": "splitIndex", "STR_TO_MAP": "strToMap",
    "RAND_INTEGER": "randInteger", "CURRENT_DATABASE": "currentDatabase", "CURRENT_DATE": "currentDate",
    "CURRENT_TIME": "currentTime", "CURRENT_TIMESTAMP": "currentTimestamp", "LOCALTIME": "localTime",
    "LOCALTIMESTAMP": "localTimestamp", "DATE_FORMAT": "dateFormat", "TIMESTAMPDIFF": "timestampDiff",
    "CONVERT_TZ": "convertTz", "FROM_UNIXTIME": "fromUnixtime", "UNIX_TIMESTAMP": "unixTimestamp",
    "TO_DATE": "toDate", "TO_TIMESTAMP": "toTimestamp", "WINDOW_START": "start", "WINDOW_END": "end",
    "WITH_COLUMNS": "withColumns", "WITHOUT_COLUMNS": "withoutColumns", "RANGE_TO": "rangeTo",
}  # fmt: skip
_IN_SMALL_LETTERS = frozenset((
    "ABS", "ACOS", "ARRAY", "ASCII", "ASIN", "AT", "ATAN", "ATAN2", "AVG", "BIN", "CARDINALITY", "CEIL", "CHR",
    "COLLECT", "CONCAT", "CONCAT_WS", "COS", "COSH", "COT", "COUNT", "DECODE", "DEGREES", "E", "ELEMENT", "ENCODE",
    "EXP", "FIRST_VALUE", "FLOOR", "HEX", "INSTR", "LAG", "LAST_VALUE", "LEAD", "LEFT", "LN", "LOCATE", "LOG",
    "LOG10", "LOG2", "LOWER", "LPAD", "LTRIM", "MAP", "MAX", "MD5", "MIN", "OVERLAY", "PI", "POSITION", "POWER",
    "PROCTIME", "RADIANS", "RAND", "REGEXP", "REPEAT", "REPLACE", "REVERSE", "RIGHT", "ROUND", "ROWTIME", "RPAD",
    "RTRIM", "SHA1", "SHA2", "SHA224", "SHA256", "SHA384", "SHA512", "SIGN", "SIN", "SINH", "SQRT", "SUBSTR",
    "SUBSTRING", "SUM", "TAN", "TANH", "TRUNCATE", "UPPER", "UUID",
))  # fmt: skip
_BOUNDS = frozenset(("UNBOUNDED_ROW", "UNBOUNDED_RANGE", "CURRENT_ROW", "CURRENT_RANGE"))
_MILLIS = {"DAY": 86_400_000, "HOUR": 3_600_000, "MINUTE": 60_000, "SECOND": 1000}


def pyflink_text(node: Any) -> str:
    """A node of an expression in the format of PyFlink's `str`."""
    if node.span is not None:
        return f"[{node.span.text}]"
    maker = _MAKERS.get(type(node))
    return maker(node) if maker else type(node).__name__


def _called(name: str, *arguments: str) -> str:
    return f"{name}({', '.join(arguments)})"


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _texts(nodes: Any) -> list[str]:
    return [pyflink_text(node) for node in nodes]


def _call(node: syntax.Call) -> str:
    arguments, options = _texts(node.arguments), dict(node.options)
    if node.path or "function" in options:
        return _called(".".join((*node.path, node.name)), *arguments)
    if node.name in _BOUNDS and not arguments:
        return node.name
    if node.name in _SPECIAL:
        return str(_SPECIAL[node.name](node, arguments, options))
    if node.name == "-" and len(arguments) == 1:
        return _called("minusPrefix", *arguments)
    if node.name in _IN_SMALL_LETTERS:
        return _called(node.name.lower(), *arguments, *map(str, options.values()))
    return _called(_NAMES.get(node.name, node.name), *arguments)


def _trim(_: syntax.Call, arguments: list[str], options: dict[str, Any]) -> str:
    side = options.get("side", "BOTH")
    leading, trailing = (str(side in ("BOTH", each)).lower() for each in ("LEADING", "TRAILING"))
    return _called("trim", leading, trailing, arguments[1] if len(arguments) > 1 else "' '", arguments[0])


def _unit_first(node: syntax.Call, arguments: list[str], options: dict[str, Any]) -> str:
    return _called(_NAMES.get(node.name, node.name.lower()), *map(str, options.values()), *arguments)


def _overlaps(node: syntax.Call, _: list[str], __: dict[str, Any]) -> str:
    return _called("temporalOverlaps", *(each for row in node.arguments for each in _texts(row.values)))  # type: ignore[attr-defined]


def _json_exists(_: syntax.Call, arguments: list[str], options: dict[str, Any]) -> str:
    return _called("JSON_EXISTS", *arguments, *map(str, options.values()))


def _json_value(_: syntax.Call, arguments: list[str], options: dict[str, Any]) -> str:
    words = [str(options.get("returning", "STRING"))]
    for option in ("on_empty", "on_error"):
        act, default = options.get(option, ("NULL", None))
        words += [act, "null" if default is None else pyflink_text(default)]
    return _called("JSON_VALUE", *arguments, *words)


def _json_query(_: syntax.Call, arguments: list[str], options: dict[str, Any]) -> str:
    acts = [str(options.get(each, "NULL")).replace(" ", "_") for each in ("on_empty", "on_error")]
    return _called("JSON_QUERY", *arguments, "STRING", f"{options.get('wrapper', 'WITHOUT')}_ARRAY", *acts)


def _json_made(node: syntax.Call, arguments: list[str], options: dict[str, Any]) -> str:
    return _called(node.name, *map(str, options.values()), *arguments)


def _json_aggregate(node: syntax.Call, arguments: list[str], options: dict[str, Any]) -> str:
    return _called(f"{node.name}_{options.get('on_null', 'NULL')}_ON_NULL", *arguments)


def _is_json(node: syntax.Call, arguments: list[str], _: dict[str, Any]) -> str:
    kind = node.name.removeprefix("IS JSON ")
    return _called("IS_JSON", *arguments, *([] if kind == "VALUE" else [kind]))


_SPECIAL: dict[str, Any] = {
    "TRIM": _trim,
    "EXTRACT": _unit_first,
    "TIMESTAMPDIFF": _unit_first,
    "OVERLAPS": _overlaps,
    "JSON_EXISTS": _json_exists,
    "JSON_VALUE": _json_value,
    "JSON_QUERY": _json_query,
    "JSON_OBJECT": _json_made,
    "JSON_ARRAY": _json_made,
    "JSON_OBJECTAGG": _json_aggregate,
    "JSON_ARRAYAGG": _json_aggregate,
    "ROW_INTERVAL": lambda _, arguments, __: arguments[0],
    "LISTAGG": lambda _, arguments, __: _called("listAgg", *arguments, *(["','"] if len(arguments) == 1 else [])),
    **{f"IS JSON {kind}": _is_json for kind in ("VALUE", "OBJECT", "ARRAY", "SCALAR")},
}


def _literal(node: syntax.Literal) -> str:
    value = node.value
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, float):
        return number_text(value)
    if isinstance(value, bytes | bytearray):
        return str([byte - 256 if byte > 127 else byte for byte in value])
    if isinstance(value, datetime.timedelta):
        return str(value // datetime.timedelta(milliseconds=1))
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else str(value)


def _interval(node: syntax.Interval) -> str:
    """Formats a year-month interval in months, any other in milliseconds, as Flink does."""
    count = -Decimal(node.value) if node.negative else Decimal(node.value)
    if node.unit in ("YEAR", "MONTH"):
        return str(int(count * (12 if node.unit == "YEAR" else 1)))
    return str(int(count * _MILLIS[node.unit]))


def _cast(node: syntax.Cast) -> str:
    if isinstance(node.operand, syntax.Literal) and node.operand.kind == "NULL":
        return "null"  # null_of(...)
    return _called("TRY_CAST" if node.is_try else "cast", pyflink_text(node.operand), str(node.target))


def _in(node: syntax.In) -> str:
    values = _texts(node.values) if node.query is None else ["UnnamedTable"]
    return _called("in", pyflink_text(node.operand), *values)


def _like(node: syntax.Like) -> str:
    escape = [] if node.escape is None else [node.escape]
    return _called("similar" if node.similar else "LIKE", *_texts((node.operand, node.pattern, *escape)))


def _field(node: syntax.FieldAccess) -> str:
    operand = pyflink_text(node.operand)
    if node.name == "*":
        return _called("flatten", operand)
    return _called("get", operand, node.name[1:] if node.name.startswith("#") else _quoted(node.name))


def _aggregated(node: syntax.Aggregated) -> str:
    called = _call(node.call)
    return _called("distinct", called) if node.distinct else called


_MAKERS: dict[type, Any] = {
    syntax.Name: lambda node: ".".join(node.parts),
    syntax.Star: lambda node: "*",
    syntax.Literal: _literal,
    syntax.Interval: _interval,
    syntax.Call: _call,
    syntax.Cast: _cast,
    syntax.Case: lambda node: _called("ifThenElse", *_texts((*node.whens[0], node.otherwise))),
    syntax.Between: lambda node: _called(
        "notBetween" if node.negated else "between", *_texts((node.operand, node.low, node.high))
    ),
    syntax.In: _in,
    syntax.Like: _like,
    syntax.As: lambda node: _called("as", pyflink_text(node.operand), *map(_quoted, node.names)),
    syntax.Argument: lambda node: _called("ASSIGNMENT", _quoted(node.name), pyflink_text(node.value)),
    syntax.RowValue: lambda node: _called("row", *_texts(node.values)),
    syntax.FieldAccess: _field,
    syntax.ItemAccess: lambda node: _called("at", *_texts((node.operand, node.index))),
    syntax.Aggregated: _aggregated,
    syntax.OrderItem: lambda node: _called("desc" if node.descending else "asc", pyflink_text(node.expression)),
    syntax.Over: lambda node: _called("over", pyflink_text(node.call), str(node.window)),
    syntax.Descriptor: lambda node: _called("descriptor", *map(_quoted, node.columns)),
}
