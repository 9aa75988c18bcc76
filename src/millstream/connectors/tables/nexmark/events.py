"""Kind and time of each event, and the people and auctions that exist at that time.

Events are generated in rounds of 50: one person, then three auctions, then 46 bids. So the number of an event
determines everything that other events refer to, without state.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from millstream.connectors.tables.random_numbers import Int64s, below

__all__ = ["EventRules"]

FIRST_ID = 1_000
_ACTIVE_PEOPLE = 1_000
_IN_FLIGHT_AUCTIONS = 100
_LEAD = 10  # ids a little ahead of the newest, of people and auctions that follow
_HOT_GROUP = 100  # one id in this many is hot at a time


@dataclass(frozen=True)
class EventRules:
    """Proportions, rate and the time of the first event."""

    people: int = 1
    auctions: int = 3
    bids: int = 46
    rate: int = 10_000  # events in a second of event time
    started_ms: int = 1_436_918_400_000  # 15 July 2015

    @property
    def round_length(self) -> int:
        return self.people + self.auctions + self.bids

    def kinds(self, numbers: Int64s) -> Int64s:
        """0 for a person, 1 for an auction, 2 for a bid.

        >>> np.bincount(EventRules().kinds(np.arange(500))).tolist()
        [10, 30, 460]
        """
        place = numbers % self.round_length
        kinds: Int64s = (place >= self.people).astype(np.int64) + (place >= self.people + self.auctions)
        return kinds

    def times_ms(self, numbers: Int64s) -> Int64s:
        """Event times, in milliseconds since 1970."""
        return self.started_ms + numbers * 1_000 // self.rate

    def newest_person(self, numbers: Int64s) -> Int64s:
        """The number of people before the newest one, at the time of the event."""
        rounds, place = np.divmod(numbers, self.round_length)
        return rounds * self.people + np.minimum(place, self.people - 1)

    def newest_auction(self, numbers: Int64s) -> Int64s:
        """The number of auctions before the newest one. In a round, the people precede the auctions."""
        rounds, place = np.divmod(numbers, self.round_length)
        opened = np.clip(place - self.people, -1, self.auctions - 1)
        newest: Int64s = rounds * self.auctions + opened
        return newest

    def person_near(self, numbers: Int64s, salt: int) -> Int64s:
        """One of the active people, or of the next ones."""
        count = self.newest_person(numbers) + 1
        active = np.minimum(count, _ACTIVE_PEOPLE)
        return count - active + below(numbers, salt, active + _LEAD)

    def auction_near(self, numbers: Int64s, salt: int) -> Int64s:
        """One of the open auctions, or of the next ones."""
        newest = np.maximum(self.newest_auction(numbers), 0)
        first = np.maximum(newest - _IN_FLIGHT_AUCTIONS, 0)
        near: Int64s = first + below(numbers, salt, newest - first + 1 + _LEAD)
        return near

    def auction_length_ms(self, numbers: Int64s, salt: int) -> Int64s:
        """How long an auction is open: about as long as it takes to open as many new auctions as are open at a time."""
        ahead = _IN_FLIGHT_AUCTIONS * self.round_length // self.auctions
        horizon = self.times_ms(numbers + ahead) - self.times_ms(numbers)
        return 1 + below(numbers, salt, np.maximum(horizon * 2, 1))

    def hot(self, ids: Int64s) -> Int64s:
        """The hot id while `ids` are the newest."""
        return ids // _HOT_GROUP * _HOT_GROUP


def chosen(condition: Any, first: Int64s, second: Int64s) -> Int64s:
    """The first where the condition holds, else the second."""
    return np.where(condition, first, second)
