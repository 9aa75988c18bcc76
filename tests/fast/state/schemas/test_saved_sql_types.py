"""SQL types as a manifest tells them: plain JSON, read as the same type."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.errors import StoreDamagedError
from millstream.expressions import nested_types as nested
from millstream.expressions import types
from millstream.expressions.data_type import DataType
from millstream.records.table_type import TableRowType, TableValueType
from millstream.state.schemas.saved_types import type_from, written_type

NULLS = st.booleans()
SINGLE: st.SearchStrategy[DataType] = st.one_of(
    st.builds(types.DecimalType, st.just(20), st.integers(0, 20), NULLS),
    st.builds(types.VarCharType, st.integers(1, 9), NULLS),
    st.builds(types.TimestampType, st.integers(0, 9), NULLS),
    st.builds(types.LocalZonedTimestampType, st.integers(0, 9), NULLS),
    st.builds(types.DayTimeIntervalType, nullable=NULLS),
    st.builds(types.YearMonthIntervalType, nullable=NULLS),
    *(st.builds(kind, NULLS) for kind in (types.BooleanType, types.IntType, types.DoubleType, types.DateType)),
)
TYPES = st.recursive(
    SINGLE,
    lambda inner: st.one_of(
        st.builds(nested.ArrayType, inner, NULLS),
        st.builds(nested.MapType, SINGLE, inner, NULLS),
        st.builds(nested.MultisetType, SINGLE, NULLS),
        st.builds(
            lambda types_, nullable: nested.RowType.of([f"f{n}" for n in range(len(types_))], types_, nullable),
            st.lists(inner, min_size=1, max_size=3),
            NULLS,
        ),
    ),
    max_leaves=5,
)


@given(TYPES)
def test_a_type_is_read_as_it_was_written(data_type: DataType) -> None:
    written = json.loads(json.dumps(written_type(TableValueType(data_type))))
    assert type_from(written, "state") == TableValueType(data_type)


def test_a_table_is_a_row_of_its_columns() -> None:
    table = TableRowType(nested.RowType.of(["id", "price"], [types.BigIntType(False), types.DecimalType(5, 2)]))
    assert written_type(table) == {
        "row": [["id", {"sql": ["BIGINT", False]}], ["price", {"sql": ["DECIMAL", True, 5, 2]}]]
    }


@pytest.mark.parametrize(
    "written", [{"sql": ["NUMBER", True]}, {"sql": []}, {"sql": ["DECIMAL", True, 99, 1]}, {"sql": 5}]
)
def test_what_is_no_type_is_a_damaged_store(written: object) -> None:
    with pytest.raises(StoreDamagedError, match="which is not a type"):
        type_from(written, "state 'panes'")
