"""Functions of text, JSON and collections: their result types, and the errors of unsupported arguments."""

from __future__ import annotations

from typing import Any

import pytest

from millstream.expressions.data_type import DataType
from millstream.expressions.functions.registry import Arguments, SignatureError, definition_of, definitions
from millstream.expressions.nested_types import ArrayType, MapType
from millstream.expressions.types import BigIntType, CharType, DateType, DoubleType, IntType, VarCharType
from millstream.runtime.expressions.kernel import KERNELS, REFERENCES, load_kernels, load_references

CHAR, INT = CharType(3, False), IntType(False)
FAMILIES = {"strings", "patterns", "json", "collections", "digests"}


def result_type(name: str, *types: DataType, constants: tuple[Any, ...] = (), **options: Any) -> str:
    """The type of a call's result."""
    definition = definition_of(name)
    assert definition is not None
    return str(definition.bind(Arguments(types, constants, tuple(options.items()))).result)


@pytest.mark.parametrize(
    ("name", "types", "wanted"),
    [
        ("UPPER", (CHAR,), "CHAR(3) NOT NULL"),
        ("TRIM", (CHAR,), "VARCHAR(3) NOT NULL"),
        ("SUBSTRING", (CHAR, INT), "VARCHAR(3)"),
        ("||", (CHAR, VarCharType(4, False)), "VARCHAR(7) NOT NULL"),
        ("SPLIT", (CHAR, CHAR), "ARRAY<STRING> NOT NULL"),
        ("STR_TO_MAP", (CHAR,), "MAP<STRING, STRING>"),
        ("REGEXP", (CHAR, VarCharType(1)), "BOOLEAN"),
        ("MD5", (CHAR,), "CHAR(32) NOT NULL"),
        ("ARRAY", (INT, BigIntType()), "ARRAY<BIGINT> NOT NULL"),
        ("MAP", (CHAR, INT), "MAP<CHAR(3) NOT NULL, INT NOT NULL> NOT NULL"),
        ("ROW", (INT, CHAR), "ROW<`EXPR$0` INT NOT NULL, `EXPR$1` CHAR(3) NOT NULL> NOT NULL"),
        ("ITEM", (ArrayType(INT, False), INT), "INT"),
        ("ARRAY_APPEND", (ArrayType(INT, False), IntType()), "ARRAY<INT>"),
        (
            "MAP_ENTRIES",
            (MapType(CHAR, INT, False),),
            "ARRAY<ROW<`key` CHAR(3) NOT NULL, `value` INT NOT NULL>> NOT NULL",
        ),
        ("IS_ALPHA", (VarCharType(3),), "BOOLEAN NOT NULL"),
    ],
)
def test_results_have_the_types_of_flink(name: str, types: tuple[DataType, ...], wanted: str) -> None:
    assert result_type(name, *types) == wanted


def test_json_value_returns_the_declared_type() -> None:
    assert result_type("JSON_VALUE", CHAR, CHAR) == "STRING"
    assert result_type("JSON_VALUE", CHAR, CHAR, returning=DoubleType()) == "DOUBLE"
    with pytest.raises(SignatureError, match="STRING, BOOLEAN, INT or DOUBLE, not DATE"):
        result_type("JSON_VALUE", CHAR, CHAR, returning=DateType())
    with pytest.raises(SignatureError, match="DEFAULT of JSON_VALUE is 'x', but it returns INT"):
        result_type("JSON_VALUE", CHAR, CHAR, returning=IntType(), on_empty=("DEFAULT", "x"))


@pytest.mark.parametrize(
    ("name", "types", "constants", "message"),
    [
        ("UPPER", (INT,), (), "UPPER takes text, got INT. Call it as UPPER(text)."),
        ("CONCAT", (CHAR, INT), (), "CONCAT takes text, got INT. Call it as CONCAT(text, …)."),
        ("ARRAY_CONTAINS", (ArrayType(INT), BigIntType()), (), "a value of INT for this array, got BIGINT"),
        ("ARRAY_SORT", (ArrayType(ArrayType(INT)),), (), "an array of values with an order"),
        ("ITEM", (ArrayType(INT), INT), (None, 0), "array indexes start at 1, so there is no element 0"),
        ("SHA2", (CHAR, INT), ("a", 100), "224, 256, 384 or 512 bits, not 100"),
        ("JSON_STRING", (DateType(),), (), "CAST others to STRING, got DATE"),
        ("MAP", (CHAR,), (), "MAP takes keys and values in turn"),
    ],
)
def test_an_error_lists_the_supported_arguments(
    name: str, types: tuple[DataType, ...], constants: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(SignatureError) as caught:
        result_type(name, *types, constants=constants)
    assert message in str(caught.value)


def test_every_function_of_these_families_has_a_kernel_and_a_reference() -> None:
    load_kernels()
    load_references()
    names = {definition.name for definition in definitions() if definition.family in FAMILIES}
    assert len(names) > 110
    assert names - set(KERNELS) == set()
    assert names - set(REFERENCES) == set()
