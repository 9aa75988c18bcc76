"""Response size is limited while the response is built, and its JSON is the same whether built at once or
incrementally.
"""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.query.server.answer_bytes import (
    EncodedJson,
    encoded,
    encoded_at_once,
    has_small_values,
    json_size,
    read_in_portions,
)
from millstream.query.statement_answers import AnswerBounds
from millstream.query.wire.refusals import TooLargeError
from millstream.query.wire.servers import ServedState
from millstream.table.operations.served_statements import EncodedRows

JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=9)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=6,
)


@given(st.dictionaries(st.text(max_size=3), st.one_of(JSON, JSON.map(lambda item: [item] * 600)), max_size=4))
def test_incremental_json_equals_json_built_at_once(answer: dict[str, Any]) -> None:
    assert encoded(answer) == encoded_at_once(answer)
    assert json.loads(encoded(answer)) == answer


@given(st.lists(st.integers(0, 50)), st.integers(0, 2_000), st.booleans())
def test_all_rows_are_read_in_order_or_the_response_is_too_large(sizes: list[int], most: int, is_small: bool) -> None:
    try:
        parts = read_in_portions(sizes, lambda part: list(part), sum, most, is_small=is_small)
    except TooLargeError:
        assert sum(sizes) > most
        return
    assert [size for part in parts for size in part] == sizes
    assert sum(sizes) <= most


def test_a_large_value_shrinks_the_next_portions() -> None:
    portions: list[int] = []

    def read(part: list[int]) -> list[int]:
        portions.append(len(part))
        return part

    with pytest.raises(TooLargeError, match="more than 1000000 bytes"):
        read_in_portions([10_000] * 10_000, read, sum, 1_000_000, is_small=False)
    assert sum(portions) <= 101


@given(JSON)
def test_the_size_of_json_is_that_of_its_text(value: Any) -> None:
    assert json_size(value) == len(encoded({"": value})) - len(encoded({"": 0})) + 1


def test_a_limit_counts_bytes_and_not_characters() -> None:
    with pytest.raises(TooLargeError, match="more than 100000 bytes"):
        read_in_portions(["\N{GRINNING FACE}" * 10] * 1_000, lambda part: part, json_size, 100_000, is_small=False)


def test_an_already_encoded_part_is_sent_unchanged() -> None:
    assert encoded({"rows": EncodedJson(b'[["\\u00e4"]]')}) == b'{"rows":[["\\u00e4"]]}'


@pytest.mark.parametrize(
    ("kind", "value_type", "is_small"),
    [
        ("value", "LONG", True),
        ("reducing", {"tuple": ["LONG", "DOUBLE"]}, True),
        ("value", {"row": [["a", "LONG"], ["b", "STRING"]]}, False),
        ("value", {"list": "LONG"}, False),
        ("list", "LONG", False),
        ("map", "LONG", False),
        ("value", "BIG_INT", False),
        ("value", "PICKLED", False),
    ],
)
def test_the_declared_type_determines_whether_values_are_small(kind: str, value_type: Any, is_small: bool) -> None:
    assert has_small_values(ServedState("s", kind, "LONG", value_type, False, 128)) is is_small


@pytest.mark.parametrize("rows", [0, 1, 256, 257, 600])
def test_rows_of_exactly_the_maximum_size_are_returned(rows: int) -> None:
    batch = pa.record_batch({"n": pa.array([10**18 + n for n in range(rows)], pa.int64())})
    size = len(json.dumps([[10**18 + n] for n in range(rows)], separators=(",", ":")))
    exact = EncodedRows(AnswerBounds(1_000, size))
    exact.add(batch)
    assert len(exact.text()) == size
    if rows:
        with pytest.raises(TooLargeError, match=f"more than {size - 1} bytes"):
            EncodedRows(AnswerBounds(1_000, size - 1)).add(batch)
