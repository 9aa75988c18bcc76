"""The events of Nexmark: a pure function of their numbers, with the proportions and hot ids of its definition."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.connectors.contracts import SourceContext
from millstream.connectors.tables.factories import factory_of
from millstream.connectors.tables.factory import TableDefinition
from millstream.connectors.tables.nexmark.columns import KINDS
from millstream.connectors.tables.nexmark.events import EventRules
from millstream.connectors.tables.nexmark.factory import NexmarkEvents
from millstream.errors import ProgramError
from millstream.expressions.nested_types import RowField, RowType
from millstream.expressions.types import BigIntType, IntType, VarCharType


def all_columns() -> RowType:
    rows = [
        RowField(kind, RowType.of(list(fields), [each[0] for each in fields.values()]))
        for kind, fields in KINDS.items()
    ]
    return RowType([RowField("event_type", IntType()), *rows], nullable=False)


def events(start: int, stop: int) -> pa.RecordBatch:
    return NexmarkEvents(all_columns(), EventRules())(np.arange(start, stop))


@given(start=st.integers(0, 10_000_000), first=st.integers(1, 120), second=st.integers(1, 120))
def test_a_range_read_in_pieces_is_the_range(start: int, first: int, second: int) -> None:
    whole = events(start, start + first + second)
    pieces = [events(start, start + first), events(start + first, start + first + second)]
    assert whole.to_pylist() == [row for piece in pieces for row in piece.to_pylist()]


def test_of_fifty_events_one_is_a_person_three_are_auctions_and_the_rest_bids() -> None:
    rows = events(0, 5_000).to_pylist()
    kinds = Counter(next(kind for kind in KINDS if row[kind] is not None) for row in rows)
    assert kinds == {"person": 100, "auction": 300, "bid": 4_600}
    assert all(list(KINDS)[row["event_type"]] == next(kind for kind in KINDS if row[kind] is not None) for row in rows)


def test_ids_of_people_and_auctions_count_up_without_gaps() -> None:
    rows = events(0, 5_000).to_pylist()
    assert [row["person"]["id"] for row in rows if row["person"]] == list(range(1_000, 1_100))
    assert [row["auction"]["id"] for row in rows if row["auction"]] == list(range(1_000, 1_300))


@pytest.mark.slow
def test_about_half_of_the_bids_go_to_hot_auctions_and_three_quarters_come_from_hot_bidders() -> None:
    bids = [row["bid"] for row in events(100_000, 150_000).to_pylist() if row["bid"]]
    assert 0.45 < sum(bid["auction"] % 100 == 0 for bid in bids) / len(bids) < 0.56
    assert 0.70 < sum(bid["bidder"] % 100 == 1 for bid in bids) / len(bids) < 0.80


def test_bids_go_to_auctions_that_are_open_or_come_next() -> None:
    rows = events(100_000, 101_000).to_pylist()
    newest = max(row["auction"]["id"] for row in rows if row["auction"])
    assert all(newest - 300 < row["bid"]["auction"] <= newest + 10 for row in rows if row["bid"])


def test_auctions_end_after_they_begin() -> None:
    assert all(
        row["auction"]["expires"] > row["auction"]["dateTime"] for row in events(0, 2_000).to_pylist() if row["auction"]
    )


def test_the_table_computes_only_the_wanted_columns() -> None:
    bid = RowType.of(["price", "auction"], [BigIntType(), BigIntType()])
    physical = RowType([RowField("event_type", IntType()), RowField("bid", bid)], nullable=False)
    table = TableDefinition("events", physical, {"connector": "nexmark", "events.num": "100"})
    given = factory_of("nexmark").source(table, [1], [])
    assert given.columns == (1,) and given.bounded
    context = SourceContext(now_ms=0, run_started_ms=0, parallelism=2)
    batches = [
        batch
        for split in given.source.splits(context)
        for batch in given.source.read(split, 0, given.source.reach(split, 0, 1_000, context))
    ]
    assert sum(batch.num_rows for batch in batches) == 100
    assert all(batch.schema == pa.schema([("bid", bid.arrow)]) for batch in batches)


@pytest.mark.parametrize(
    ("field", "options", "message"),
    [
        (RowField("bidd", IntType()), {}, "no column 'bidd'. Did you mean 'bid'?"),
        (RowField("event_type", BigIntType()), {}, "'event_type' of nexmark is INT, but the table declares BIGINT"),
        (RowField("bid", RowType.of(["prize"], [BigIntType()])), {}, "no field 'prize'. Did you mean 'price'?"),
        (RowField("bid", RowType.of(["price"], [VarCharType(9)])), {}, "'bid.price' of nexmark is BIGINT"),
        (RowField("bid", IntType()), {}, "is a ROW, not INT"),
        (RowField("event_type", IntType()), {"events.nun": "5"}, "Did you mean 'events.num'?"),
        (RowField("event_type", IntType()), {"events.num": "many"}, "expected a whole number"),
        (RowField("event_type", IntType()), {"first-event.rate": "0"}, "at least 1"),
    ],
)
def test_a_definition_that_does_not_fit_is_refused_with_what_would(
    field: RowField, options: dict[str, str], message: str
) -> None:
    table = TableDefinition("events", RowType([field]), {"connector": "nexmark", **options})
    with pytest.raises(ProgramError) as refusal:
        factory_of("nexmark").source(table, None, [])
    assert message in str(refusal.value)
    assert "'events'" in str(refusal.value)


def test_an_unknown_connector_is_reported_with_the_nearest_one() -> None:
    with pytest.raises(ProgramError, match="no connector 'nexmrak'\\. Did you mean 'nexmark'\\?"):
        factory_of("nexmrak")
