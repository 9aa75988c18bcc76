"""No function of Flink 2.3 is missing: each name that it lists is a function here, or documented as another construct.

`scripts/sql-oracle --functions` queried Flink for the names. Many belong to its Table API, in which operators have
names, too.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from millstream.errors import NotAvailableError, NotYetError
from millstream.expressions.functions.registry import definition_of
from millstream.planner.binder import Scope, bind_expression
from millstream.planner.session import PlannerSession
from millstream.sql.parser import parse_expression

NAMES = (Path(__file__).parents[3] / "fixtures" / "flink-functions.txt").read_text().split()

OTHER_NAMES = {
    "divide": "/", "equals": "=", "greaterThan": ">", "greaterThanOrEqual": ">=", "lessThan": "<",
    "lessThanOrEqual": "<=", "minus": "-", "minusPrefix": "-", "notEquals": "<>", "plus": "+", "times": "*",
    "ifThenElse": "IF", "isFalse": "IS FALSE", "isNotFalse": "IS NOT FALSE", "isNotNull": "IS NOT NULL",
    "isNotTrue": "IS NOT TRUE", "isNull": "IS NULL", "isTrue": "IS TRUE", "IS_JSON": "IS JSON", "at": "ITEM",
    "get": "FIELD", "lowerCase": "LOWER", "upperCase": "UPPER", "similar": "SIMILAR TO", "sum0": "$SUM0",
    "temporalOverlaps": "OVERLAPS", "TRANSLATE3": "TRANSLATE",
    "JSON_ARRAYAGG_ABSENT_ON_NULL": "JSON_ARRAYAGG", "JSON_ARRAYAGG_NULL_ON_NULL": "JSON_ARRAYAGG",
    "JSON_OBJECTAGG_ABSENT_ON_NULL": "JSON_OBJECTAGG", "JSON_OBJECTAGG_NULL_ON_NULL": "JSON_OBJECTAGG",
}  # fmt: skip
SYNTAX = frozenset(
    {"as", "asc", "desc", "distinct", "over", "between", "notBetween", "rangeTo", "withColumns", "withoutColumns"}
    | {"ASSIGNMENT", "DEFAULT", "flatten"}  # name => value, DEFAULT of an argument, row.*
)
"""What the syntax says, here as in Flink's SQL, and no function does."""
WINDOW_PROPERTIES = frozenset({"start", "end", "rowtime"})
FLINKS_OWN = frozenset(
    {"AGG_DECIMAL_MINUS", "AGG_DECIMAL_PLUS", "HIVE_AGG_DECIMAL_PLUS", "reinterpretCast", "streamRecordTimestamp"}
)
"""Which only its planner writes."""
NOT_BUILT = frozenset({"FROM_CHANGELOG", "TO_CHANGELOG", "ML_PREDICT"})
"""Functions of tables and models, which are refused by name."""


@pytest.mark.parametrize("name", NAMES)
def test_a_function_of_flink_exists(name: str) -> None:
    if name in SYNTAX | WINDOW_PROPERTIES | FLINKS_OWN | NOT_BUILT:
        return
    in_words = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name)
    definitions = [definition_of(each) for each in (OTHER_NAMES.get(name, name), in_words)]
    assert any(definitions), f"Flink has the function {name}; there is no {in_words.upper()} here"


@pytest.mark.parametrize("name", sorted(NOT_BUILT))
def test_unsupported_functions_are_rejected_by_name(name: str) -> None:
    with pytest.raises((NotYetError, NotAvailableError), match=name):
        bind_expression(parse_expression(f"{name}(1)"), Scope(), PlannerSession())
