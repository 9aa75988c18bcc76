"""Operators that multiply rows emit them in batches of bounded size."""

from __future__ import annotations

from typing import Any

import pytest
from programs.relations import add, column, moment, table, with_time

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.expressions import nested_types as nested
from millstream.expressions import types
from millstream.expressions.user_functions import UserFunction, UserFunctionKind
from millstream.planner.relations import (
    Correlate,
    Field,
    JoinKind,
    Relation,
    Schema,
    Unnest,
    WindowAssign,
    WindowKind,
    WindowShape,
)
from millstream.runtime.tables.repeated_rows import RepeatingOperator
from millstream.testing import Collect, run

MANY = nested.ArrayType(types.IntType())
ROWS = [(n, [n] * (7 * n), moment(n)) for n in range(6)]
ROWS_MAX = 10


def range_below(count: int) -> Any:
    return range(7 * count)


def relations() -> dict[str, tuple[Relation, int]]:
    scan = table({"n": types.IntType(), "many": MANY, "ts": types.TimestampType(3)}, ROWS)
    timed = with_time(scan, "ts")
    bounds = tuple(Field(name, types.TimestampType(3)) for name in ("window_start", "window_end", "window_time"))
    hop = WindowShape(WindowKind.HOP, 2, 1_000, 100)
    windowed = WindowAssign(Schema((*timed.schema.fields, *bounds)), timed, hop)
    element = Schema((*scan.schema.fields, Field("one", types.IntType())))
    function = UserFunction("below", range_below, (types.IntType(),), kind=UserFunctionKind.TABLE)
    return {
        "windows": (windowed, 10 * len(ROWS)),
        "elements": (Unnest(element, scan, column(scan, "many")), 7 * 15),
        "elements or none": (Unnest(element, scan, column(scan, "many"), kind=JoinKind.LEFT), 7 * 15 + 1),
        "results": (Correlate(element, scan, function, (column(scan, "n"),)), 7 * 15),
        "results or none": (Correlate(element, scan, function, (column(scan, "n"),), JoinKind.LEFT), 7 * 15 + 1),
    }


@pytest.mark.parametrize("name", relations())
def test_results_are_emitted_in_batches_of_bounded_size(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    relation, count = relations()[name]
    sizes: list[int] = []
    emit = RepeatingOperator.emit

    def recorded(operator: RepeatingOperator, batch: Any) -> None:
        sizes.append(len(batch))
        emit(operator, batch)

    monkeypatch.setattr(RepeatingOperator, "emit", recorded)
    configuration = Configuration()
    configuration.set_string("millstream.batch.max-records", str(ROWS_MAX))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    out = Collect()
    add(relation, out, env)
    run(env)
    assert len(out.values) == sum(sizes) == count
    # A function is called once for a row, and its results stay together.
    assert max(sizes) <= (ROWS_MAX + 7 * 5 if "results" in name else ROWS_MAX)
    assert [row.n for row in out.values] == sorted(row.n for row in out.values)
