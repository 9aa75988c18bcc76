"""FLOATs in files of JSON: shortest, at any depth, and the same FLOAT when they are read back."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common import Row, Types
from millstream.connectors.files.parts import JsonParts
from millstream.connectors.files.short_floats import with_short_floats
from millstream.datastream.formats.json import JsonRowSerializationSchema

FLOAT, WIDE = Types.FLOAT(), 1.100000023841858


@pytest.mark.parametrize(
    ("type_info", "value", "text"),
    [
        (FLOAT, WIDE, "1.1"),
        (FLOAT, None, "null"),
        (Types.DOUBLE(), WIDE, "1.100000023841858"),
        (Types.LIST(FLOAT), [WIDE, None], "[1.1,null]"),
        (Types.PRIMITIVE_ARRAY(FLOAT), [WIDE], "[1.1]"),
        (Types.MAP(Types.STRING(), FLOAT), {"a": WIDE}, '{"a":1.1}'),
        (Types.TUPLE([FLOAT, Types.DOUBLE()]), (WIDE, WIDE), "[1.1,1.100000023841858]"),
        (Types.ROW_NAMED(["x", "y"], [FLOAT, Types.INT()]), Row(x=WIDE, y=1), '{"x":1.1,"y":1}'),
        (
            Types.ROW_NAMED(["in"], [Types.LIST(Types.ROW_NAMED(["x"], [FLOAT]))]),
            Row(**{"in": [Row(x=WIDE), None]}),
            '{"in":[{"x":1.1},null]}',
        ),
        (Types.ROW_NAMED(["x", "y"], [FLOAT, Types.INT()]), {"x": WIDE, "y": 1, "z": 2}, '{"x":1.1,"y":1,"z":2}'),
    ],
)
def test_floats_are_written_with_the_digits_they_need(type_info: Any, value: Any, text: str) -> None:
    assert JsonParts().encode([value], type_info).decode() == text + "\n"


def test_the_schema_of_rows_shortens_floats_and_does_not_change_the_row() -> None:
    row_type, row = Types.ROW_NAMED(["x"], [FLOAT]), Row(x=WIDE)
    assert JsonRowSerializationSchema.builder().with_type_info(row_type).build().serialize(row) == b'{"x":1.1}'
    assert row.x == WIDE


def test_a_type_without_floats_costs_nothing() -> None:
    values = [Row(a=1)]
    assert with_short_floats(values, Types.ROW_NAMED(["a"], [Types.LONG()])) is values
    assert with_short_floats(values, None) is values


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_what_is_written_is_read_back_as_the_same_float(value: float) -> None:
    read = json.loads(JsonParts().encode([value], FLOAT))
    assert np.float32(read) == np.float32(value) and math.copysign(1, read) == math.copysign(1, value)
