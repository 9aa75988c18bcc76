"""Messages of pgoutput, as the protocol's documentation lays them out, decoded against a slow reading of the same."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.common.types import RowKind
from millstream.connectors.databases.pgoutput import ChangeDecoder, LoggedColumn, LoggedTable
from millstream.errors import ProgramError

TABLE = LoggedTable("public", "t", (LoggedColumn("b", 25), LoggedColumn("a", 23)))
OURS, OTHER = 100, 200


def begin(position: int) -> bytes:
    return b"B" + struct.pack(">QQI", position, 0, 1)


def commit(position: int) -> bytes:
    return b"C" + struct.pack(">BQQQ", 0, position, position + 8, 0)


def relation(number: int, name: bytes, columns: list[tuple[int, bytes, int]], identity: bytes = b"f") -> bytes:
    parts = b"".join(
        struct.pack(">B", key) + column + b"\0" + struct.pack(">Ii", type_, -1) for key, column, type_ in columns
    )
    return (
        b"R"
        + struct.pack(">I", number)
        + b"public\0"
        + name
        + b"\0"
        + identity
        + struct.pack(">H", len(columns))
        + parts
    )


def cells(*values: Any) -> bytes:
    """A tuple: bytes, None, or ... for a large value that was not touched."""
    parts = []
    for value in values:
        if value is None or value is ...:
            parts.append(b"n" if value is None else b"u")
        else:
            parts.append(b"t" + struct.pack(">I", len(value)) + value)
    return struct.pack(">H", len(values)) + b"".join(parts)


def row(tag: bytes, number: int, *parts: bytes) -> bytes:
    return tag + struct.pack(">I", number) + b"".join(parts)


PLAIN = relation(OURS, b"t", [(1, b"a", 23), (0, b"b", 25)])
FOREIGN = relation(OTHER, b"other", [(1, b"a", 23)])


def decoded(
    messages: list[bytes], start: int = 0, stop: int = 1 << 60, table: LoggedTable = TABLE
) -> list[tuple[Any, ...]]:
    decoder = ChangeDecoder(table, start, stop)
    for message in messages:
        decoder.take(message)
    rows = decoder.take_rows()
    return [(RowKind(kind).name, *values) for kind, *values in zip(rows.kinds, *rows.columns, strict=True)]


OPTIONAL = st.one_of(st.none(), st.binary(max_size=5))
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("I"), OPTIONAL, OPTIONAL),
        st.tuples(st.just("U"), OPTIONAL, OPTIONAL, OPTIONAL, st.one_of(OPTIONAL, st.just(...))),
        st.tuples(st.just("D"), OPTIONAL, OPTIONAL),
        st.tuples(st.just("other")),
    ),
    max_size=5,
)


PLACES = st.one_of(st.integers(0, 70), st.integers(1, 6).map(lambda number: 10 * number))


@given(st.lists(CHANGES, min_size=2, max_size=6), PLACES, PLACES)
def test_a_range_returns_the_changes_of_its_transactions(history: list[list[Any]], start: int, stop: int) -> None:
    messages, expected = [], []
    for number, changes in enumerate(history):
        position = 10 * (number + 1)
        is_wanted = start <= position < stop
        messages += [begin(position), PLAIN, FOREIGN] if number == 0 else [begin(position)]
        for kind, *values in changes:
            if kind == "I":
                messages.append(row(b"I", OURS, b"N", cells(*values)))
                told = [("INSERT", values[1], values[0])]
            elif kind == "U":
                before, after = values[:2], values[2:]
                messages.append(row(b"U", OURS, b"O", cells(*before), b"N", cells(*after)))
                kept = [old if new is ... else new for old, new in zip(before, after, strict=True)]
                told = [("UPDATE_BEFORE", before[1], before[0]), ("UPDATE_AFTER", kept[1], kept[0])]
            elif kind == "D":
                messages.append(row(b"D", OURS, b"O", cells(*values)))
                told = [("DELETE", values[1], values[0])]
            else:
                messages.append(row(b"I", OTHER, b"N", cells(b"1")))
                told = []
            expected += told if is_wanted else []
        messages.append(commit(position))
    assert decoded(messages, start, stop) == expected


def test_a_range_has_its_first_position_and_not_its_last() -> None:
    messages = [PLAIN]
    for position in (10, 20, 30):
        messages += [begin(position), row(b"I", OURS, b"N", cells(str(position).encode(), None)), commit(position)]
    assert decoded(messages, 10, 30) == [("INSERT", None, b"10"), ("INSERT", None, b"20")]


def test_an_identity_of_keys_logs_deletes_and_key_changes() -> None:
    upserts = LoggedTable("public", "t", TABLE.columns, upserts=True)
    messages = [
        begin(1),
        relation(OURS, b"t", [(1, b"a", 23), (0, b"b", 25)], b"d"),
        row(b"U", OURS, b"N", cells(b"1", b"x")),
        row(b"U", OURS, b"K", cells(b"1", None), b"N", cells(b"2", b"x")),
        row(b"D", OURS, b"K", cells(b"2", None)),
    ]
    assert decoded(messages, table=upserts) == [
        ("UPDATE_AFTER", b"x", b"1"),
        ("DELETE", None, b"1"),
        ("UPDATE_AFTER", b"x", b"2"),
        ("DELETE", None, b"2"),
    ]
    with pytest.raises(ProgramError, match=r"for an update the log has only the key.*upserts=True"):
        decoded(messages)


@pytest.mark.parametrize(
    ("messages", "told"),
    [
        ([relation(OURS, b"t", [(1, b"a", 23)])], "column 'b' no longer exists"),
        ([relation(OURS, b"t", [(1, b"a", 20), (0, b"b", 25)])], "column 'a' has another type"),
        ([PLAIN, b"T" + struct.pack(">IBI", 1, 0, OURS)], "the table was truncated"),
        ([PLAIN, b"Z"], "a message of the kind 'Z'"),
        ([PLAIN, row(b"I", OURS, b"N", cells(b"1", ...))], "did not touch the large value of column 'b'"),
    ],
)
def test_missing_information_in_the_log_is_an_error(messages: list[bytes], told: str) -> None:
    with pytest.raises(ProgramError, match=told):
        decoded([begin(1), *messages])


def test_a_truncate_may_be_passed_over() -> None:
    table = LoggedTable("public", "t", TABLE.columns, skips_truncate=True)
    assert decoded([begin(1), PLAIN, b"T" + struct.pack(">IBI", 1, 0, OURS)], table=table) == []


def test_a_table_is_known_by_its_number_whatever_it_is_called() -> None:
    known = LoggedTable("public", "t", TABLE.columns, relation=OURS)
    renamed = relation(OURS, b"other_name", [(1, b"a", 23), (0, b"b", 25)])
    messages = [begin(10), renamed, row(b"I", OURS, b"N", cells(b"1", b"x")), FOREIGN, commit(10)]
    assert decoded(messages, table=known) == [("INSERT", b"x", b"1")]
    with pytest.raises(ProgramError, match="another table of this name than the job started with"):
        decoded([begin(10), relation(OTHER, b"t", [(1, b"a", 23), (0, b"b", 25)])], table=known)


def test_all_tables_of_a_partitioned_table_s_log_are_its_partitions() -> None:
    parts = LoggedTable("public", "t", TABLE.columns, relation=1, has_parts=True)
    swapped = relation(OTHER, b"part", [(0, b"b", 25), (1, b"a", 23)])
    messages = [begin(10), PLAIN, row(b"I", OURS, b"N", cells(b"1", b"x")), swapped]
    messages += [row(b"I", OTHER, b"N", cells(b"y", b"2")), commit(10)]
    assert decoded(messages, table=parts) == [("INSERT", b"x", b"1"), ("INSERT", b"y", b"2")]


def test_an_identity_without_the_key_is_refused_where_only_the_identity_is_logged() -> None:
    wanted = LoggedTable("public", "t", TABLE.columns, upserts=True, key=("b",))
    keyed_by_a = relation(OURS, b"t", [(1, b"a", 23), (0, b"b", 25)], identity=b"i")
    with pytest.raises(ProgramError, match="replica identity was changed to a while the table was read"):
        decoded([begin(10), keyed_by_a], table=wanted)
    assert decoded([begin(10), relation(OURS, b"t", [(1, b"a", 23), (1, b"b", 25)])], table=wanted) == []
