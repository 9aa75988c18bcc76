"""Many keys of one or several states, from as many servers as it takes, all of one epoch.

Every key is a *row*. Rows are shared out to servers by key group (`shares.py`), each share is asked for in requests of
a bounded size, and where one answer is newer than another, it is asked for again at the older one's epoch. Servers may
come and go meanwhile, and the epoch that all had may be collected: then all of it begins again, with the servers that
there are then, until time is up.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

from millstream.query.client.asking import PAUSE_S, Asking, NobodyAnswered, Question
from millstream.query.client.directory import Directory
from millstream.query.client.errors import NoServerError, QueryRefusedError
from millstream.query.client.shares import shares_of
from millstream.query.wire.json_values import json_of_key

__all__ = ["Reading", "Row", "Settling", "bodies_of", "halves_of"]

Row: TypeAlias = tuple[int, Any]
"""The number of the question that a key is asked by, and the key."""

_KEYS_PER_REQUEST = 5_000
_READS_PER_REQUEST = 100
_T = TypeVar("_T")

Ask: TypeAlias = Callable[[Sequence[int], set[int], int | None, float], _T]
"""Ask one server for some rows, in these key groups, at the epoch that the question is about (None) or at the one that
all have, until a time; NobodyAnswered if none does."""


class Settling:
    """Asks for shares until all answers belong to one epoch."""

    def __init__(self, directory: Directory, timeout_s: float, now_s: Callable[[], float]) -> None:
        self._directory, self._timeout_s, self._now_s = directory, timeout_s, now_s

    def settled(
        self,
        groups_of_rows: Callable[[], Sequence[int | None]],
        ask: Ask[_T],
        epoch_of: Callable[[_T], int],
        *,
        is_newest: bool,
    ) -> tuple[list[list[int]], list[_T]]:
        """The shares, and an answer for each. `groups_of_rows`: the key group of each row, None where all servers that
        there are now hold it. `is_newest`: the question is about no epoch in particular."""
        until_s = self._now_s() + self._timeout_s
        while True:
            groups = groups_of_rows()
            shares = shares_of(groups, self._directory.places())

            def ask_for(share: Sequence[int], epoch: int | None, groups: Sequence[int | None] = groups) -> _T:
                held = set(groups) if len(share) == len(groups) else {groups[row] for row in share}
                return ask(share, {group for group in held if group is not None}, epoch, until_s)

            try:
                return shares, _of_one_epoch(shares, ask_for, epoch_of)
            except NobodyAnswered as error:
                # Whoever held these rows is gone; those that are there now may hold other parts of them.
                if self._now_s() >= until_s:
                    raise NoServerError(str(error)) from error
            except QueryRefusedError as error:
                # The epoch that all had was collected before the slowest of them was asked.
                if error.code != "epoch-gone" or not is_newest or self._now_s() >= until_s:
                    raise
            time.sleep(PAUSE_S)
            self._directory.look_again()


def _of_one_epoch(
    shares: Sequence[Sequence[int]],
    ask: Callable[[Sequence[int], int | None], _T],
    epoch_of: Callable[[_T], int],
) -> list[_T]:
    told = [ask(rows, None) for rows in shares]
    oldest = min(map(epoch_of, told))
    return [one if epoch_of(one) == oldest else ask(rows, oldest) for one, rows in zip(told, shares, strict=True)]


class Reading:
    """Reads rows over HTTP."""

    def __init__(self, asking: Asking, settling: Settling) -> None:
        self._asking, self._settling = asking, settling

    def read(
        self,
        path: str,
        states: Sequence[str],
        rows: Sequence[Row],
        groups_of_rows: Callable[[], Sequence[int | None]],
        params: dict[str, Any],
        epoch_min: int,
    ) -> tuple[dict[str, Any], list[Any]]:
        """The facts of the epoch, and the value of every row. `params` say which epoch; without, the newest, that is
        `epoch_min` at least."""

        def ask(share: Sequence[int], groups: set[int], epoch: int | None, until_s: float) -> dict[str, Any]:
            asked = params if epoch is None else {"epoch": epoch}
            first = Question(path, "reads", asked, None, 0 if asked else epoch_min)
            return self._share(first, bodies_of(states, [rows[row] for row in share]), groups, until_s)

        shares, told = self._settling.settled(groups_of_rows, ask, lambda one: int(one["epoch"]), is_newest=not params)
        values: list[Any] = [None] * len(rows)
        for share, one in zip(shares, told, strict=True):
            for row, value in zip(share, one["values"], strict=True):
                values[row] = value
        return told[0], values

    def _share(
        self, question: Question, bodies: Iterable[dict[str, Any]], groups: set[int], until_s: float
    ) -> dict[str, Any]:
        """The values of rows that one server holds, in several requests, of one epoch: that of the first answer."""
        whole: dict[str, Any] = {}
        waiting = deque(bodies)
        while waiting:
            body = waiting.popleft()
            try:
                told = self._asking.ask_once(replace(question, body=body), groups, until_s)
            except QueryRefusedError as error:
                halves = halves_of(body) if error.code == "too-large" else []
                if not halves:
                    raise
                waiting.extendleft(reversed(halves))  # their values are too large for one answer
                continue
            values = [value for one in told["reads"] for value in one["values"]]
            if whole:
                whole["values"] += values
            else:
                whole = {**told, "values": values}
                question = Question(question.path, "reads", {"epoch": told["epoch"]})
        return whole


def bodies_of(states: Sequence[str], rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """The requests that ask for these rows, in their order, none with more than a server takes at once.

    >>> list(bodies_of(["totals", "names"], [(0, "ann"), (0, "bo"), (1, 7)]))
    [{'reads': [{'state': 'totals', 'keys': ['ann', 'bo']}, {'state': 'names', 'keys': [7]}]}]
    """
    reads: list[dict[str, Any]] = []
    left = _KEYS_PER_REQUEST
    for number, of_question in groupby(rows, key=lambda row: row[0]):
        keys = [json_of_key(key) for _, key in of_question]
        while keys:
            reads.append({"state": states[number], "keys": keys[:left]})
            keys, left = keys[left:], left - len(reads[-1]["keys"])
            if not left or len(reads) == _READS_PER_REQUEST:
                yield {"reads": reads}
                reads, left = [], _KEYS_PER_REQUEST
    if reads:
        yield {"reads": reads}


def halves_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Two requests in place of one, in the same order; none where it asks for one key.

    >>> halves_of({"reads": [{"state": "totals", "keys": ["ann", "bo", "cy"]}]})
    [{'reads': [{'state': 'totals', 'keys': ['ann']}]}, {'reads': [{'state': 'totals', 'keys': ['bo', 'cy']}]}]
    """
    rows = [(read["state"], key) for read in body["reads"] for key in read["keys"]]
    if len(rows) < 2:
        return []
    middle = len(rows) // 2
    return [
        {"reads": [{"state": state, "keys": [key for _, key in part]} for state, part in groupby(half, itemgetter(0))]}
        for half in (rows[:middle], rows[middle:])
    ]
