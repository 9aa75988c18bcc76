"""Nexmark's queries, written in the Table API, are planned as their SQL is: the same operators over the same columns.

A join of the Table API wants names that are there once, so that some columns have another name: plans are compared
without. What the Table API has no words for (FILTER, ROW_NUMBER,
window functions of tables) is not here."""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from millstream.sql.splitting import statement_spans
from millstream.table import DataTypes, EnvironmentSettings, Table, TableEnvironment
from millstream.table.expressions import call, col, lit
from millstream.table.udf import udf
from millstream.table.window import Session

NEXMARK = Path(__file__).resolve().parent / "sql_statements" / "nexmark"
PLANS = ("== Optimized Physical Plan ==", "== Optimized Execution Plan ==")


def q0(t_env: TableEnvironment) -> Table:
    names = ("auction", "bidder", "price", "dateTime", "extra")
    return t_env.from_path("bid").select(*map(col, names))


def q1(t_env: TableEnvironment) -> Table:
    price = (lit(Decimal("0.908")).cast(DataTypes.DECIMAL(4, 3)) * col("price")).alias("price")
    return t_env.from_path("bid").select(col("auction"), col("bidder"), price, col("dateTime"), col("extra"))


def q2(t_env: TableEnvironment) -> Table:
    return t_env.from_path("bid").where(col("auction") % 123 == 0).select(col("auction"), col("price"))


def q3(t_env: TableEnvironment) -> Table:
    people = t_env.from_path("person").select(col("id").alias("person_id"), col("name"), col("city"), col("state"))
    state = col("state")
    sold = t_env.from_path("auction").select(col("id"), col("seller"), col("category"))
    joined = sold.join(people, col("seller") == col("person_id"))
    chosen = joined.where((col("category") == 10) & ((state == "OR") | (state == "ID") | (state == "CA")))
    return chosen.select(col("name"), col("city"), col("state"), col("id"))


def q4(t_env: TableEnvironment) -> Table:
    auctions = t_env.from_path("auction").select(
        col("id"), col("dateTime").alias("auction_dateTime"), col("expires"), col("category")
    )
    bids = t_env.from_path("bid").select(col("auction"), col("price"), col("dateTime"))
    joined = auctions.join(bids, col("id") == col("auction"))
    bid_time = col("dateTime")
    met = joined.where((bid_time >= col("auction_dateTime")) & (bid_time <= col("expires")))
    won = met.group_by(col("id"), col("category")).select(col("price").max.alias("final"), col("category"))
    return won.group_by(col("category")).select(col("category"), col("final").avg)


def q10(t_env: TableEnvironment) -> Table:
    return t_env.from_path("bid").select(
        *map(col, ("auction", "bidder", "price", "dateTime", "extra")),
        *(call("DATE_FORMAT", col("dateTime"), form) for form in ("yyyy-MM-dd", "HH:mm")),
    )


def q11(t_env: TableEnvironment) -> Table:
    window = Session.with_gap(lit(10).seconds).on(col("dateTime")).alias("w")
    grouped = t_env.from_path("bid").window(window).group_by(col("w"), col("bidder"))
    return grouped.select(
        col("bidder"), lit(1).count.alias("bid_count"), col("w").start.alias("starttime"), col("w").end.alias("endtime")
    )


def q14(t_env: TableEnvironment) -> Table:
    price = lit(Decimal("0.908")).cast(DataTypes.DECIMAL(4, 3)) * col("price")
    hour = call("HOUR", col("dateTime"))
    is_night = (hour <= 6) | (hour >= 20)
    kind = ((hour >= 8) & (hour <= 18)).then("dayTime", is_night.then("nightTime", "otherTime"))
    bids = t_env.from_path("bid").where((price > 1_000_000) & (price < 50_000_000))
    letters = call("count_char", col("extra"), "c")
    return bids.select(col("auction"), col("bidder"), price, kind, col("dateTime"), col("extra"), letters)


def q20(t_env: TableEnvironment) -> Table:
    bids = t_env.from_path("bid").select(
        *map(col, ("auction", "bidder", "price", "channel", "url")),
        *(col(name).alias(f"bid_{name}") for name in ("dateTime", "extra")),
    )
    joined = bids.join(t_env.from_path("auction"), col("auction") == col("id")).where(col("category") == 10)
    return joined.select(
        *map(col, ("auction", "bidder", "price", "channel", "url", "bid_dateTime", "bid_extra", "itemName")),
        *map(col, ("description", "initialBid", "reserve", "dateTime", "expires", "seller", "category", "extra")),
    )


def q21(t_env: TableEnvironment) -> Table:
    channel = col("channel").lower_case
    by_address = col("url").regexp_extract("(&|^)channel_id=([^&]*)", 2)
    number: Any = by_address
    for at, name in reversed(list(enumerate(("apple", "google", "facebook", "baidu")))):
        number = (channel == name).then(str(at), number)
    met = by_address.is_not_null | channel.in_("apple", "google", "facebook", "baidu")
    return t_env.from_path("bid").where(met).select(*map(col, ("auction", "bidder", "price", "channel")), number)


def q22(t_env: TableEnvironment) -> Table:
    folders = (call("SPLIT_INDEX", col("url"), "/", at) for at in (3, 4, 5))
    return t_env.from_path("bid").select(*map(col, ("auction", "bidder", "price", "channel")), *folders)


def q23(t_env: TableEnvironment) -> Table:
    people = t_env.from_path("person").select(*map(col, ("id", "name", "city", "state")))
    sold = t_env.from_path("auction").select(
        col("itemName"), col("dateTime").alias("auction_dateTime"), col("seller"), col("category")
    )
    bids = t_env.from_path("bid").select(*map(col, ("auction", "bidder", "price", "channel", "url", "dateTime")))
    joined = bids.join(people, col("id") == col("bidder")).join(sold, col("seller") == col("bidder"))
    return joined.select(
        *map(col, ("auction", "bidder", "price", "channel", "url", "dateTime", "name", "city", "state", "itemName")),
        *map(col, ("category", "auction_dateTime")),
    )


QUERIES = (q0, q1, q2, q3, q4, q10, q11, q14, q20, q21, q22, q23)


@pytest.fixture
def t_env() -> TableEnvironment:
    made = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
    for span in statement_spans((NEXMARK / "tables.sql").read_text(encoding="utf-8")):
        made.execute_sql(span.text)
    letters = udf(lambda text, letter: text.count(letter), result_type=DataTypes.BIGINT())
    made.create_temporary_function("count_char", letters)
    return made


def physical(table: Table) -> str:
    """The plan without what is only called otherwise: columns of a join, results, and the remainder."""
    text = table.explain()
    text = re.sub(r" AS [\w$]+", "", text[slice(*map(text.index, PLANS))])
    return re.sub(r"\b(person|auction|bid)_(?=id|dateTime|extra)", "", text).replace("%(", "MOD(")


@pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.__name__)
def test_the_plan_is_that_of_the_sql(query: Callable[[TableEnvironment], Table], t_env: TableEnvironment) -> None:
    *_, insert = statement_spans((NEXMARK / f"{query.__name__}.sql").read_text(encoding="utf-8"))
    asked = t_env.sql_query(insert.text[insert.text.index("SELECT") :])
    assert physical(query(t_env)) == physical(asked)
