"""The input of scripts/sql-oracle, without a Flink: lists of expressions, and literals made opaque."""

from __future__ import annotations

import pytest
from inputs.project_scripts import script_module

ORACLE = script_module("scripts/sql-oracle")


def test_a_list_has_comments_zones_expressions_and_type_only_expressions() -> None:
    text = "# times\n1 + 1\n\nzone: Europe/Berlin\nNOW()\n? RAND()\n"
    assert list(ORACLE.cases(text)) == [
        ("UTC", True, "1 + 1"),
        ("Europe/Berlin", True, "NOW()"),
        ("Europe/Berlin", False, "RAND()"),
    ]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("1 + 2.5", "OPAQUE(1) + OPAQUE(2.5)"),
        ("UPPER('it''s')", "UPPER(OPAQUE('it''s'))"),
        ("DATE '2020-01-01' + INTERVAL '1' DAY", "OPAQUE(DATE '2020-01-01') + OPAQUE(INTERVAL '1' DAY)"),
        ("INTERVAL '1 02:03' DAY(3) TO MINUTE", "OPAQUE(INTERVAL '1 02:03' DAY(3) TO MINUTE)"),
        ("CAST(1 AS DECIMAL(10, 2))", "CAST(OPAQUE(1) AS DECIMAL(10, 2))"),
        ("TO_TIMESTAMP_LTZ(0, 3)", "TO_TIMESTAMP_LTZ(OPAQUE(0), OPAQUE(3))"),
        ("(1 = 1) IS TRUE", "(OPAQUE(1) = OPAQUE(1)) IS TRUE"),
        ("(1 = 1) IS NOT FALSE", "(OPAQUE(1) = OPAQUE(1)) IS NOT FALSE"),
        ("TRUE AND FALSE", "OPAQUE(TRUE) AND OPAQUE(FALSE)"),
        ("LOG2(1e3)", "LOG2(OPAQUE(1e3))"),
        ("X'0A' = X''", "OPAQUE(X'0A') = OPAQUE(X'')"),
        ("col1 + t.c2", "col1 + t.c2"),
    ],
)
def test_every_literal_and_nothing_else_is_made_opaque(expression: str, expected: str) -> None:
    assert ORACLE.opaque(expression) == expected
