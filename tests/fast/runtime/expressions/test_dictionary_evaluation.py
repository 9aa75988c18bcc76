"""Functions evaluated over the distinct values of a column agree with row-by-row evaluation, and fail only where a row
fails.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st
from inputs.random_expressions import call, cast

from millstream.expressions.data_types import DataTypes
from millstream.expressions.row_expressions import Column, Literal, RowExpression
from millstream.runtime.expressions.compile import compile_program
from millstream.runtime.expressions.dictionary_evaluation import repeats_enough
from millstream.runtime.expressions.expression_errors import ExpressionError
from millstream.runtime.expressions.kernel import KERNELS, CallContext, SessionFacts, load_kernels

TEXT = Column(DataTypes.STRING(), 0)


def run(expression: RowExpression, column: pa.Array) -> list[Any]:
    program = compile_program([expression], [DataTypes.STRING()])
    result = program.run([column], len(column), SessionFacts()).columns[0]
    assert result.type == expression.type.arrow
    values: list[Any] = result.to_pylist()
    return values


@given(st.lists(st.sampled_from(["a", "Bc", "7", None])))
def test_a_dictionary_column_has_the_results_of_a_plain_one(values: list[str | None]) -> None:
    plain = pa.array(values, pa.string())
    for expression in (
        TEXT,
        call("UPPER", TEXT),
        call("IS NULL", TEXT),
        call("=", TEXT, call("UPPER", TEXT)),
        call("COALESCE", call("UPPER", TEXT), TEXT),
        cast(TEXT, DataTypes.INT(), "TRY_CAST"),
        call("CASE", call("IS NULL", TEXT), Literal(DataTypes.STRING(), "none"), call("UPPER", TEXT)),
        call("CASE", call("=", TEXT, Literal(DataTypes.STRING(), "a")), TEXT, Literal(DataTypes.STRING(), None)),
    ):
        assert run(expression, plain.dictionary_encode()) == run(expression, plain)


def test_an_unused_dictionary_value_does_not_fail() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 2, None], pa.int32()), ["1", "x", "3"])
    assert run(cast(TEXT, DataTypes.INT()), column) == [1, 3, None]


def test_a_used_dictionary_value_fails_at_its_row() -> None:
    column = pa.DictionaryArray.from_arrays(pa.array([0, 2, 1], pa.int32()), ["1", "x", "3"])
    with pytest.raises(ExpressionError, match="the text 'x' is not a valid INT") as error:
        run(cast(TEXT, DataTypes.INT()), column)
    assert error.value.row == 2


def test_a_dictionary_is_used_where_values_repeat() -> None:
    assert repeats_enough(pa.array([f"url {number % 10_000}" for number in range(65_536)]))
    assert not repeats_enough(pa.array([f"url {number}" for number in range(65_536)]))
    assert repeats_enough(pa.array(["a", "b"] * 600))


def test_columns_of_a_similar_type_or_in_chunks_are_converted_to_the_declared_type() -> None:
    large = pa.array(["a", None], pa.large_string())
    assert run(call("UPPER", TEXT), large) == ["A", None]
    assert run(call("UPPER", TEXT), large.dictionary_encode()) == ["A", None]
    assert run(call("UPPER", TEXT), pa.chunked_array([["a"], ["b", None]])) == ["A", "B", None]


@given(st.lists(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=5), max_size=4), st.booleans())
def test_the_previous_batch_changes_no_result(rows: list[list[tuple[int, bool]]], is_one: bool) -> None:
    expressions = [call("UPPER", TEXT), call("IS NULL", call("UPPER", TEXT))]
    program = compile_program(expressions, [DataTypes.STRING()])
    results: dict[int, Any] = {}
    for number, batch in enumerate(rows):
        names = ["a", "b", None, "c"] if is_one else [f"{letter}{number}" for letter in "abcd"]
        names = names[number % 4 :] + names[: number % 4]
        codes = pa.array([code for code, _ in batch], pa.int32(), mask=np.array([is_null for _, is_null in batch]))
        column = pa.DictionaryArray.from_arrays(codes, names)
        encoded = program.run([column], len(column), SessionFacts(), results, emit_dictionaries=True)
        plain = program.run([column.dictionary_decode()], len(column), SessionFacts())
        assert [each.to_pylist() for each in encoded.columns] == [each.to_pylist() for each in plain.columns]
        assert isinstance(encoded.columns[0], pa.DictionaryArray), "a dictionary column stays a dictionary column"


def test_a_function_runs_once_for_batches_of_one_dictionary(monkeypatch: pytest.MonkeyPatch) -> None:
    load_kernels()
    upper, calls = KERNELS["UPPER"], 0

    def counted(context: CallContext, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        return upper(context, *arguments)

    monkeypatch.setitem(KERNELS, "UPPER", counted)
    program = compile_program([call("UPPER", TEXT)], [DataTypes.STRING()])
    results: dict[int, Any] = {}
    for codes, names in (
        ([0, 1, 1], ["a", "b"]),
        ([1, 0, 0], ["a", "b"]),
        ([1, 0, 0], ["b", "a"]),
        ([0, 0, 0], ["b"]),
        ([1, 0, 0], ["a", "c"]),
    ):
        column = pa.DictionaryArray.from_arrays(pa.array(codes, pa.int32()), names)
        (made,) = program.run([column], 3, SessionFacts(), results).columns
        assert made.to_pylist() == [names[code].upper() for code in codes]
    assert calls == 2


def test_reordered_dictionary_values_are_searched_once_for_all_batches_and_functions(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load_kernels()
    original_search, searches = pc.index_in, 0

    def counted(*arguments: Any, **options: Any) -> Any:
        nonlocal searches
        searches += 1
        return original_search(*arguments, **options)

    program = compile_program([call("UPPER", TEXT), call("REVERSE", TEXT)], [DataTypes.STRING()])
    results: dict[int, Any] = {}
    monkeypatch.setattr(pc, "index_in", counted)
    for names in (["ab", "cd"], ["cd", "ab"], ["cd", "ab"], ["cd", "ab"]):
        column = pa.DictionaryArray.from_arrays(pa.array([0, 1, 1], pa.int32()), names)
        upper, backwards = program.run([column], 3, SessionFacts(), results).columns
        assert upper.to_pylist() == [names[code].upper() for code in (0, 1, 1)]
        assert backwards.to_pylist() == [names[code][::-1] for code in (0, 1, 1)]
    assert searches == 1
