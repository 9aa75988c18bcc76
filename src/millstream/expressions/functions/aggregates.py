"""Aggregate functions: signatures and types of results.

A result is NULL where no row was there; so without GROUP BY, or with FILTER, the planner makes every result nullable
but those of counts. `COUNT(*)` is COUNT without arguments.
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
    called = name or syntax.split("(", 1)[0]
    rule = bind or signature(called, syntax, parameters, result, nulls)  # type: ignore[arg-type]
    define(FunctionDefinition(called, rule, syntax, doc, FAMILY, FunctionKind.AGGREGATE))


def _sum(arguments: Arguments) -> DataType:
    type_ = arguments.types[0]
    return sum_aggregate_type(type_) if isinstance(type_, DecimalType) else type_


def _average(arguments: Arguments) -> DataType:
    type_ = arguments.types[0]
    return average_type(type_) if isinstance(type_, DecimalType) else type_


def _spread(arguments: Arguments) -> DataType:
    """Of variances and deviations: as AVG, whatever their fractions."""
    return _average(arguments)


def _first(arguments: Arguments) -> DataType:
    return arguments.types[0]


def _count(arguments: Arguments) -> Binding:
    return Binding(arguments.types, BigIntType(False))


def _approximate(arguments: Arguments) -> Binding:
    if len(arguments) != 1:
        raise refusal("APPROX_COUNT_DISTINCT", "APPROX_COUNT_DISTINCT(value)", "1 argument", arguments.types)
    return Binding(arguments.types, BigIntType(False))


_aggregate("COUNT([DISTINCT] value [, …] | *)", (), BigIntType(False), "How many rows have no NULL in it.", bind=_count)
_aggregate(
    "APPROX_COUNT_DISTINCT(value)", (), BigIntType(False), "How many different values; exact here.", bind=_approximate
)
_aggregate("SUM(number)", (NUMBER,), _sum, "The sum, of the numbers' own type; of decimals with 38 digits.")
_aggregate("SUM0(number)", (NUMBER,), _sum, "The sum, 0 where there is no row.", "never", name="$SUM0")
_aggregate("AVG(number)", (NUMBER,), _average, "The mean, of the numbers' own type: of whole numbers, cut.")
_aggregate("MIN(value)", (ANY,), _first, "The least value.")
_aggregate("MAX(value)", (ANY,), _first, "The greatest value.")
_aggregate("FIRST_VALUE(value)", (ANY,), _first, "The first value that came, of those that are there.")
_aggregate("LAST_VALUE(value)", (ANY,), _first, "The last value that came, of those that are there.")
_aggregate("SINGLE_VALUE(value)", (ANY,), _first, "The one value there is; it fails where there are more.", "always")
_aggregate(
    "LISTAGG(text [, separator])", (TEXT_OR_NULL, optional(TEXT_OR_NULL)), STRING, "The texts, one after another."
)
_aggregate(
    "COLLECT(value)",
    (ANY,),
    lambda given: MultisetType(given.types[0]),
    "All values, each as often as it is there.",
    "never",
)
_aggregate("ARRAY_AGG(value)", (ANY,), lambda given: ArrayType(given.types[0]), "All values, as an array.")
for _name, _doc in (
    ("VAR_POP", "The variance of the whole."),
    ("VAR_SAMP", "The variance of a sample."),
    ("VARIANCE", "The same as VAR_SAMP."),
    ("STDDEV_POP", "The standard deviation of the whole."),
    ("STDDEV_SAMP", "The standard deviation of a sample."),
    ("STDDEV", "The same as STDDEV_SAMP."),
):
    _aggregate(f"{_name}(number)", (NUMBER,), _spread, _doc)
_aggregate(
    "JSON_OBJECTAGG([KEY] key VALUE value)", (TEXT_OR_NULL, ANY), _JSON, "An object of keys and values.", "never"
)
_aggregate("JSON_ARRAYAGG(value)", (ANY,), _JSON, "An array of the values, as JSON.", "never")
_aggregate(
    "PERCENTILE(number, percentage [, frequency])",
    (NUMBER, ANY, optional(NUMBER)),
    lambda given: ArrayType(DoubleType()) if isinstance(given.types[1], ArrayType) else DoubleType(),
    "The value below which so many of all lie.",
    "always",
)
for _name, _doc in (
    ("BUILD", "The bitmap of the numbers."),
    ("AND", "The numbers that all bitmaps have."),
    ("OR", "The numbers that some bitmap has."),
    ("XOR", "The numbers that an odd number of the bitmaps has."),
):
    _noun, _parameter = ("number", INT) if _name == "BUILD" else ("bitmap", BITMAP)
    _aggregate(f"BITMAP_{_name}_AGG({_noun})", (_parameter,), BitmapType(), _doc, "always")
    _count_doc = f"How many there are of them: BITMAP_CARDINALITY of BITMAP_{_name}_AGG."
    _aggregate(f"BITMAP_{_name}_CARDINALITY_AGG({_noun})", (_parameter,), BigIntType(), _count_doc, "always")
