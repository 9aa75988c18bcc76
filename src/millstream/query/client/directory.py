"""Where the servers of a job are, and in which order to ask them.

Servers are found in the job's store, where they register, or by asking those whose addresses are given, which tell of
the others. What was found is kept and looked up again when it has aged, or when a question could not be answered. A
server that failed is not forgotten, it is asked last for a while: so a wrong clock, an old registration or one lost
packet never makes a job unreachable that has a server.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from millstream.errors import ConfigurationError

__all__ = ["Directory", "ServerPlace", "in_order"]

_AGES_S = 5.0
_SHUNNED_S = 2.0


@dataclass(frozen=True)
class ServerPlace:
    """A server and the key groups it holds; `first_group` is None where it holds all."""

    url: str
    first_group: int | None = None
    last_group: int | None = None
    flight_url: str | None = None

    def holds(self, groups: Iterable[int]) -> bool:
        """Whether it holds all of these.

        >>> ServerPlace("http://a", 0, 63).holds([0, 63]), ServerPlace("http://a").holds([99])
        (True, True)
        """
        first, last = self.first_group, self.last_group
        return first is None or last is None or all(first <= group <= last for group in groups)


def in_order(
    places: Sequence[ServerPlace], groups: Iterable[int], failed_s: Mapping[str, float], now_s: float, turn: int
) -> list[ServerPlace]:
    """Those that hold the groups: healthy ones first, in turn, then those that failed a moment ago, longest ago first.

    >>> a, b, c = ServerPlace("a"), ServerPlace("b"), ServerPlace("c", 0, 5)
    >>> [place.url for place in in_order([a, b, c], [7], {"a": 9.5}, 10.0, 1)]
    ['b', 'a']
    """
    wanted = list(groups)
    holding = [place for place in places if place.holds(wanted)]
    shunned = [place for place in holding if _is_shunned(place, failed_s, now_s)]
    healthy = [place for place in holding if place not in shunned]
    if healthy:
        first = turn % len(healthy)
        healthy = healthy[first:] + healthy[:first]
    return healthy + sorted(shunned, key=lambda place: failed_s[place.url])


def _is_shunned(place: ServerPlace, failed_s: Mapping[str, float], now_s: float) -> bool:
    return now_s - failed_s.get(place.url, float("-inf")) < _SHUNNED_S


class Directory:
    """The servers that `look` finds. It may be used by many threads."""

    def __init__(self, look: Callable[[], Sequence[ServerPlace]], now_s: Callable[[], float]) -> None:
        self._look, self._now_s = look, now_s
        self._places: Sequence[ServerPlace] = ()
        self._looked_s = float("-inf")
        self._failed_s: dict[str, float] = {}
        self._turns = itertools.count()
        self._lock = threading.Lock()

    def candidates(self, groups: Iterable[int]) -> list[ServerPlace]:
        """Whom to ask for keys of these groups, best first. Each call begins with another, so that all have work."""
        self._refreshed(_AGES_S)
        return in_order(self._places, groups, self._failed_s, self._now_s(), next(self._turns))

    def failed(self, place: ServerPlace) -> None:
        """It did not answer: ask it last for a while, and look soon whether others came."""
        self._failed_s[place.url] = self._now_s()

    def look_again(self) -> None:
        """What is known did not help."""
        self._refreshed(0.05)

    def places(self) -> Sequence[ServerPlace]:
        """Those that are known, without those that failed a moment ago, unless all did."""
        self._refreshed(_AGES_S)
        now_s = self._now_s()
        return [place for place in self._places if not _is_shunned(place, self._failed_s, now_s)] or self._places

    def _refreshed(self, age_s: float) -> None:
        with self._lock:
            if self._now_s() - self._looked_s < age_s:
                return
            try:
                found = list(self._look())
            except ConfigurationError:
                if not self._places:
                    raise
                found = []  # those that are known were right
            # Whoever was there and is not now may still answer; finding nobody is no reason to forget everybody.
            self._places = found or self._places
            self._looked_s = self._now_s()
            known = {place.url for place in self._places}
            self._failed_s = {url: at_s for url, at_s in self._failed_s.items() if url in known}
