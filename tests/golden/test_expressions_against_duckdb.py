"""Random WHERE and SELECT over integers, booleans and text match DuckDB.

Only features that both define alike: sums of small numbers (DuckDB raises where ours wrap around), comparisons,
three-valued logic, CASE, COALESCE, IN, NULLIF, IS DISTINCT FROM. Both get the same SQL text.
"""

from __future__ import annotations

from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from millstream.expressions.data_types import DataTypes
from millstream.planner.binding.expressions import bind_expression
from millstream.planner.binding.scope import NamedSource, Scope
from millstream.planner.relations import Field
from millstream.planner.session import PlannerSession
from millstream.runtime.expressions.compile import compile_program
from millstream.runtime.expressions.kernel import SessionFacts
from millstream.sql.parser import parse_expression

FIELDS = (
    Field("a", DataTypes.BIGINT()),
    Field("b", DataTypes.BIGINT()),
    Field("c", DataTypes.BIGINT(False)),
    Field("p", DataTypes.BOOLEAN()),
    Field("q", DataTypes.BOOLEAN()),
    Field("s", DataTypes.STRING()),
    Field("t", DataTypes.STRING()),
)
ROWS = 60


class Writer:
    """Random SQL."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)

    def number(self, depth: int) -> str:
        shape = self.random.randrange(8) if depth else self.random.randrange(3)
        if shape < 2:
            return self.random.choice("abc")
        if shape == 2:
            return (
                str(self.random.randint(-5, 5)).replace("-", "0 - ")
                if self.random.random() < 0.2
                else str(self.random.randint(0, 9))
            )
        one, two = self.number(depth - 1), self.number(depth - 1)
        if shape < 5:
            return f"({one} {self.random.choice('+-*')} {two})"
        if shape == 5:
            return f"CASE WHEN {self.truth(depth - 1)} THEN {one} ELSE {two} END"
        return f"{self.random.choice(('COALESCE', 'NULLIF'))}({one}, {two})" if shape == 6 else f"ABS({one})"

    def text(self, depth: int) -> str:
        shape = self.random.randrange(4) if depth else self.random.randrange(2)
        if shape == 0:
            return self.random.choice("st")
        if shape == 1:
            return self.random.choice(("'x'", "'y'", "''"))
        if shape == 2:
            branches = [f"WHEN {self.truth(depth - 1)} THEN {self.text(depth - 1)}" for _ in range(2)]
            return f"CASE {' '.join(branches)} END"
        return f"COALESCE({self.text(depth - 1)}, {self.text(depth - 1)})"

    def truth(self, depth: int) -> str:
        shape = self.random.randrange(9) if depth else 0
        if shape == 0:
            return self.random.choice(("p", "q"))
        below = depth - 1
        if shape in (1, 2):
            kind = self.random.choice((self.number, self.text))
            operator = self.random.choice(("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM"))
            return f"({kind(below)} {operator} {kind(below)})"
        if shape in (3, 4):
            return f"({self.truth(below)} {self.random.choice(('AND', 'OR'))} {self.truth(below)})"
        if shape == 5:
            return f"(NOT {self.truth(below)})"
        if shape == 6:
            members = ", ".join(self.number(below) for _ in range(self.random.randint(1, 3)))
            return f"({self.number(below)} {self.random.choice(('IN', 'NOT IN'))} ({members}))"
        if shape == 7:
            return f"({self.number(below)} BETWEEN {self.number(below)} AND {self.number(below)})"
        kind = self.random.choice((self.number, self.text, self.truth))
        return f"({kind(below)} IS {self.random.choice(('', 'NOT '))}NULL)"


def columns_of(seed: int) -> dict[str, pa.Array]:
    random = Random(seed)

    def column(values: list[Any], type_: pa.DataType, nulls: float) -> pa.Array:
        return pa.array([None if random.random() < nulls else random.choice(values) for _ in range(ROWS)], type_)

    small = list(range(-4, 5))
    return {
        "a": column(small, pa.int64(), 0.2),
        "b": column(small, pa.int64(), 0.2),
        "c": column(small, pa.int64(), 0),
        "p": column([True, False], pa.bool_(), 0.3),
        "q": column([True, False], pa.bool_(), 0.3),
        "s": column(["x", "y", "", "xx"], pa.string(), 0.2),
        "t": column(["x", "z"], pa.string(), 0.2),
    }


@pytest.mark.parametrize("start", range(0, 300, 100))
def test_where_and_select_match_duckdb(start: int) -> None:
    scope, session = Scope((NamedSource(FIELDS),)), PlannerSession()
    connection = duckdb.connect()
    for seed in range(start, start + 100):
        writer = Writer(seed)
        texts = [writer.number(3), writer.text(2), writer.truth(3)]
        where = writer.truth(3)
        columns = columns_of(seed)
        bound = [bind_expression(parse_expression(text), scope, session) for text in (*texts, where)]
        program = compile_program(bound[:-1], [field.type for field in FIELDS], bound[-1])
        ours = program.run(list(columns.values()), ROWS, SessionFacts()).columns
        bids = pa.table(columns)  # noqa: F841 (DuckDB finds it by its name)
        theirs = connection.execute(f"SELECT {', '.join(texts)} FROM bids WHERE {where}").fetchall()
        assert [tuple(row) for row in zip(*(column.to_pylist() for column in ours), strict=True)] == theirs, (
            seed,
            texts,
            where,
        )
