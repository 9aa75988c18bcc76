"""Key columns that a client sends over Flight are checked to be small before they are decoded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.query.server.flight_keys import check_key_type, decoded_bytes, key_columns
from millstream.query.server.settings import Limits
from millstream.query.wire.refusals import BadQuestionError, TooLargeError

MANY, LONG = 100_000, "a" * 100_000


class ChunkReader:
    """A client that has sent these columns."""

    def __init__(self, *columns: pa.Array) -> None:
        self._batches: Iterator[pa.RecordBatch] = iter([pa.RecordBatch.from_arrays([one], ["key"]) for one in columns])

    def read_chunk(self) -> Any:
        return SimpleNamespace(data=next(self._batches))


def views(count: int) -> pa.Array:
    """Strings of 100 KB, all views of one buffer."""
    prefix, buffer = int.from_bytes(b"aaaa", "little"), pa.py_buffer(LONG.encode())
    view = np.array([len(LONG), prefix, 0, 0], dtype=np.int32)
    return pa.Array.from_buffers(pa.string_view(), count, [None, pa.py_buffer(np.tile(view, count)), buffer])


def nulls_in_a_list() -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, 2**31 - 1], pa.int32()), pa.nulls(2**31 - 1))


def dictionary() -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(MANY, np.int32)), [LONG])


# Built where they are used: the nulls alone take half a second.
BOMBS: dict[str, Callable[[], pa.Array]] = {
    "a dictionary of one text": dictionary,
    "views of one text": lambda: views(MANY),
    "lists of nulls": nulls_in_a_list,
    "rows of one text": lambda: pa.StructArray.from_arrays([dictionary()], ["a"]),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_a_column_that_expands_on_decoding_is_rejected_before_decoding(name: str) -> None:
    bomb = BOMBS[name]()
    assert bomb.nbytes < 3_000_000
    before = pa.total_allocated_bytes()
    with pytest.raises(TooLargeError, match="once they are decoded"):
        list(key_columns(ChunkReader(bomb), Limits()))
    assert pa.total_allocated_bytes() - before < 4_000_000


@pytest.mark.parametrize(
    "kind",
    [
        pa.run_end_encoded(pa.int32(), pa.string()),
        pa.list_view(pa.string()),
        pa.dictionary(pa.int8(), pa.list_(pa.string())),
        pa.dense_union([pa.field("a", pa.int8())]),
        pa.list_(pa.run_end_encoded(pa.int16(), pa.int8())),
        pa.uuid(),
    ],
    ids=str,
)
def test_types_of_unbounded_decoded_size_are_rejected_as_keys(kind: pa.DataType) -> None:
    with pytest.raises(BadQuestionError, match="Send a plain column"):
        check_key_type(kind)


def test_a_deeply_nested_type_is_rejected_as_a_key() -> None:
    kind = pa.int8()
    for _ in range(50):
        kind = pa.list_(kind)
    with pytest.raises(BadQuestionError, match="Send a plain column"):
        check_key_type(kind)


KEYS = st.one_of(
    st.lists(st.one_of(st.none(), st.text(max_size=30))).map(lambda keys: pa.array(keys, pa.string())),
    st.lists(st.one_of(st.none(), st.binary(max_size=30))).map(lambda keys: pa.array(keys, pa.large_binary())),
    st.lists(st.one_of(st.none(), st.integers(-9, 9))).map(lambda keys: pa.array(keys, pa.int64())),
    st.lists(st.lists(st.text(max_size=9), max_size=5)).map(lambda keys: pa.array(keys, pa.list_(pa.string()))),
)


@given(KEYS, st.integers(0, 5))
def test_a_plain_column_counts_its_approximate_size_in_any_encoding(column: pa.Array, start: int) -> None:
    part = column.slice(start)
    plain = decoded_bytes(part)
    assert plain >= len(part) * 8
    assert plain <= 16 * len(part) + 9 * sum(len(str(value)) for value in part.to_pylist()) + 9 * len(part)
    if pa.types.is_string(column.type):
        for other in (part.dictionary_encode(), part.cast(pa.string_view()), part.cast(pa.large_string())):
            check_key_type(other.type)
            assert decoded_bytes(other) == plain
    assert [keys.to_pylist() for keys in key_columns(ChunkReader(part), Limits())] == [part.to_pylist()]


def test_rows_and_bytes_are_counted_over_all_batches_of_a_call() -> None:
    with pytest.raises(TooLargeError, match="more than 5 keys"):
        list(key_columns(ChunkReader(pa.array([1, 2, 3]), pa.array([4, 5, 6])), Limits(flight_keys_max=5)))
    with pytest.raises(TooLargeError, match="of 70 at most"):
        list(key_columns(ChunkReader(pa.array(["a" * 30]), pa.array(["b" * 30])), Limits(flight_call_bytes_max=70)))
