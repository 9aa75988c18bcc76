"""The columns of each event kind, as pure functions of event numbers: only requested columns are computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa

from millstream.connectors.tables.nexmark import vocabulary
from millstream.connectors.tables.nexmark.events import FIRST_ID, EventRules, chosen
from millstream.connectors.tables.random_numbers import Int64s, below, unit
from millstream.expressions.data_type import DataType
from millstream.expressions.types import BigIntType, TimestampType, VarCharType

__all__ = ["KINDS", "EventColumn"]

EventColumn = tuple[DataType, Callable[[EventRules, Int64s], pa.Array]]
"""The type of a field, and the function that computes it."""

_LONG, _TEXT, _TIME = BigIntType(), VarCharType(0x7FFFFFFF), TimestampType(3)
_HOT_AUCTIONS, _HOT_SELLERS, _HOT_BIDDERS, _HOT_CHANNELS = 2, 4, 4, 2  # of n events, n - 1 refer to a hot one
_FIRST_CATEGORY, _CATEGORIES = 10, 5


def _of_pool(pool: pa.Array, numbers: Int64s, salt: int) -> pa.Array:
    return pool.take(pa.array(below(numbers, salt, len(pool))))


def _times(times_ms: Int64s) -> pa.Array:
    return pa.array(times_ms).view(_TIME.arrow)


def _prices(numbers: Int64s, salt: int) -> Int64s:
    """From one to a million, uniform in the number of digits; in cents."""
    return np.round(10.0 ** (unit(numbers, salt) * 6) * 100).astype(np.int64)


def _happened(rules: EventRules, numbers: Int64s) -> pa.Array:
    return _times(rules.times_ms(numbers))


def _seller(rules: EventRules, numbers: Int64s) -> pa.Array:
    is_hot = below(numbers, 21, _HOT_SELLERS) > 0
    hot = rules.hot(rules.newest_person(numbers))
    return pa.array(chosen(is_hot, hot, rules.person_near(numbers, 22)) + FIRST_ID)


def _auction(rules: EventRules, numbers: Int64s) -> pa.Array:
    is_hot = below(numbers, 41, _HOT_AUCTIONS) > 0
    hot = rules.hot(rules.newest_auction(numbers))
    return pa.array(chosen(is_hot, hot, rules.auction_near(numbers, 42)) + FIRST_ID)


def _bidder(rules: EventRules, numbers: Int64s) -> pa.Array:
    is_hot = below(numbers, 43, _HOT_BIDDERS) > 0
    hot = rules.hot(rules.newest_person(numbers)) + 1
    return pa.array(chosen(is_hot, hot, rules.person_near(numbers, 44)) + FIRST_ID)


def _channel_numbers(numbers: Int64s) -> pa.Array:
    hot_count = len(vocabulary.HOT_CHANNELS)
    is_hot = below(numbers, 46, _HOT_CHANNELS) > 0
    cold = hot_count + below(numbers, 48, vocabulary.COLD_CHANNELS)
    return pa.array(chosen(is_hot, below(numbers, 47, hot_count), cold))


_PERSON: dict[str, EventColumn] = {
    "id": (_LONG, lambda rules, at: pa.array(rules.newest_person(at) + FIRST_ID)),
    "name": (_TEXT, lambda _, at: _of_pool(vocabulary.names(), at, 1)),
    "emailAddress": (_TEXT, lambda _, at: _of_pool(vocabulary.emails(), at, 2)),
    "creditCard": (_TEXT, lambda _, at: _of_pool(vocabulary.credit_cards(), at, 3)),
    "city": (_TEXT, lambda _, at: _of_pool(vocabulary.cities(), at, 4)),
    "state": (_TEXT, lambda _, at: _of_pool(vocabulary.states(), at, 5)),
    "dateTime": (_TIME, _happened),
    "extra": (_TEXT, lambda _, at: _of_pool(vocabulary.letters("person", 4_096, 100, 150), at, 6)),
}
_AUCTION: dict[str, EventColumn] = {
    "id": (_LONG, lambda rules, at: pa.array(rules.newest_auction(at) + FIRST_ID)),
    "itemName": (_TEXT, lambda _, at: _of_pool(vocabulary.letters("item", vocabulary.POOL, 3, 20), at, 11)),
    "description": (_TEXT, lambda _, at: _of_pool(vocabulary.letters("words", vocabulary.POOL, 3, 100), at, 12)),
    "initialBid": (_LONG, lambda _, at: pa.array(_prices(at, 13))),
    "reserve": (_LONG, lambda _, at: pa.array(_prices(at, 13) + _prices(at, 14))),
    "dateTime": (_TIME, _happened),
    "expires": (_TIME, lambda rules, at: _times(rules.times_ms(at) + rules.auction_length_ms(at, 15))),
    "seller": (_LONG, _seller),
    "category": (_LONG, lambda _, at: pa.array(_FIRST_CATEGORY + below(at, 16, _CATEGORIES))),
    "extra": (_TEXT, lambda _, at: _of_pool(vocabulary.letters("auction", 4_096, 315, 475), at, 17)),
}
_BID: dict[str, EventColumn] = {
    "auction": (_LONG, _auction),
    "bidder": (_LONG, _bidder),
    "price": (_LONG, lambda _, at: pa.array(_prices(at, 45))),
    "channel": (_TEXT, lambda _, at: vocabulary.channels().take(_channel_numbers(at))),
    "url": (_TEXT, lambda _, at: vocabulary.urls().take(_channel_numbers(at))),
    "dateTime": (_TIME, _happened),
    "extra": (_TEXT, lambda _, at: _of_pool(vocabulary.letters("bid", vocabulary.POOL, 54, 82), at, 49)),
}

KINDS: Mapping[str, Mapping[str, EventColumn]] = {"person": _PERSON, "auction": _AUCTION, "bid": _BID}
"""The event kinds in the order of their numbers, with their fields."""
