"""Aggregate functions: signatures and result types.

The result for no rows is NULL. Without GROUP BY, or with FILTER, the planner therefore makes all results except counts
nullable. `COUNT(*)` is COUNT without arguments.
"""

from __future__ import annotations

from collections.abc import Callable

from millstream.expressions.data_type import DataType
from millstream.expressions.decimals import average_type, sum_aggregate_type
from millstream.expressions.functions.bitmaps import BITMAP
from millstream.expressions.functions.registry import (
    Arguments,
    Bind,
    Binding,
    FunctionDefinition,
    FunctionKind,
    define,
)
from millstream.expressions.functions.signatures import (
    ANY,
    INT,
    NUMBER,
    STRING,
    Parameter,
    optional,
    refusal,
    signature,
)
from millstream.expressions.nested_types import ArrayType, MultisetType
from millstream.expressions.types import (
    BigIntType,
    BitmapType,
    DecimalType,
    DoubleType,
    NullType,
    VarCharType,
    is_text,
)

__all__: list[str] = []

FAMILY = "aggregate"
_JSON = VarCharType(2000)
TEXT_OR_NULL = Parameter("text", lambda type_: type_ if is_text(type_) or isinstance(type_, NullType) else None)


def _aggregate(
    syntax: str,
    parameters: tuple[Parameter, ...],
    result: DataType | Callable[[Arguments], DataType],
    doc: str,
    nulls: str = "any",
    name: str | None = None,
    bind: Bind | None = None,
) -> None:
    function_name = name or syntax.split("(", 1)[0]
    rule = bind or signature(function_name, syntax, parameters, result, nulls)  # type: ignore[arg-type]
    define(FunctionDefinition(function_name, rule, syntax, doc, FAMILY, FunctionKind.AGGREGATE))


def _sum(arguments: Arguments) -> DataType:
    type_ = arguments.types[0]
    return sum_aggregate_type(type_) if isinstance(type_, DecimalType) else type_


def _average(arguments: Arguments) -> DataType:
    type_ = arguments.types[0]
    return average_type(type_) if isinstance(type_, DecimalType) else type_


def _variance(arguments: Arguments) -> DataType:
    """The type of variances and deviations: as for AVG, regardless of their fractions."""
    return _average(arguments)


def _first(arguments: Arguments) -> DataType:
    return arguments.types[0]


def _count(arguments: Arguments) -> Binding:
    return Binding(arguments.types, BigIntType(False))


def _approximate(arguments: Arguments) -> Binding:
    if len(arguments) != 1:
        raise refusal("APPROX_COUNT_DISTINCT", "APPROX_COUNT_DISTINCT(value)", "1 argument", arguments.types)
    return Binding(arguments.types, BigIntType(False))


_aggregate(
    "COUNT([DISTINCT] value [, …] | *)",
    (),
    BigIntType(False),
    "The number of rows without NULL in the arguments.",
    bind=_count,
)
_aggregate(
    "APPROX_COUNT_DISTINCT(value)",
    (),
    BigIntType(False),
    "The number of distinct values; exact here.",
    bind=_approximate,
)
_aggregate("SUM(number)", (NUMBER,), _sum, "The sum, of the argument's type; for decimals with 38 digits.")
_aggregate("SUM0(number)", (NUMBER,), _sum, "The sum, 0 for no rows.", "never", name="$SUM0")
_aggregate("AVG(number)", (NUMBER,), _average, "The mean, of the argument's type; truncated for integers.")
_aggregate("MIN(value)", (ANY,), _first, "The least value.")
_aggregate("MAX(value)", (ANY,), _first, "The greatest value.")
_aggregate("FIRST_VALUE(value)", (ANY,), _first, "The first value to arrive, of the rows still present.")
_aggregate("LAST_VALUE(value)", (ANY,), _first, "The last value to arrive, of the rows still present.")
_aggregate("SINGLE_VALUE(value)", (ANY,), _first, "The only value; an error if there are more.", "always")
_aggregate("LISTAGG(text [, separator])", (TEXT_OR_NULL, optional(TEXT_OR_NULL)), STRING, "The strings, concatenated.")
_aggregate(
    "COLLECT(value)",
    (ANY,),
    lambda arguments: MultisetType(arguments.types[0]),
    "All values with their number of occurrences.",
    "never",
)
_aggregate("ARRAY_AGG(value)", (ANY,), lambda arguments: ArrayType(arguments.types[0]), "All values, as an array.")
for _name, _doc in (
    ("VAR_POP", "The population variance."),
    ("VAR_SAMP", "The sample variance."),
    ("VARIANCE", "The same as VAR_SAMP."),
    ("STDDEV_POP", "The population standard deviation."),
    ("STDDEV_SAMP", "The sample standard deviation."),
    ("STDDEV", "The same as STDDEV_SAMP."),
):
    _aggregate(f"{_name}(number)", (NUMBER,), _variance, _doc)
_aggregate(
    "JSON_OBJECTAGG([KEY] key VALUE value)", (TEXT_OR_NULL, ANY), _JSON, "A JSON object of keys and values.", "never"
)
_aggregate("JSON_ARRAYAGG(value)", (ANY,), _JSON, "A JSON array of the values.", "never")
_aggregate(
    "PERCENTILE(number, percentage [, frequency])",
    (NUMBER, ANY, optional(NUMBER)),
    lambda arguments: ArrayType(DoubleType()) if isinstance(arguments.types[1], ArrayType) else DoubleType(),
    "The value at a percentage of the ordered values.",
    "always",
)
for _name, _doc in (
    ("BUILD", "The bitmap of the numbers."),
    ("AND", "The intersection of all bitmaps."),
    ("OR", "The union of all bitmaps."),
    ("XOR", "The numbers in an odd number of the bitmaps."),
):
    _noun, _parameter = ("number", INT) if _name == "BUILD" else ("bitmap", BITMAP)
    _aggregate(f"BITMAP_{_name}_AGG({_noun})", (_parameter,), BitmapType(), _doc, "always")
    _count_doc = f"The number of elements: BITMAP_CARDINALITY of BITMAP_{_name}_AGG."
    _aggregate(f"BITMAP_{_name}_CARDINALITY_AGG({_noun})", (_parameter,), BigIntType(), _count_doc, "always")
