"""Nexmark's q6, which Flink cannot run (OVER on a changing table): the mean price of each seller's last auctions, by
the query's own text in a stream and in BATCH, compared with plain Python.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest

from millstream.table import DataTypes, EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

TEXT = (Path(__file__).parent / "sql_statements" / "nexmark" / "q6.sql").read_text(encoding="utf-8")
QUERY = TEXT[TEXT.index("SELECT") : TEXT.rindex(";")]
BEGIN = datetime(2026, 1, 1)
AUCTION = DataTypes.ROW(
    [
        DataTypes.FIELD("id", DataTypes.BIGINT()),
        DataTypes.FIELD("seller", DataTypes.BIGINT()),
        DataTypes.FIELD("dateTime", DataTypes.TIMESTAMP(3)),
        DataTypes.FIELD("expires", DataTypes.TIMESTAMP(3)),
    ]
)
BID = DataTypes.ROW(
    [
        DataTypes.FIELD("auction", DataTypes.BIGINT()),
        DataTypes.FIELD("price", DataTypes.BIGINT()),
        DataTypes.FIELD("dateTime", DataTypes.TIMESTAMP(3)),
    ]
)


def events() -> tuple[list[tuple[Any, ...]], list[tuple[Any, ...]]]:
    """Auctions of few sellers, and bids on them; no two bids share a time or a price."""
    random = Random(6)
    auctions = []
    for number in range(60):
        opened = BEGIN + timedelta(seconds=number)
        auctions.append((number, random.randrange(3), opened, opened + timedelta(seconds=random.randrange(1, 40))))
    prices = random.sample(range(1_000, 100_000), 600)
    bids = [
        (random.randrange(70), price, BEGIN + timedelta(milliseconds=131 * number))
        for number, price in enumerate(prices)
    ]
    return auctions, bids


def expected() -> list[tuple[Any, ...]]:
    auctions, bids = events()
    sold: dict[int, list[tuple[datetime, int]]] = {}
    for id_, seller, opened, expires in auctions:
        offers = [(price, time) for auction, price, time in bids if auction == id_ and opened <= time <= expires]
        if offers:
            price, time = max(offers)
            sold.setdefault(seller, []).append((time, price))
    rows = []
    for seller, prices in sold.items():
        prices.sort()
        for at in range(len(prices)):
            last = [price for _, price in prices[max(0, at - 10) : at + 1]]
            rows.append((seller, sum(last) // len(last)))
    return sorted(rows)


@pytest.mark.parametrize("mode", ["streaming", "batch"])
def test_the_mean_of_the_last_prices_is_updated_by_every_higher_bid(mode: str) -> None:
    settings = EnvironmentSettings.in_batch_mode() if mode == "batch" else EnvironmentSettings.in_streaming_mode()
    t_env = TableEnvironment.create(settings)
    t_env.get_config().set("parallelism.default", "2")
    t_env.get_config().set("millstream.epoch.max-records", "100")
    auctions, bids = events()
    t_env.create_temporary_view("auction", t_env.from_elements(auctions, AUCTION))
    t_env.create_temporary_view("bid", t_env.from_elements(bids, BID))
    standing: list[tuple[Any, ...]] = []
    with jobs_in_memory(), t_env.sql_query(QUERY).execute().collect() as results:
        for row in results:
            if row.get_row_kind().name in ("INSERT", "UPDATE_AFTER"):
                standing.append(tuple(row))
            else:
                standing.remove(tuple(row))
    assert sorted(standing) == expected()
