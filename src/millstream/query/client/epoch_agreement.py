"""Fetches many keys of one or several states, from as many servers as necessary, all at one epoch.

Every key is a *row*. Rows are assigned to servers by key group, to as few servers as possible. Each share is fetched in
requests of bounded size, and if one answer is newer than another, it is fetched again at the older one's epoch. Servers
may start and end in the meantime, and the common epoch may be removed: then the whole query restarts with the current
servers, until the time limit.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeAlias, TypeVar

from millstream.query.client.discovery import Directory
from millstream.query.client.requester import PAUSE_S, AllServersFailed, Question, Requester
from millstream.query.client.responses import NoServerError, QueryRefusedError
from millstream.query.wire.json_values import json_of_key
from millstream.query.wire.servers import ServerPlace

__all__ = ["EpochAgreement", "Row", "RowReader", "bodies_of", "halves_of", "shares_of"]

Row: TypeAlias = tuple[int, Any]
"""The index of the question that the key belongs to, and the key."""

_KEYS_PER_REQUEST = 5_000
_READS_PER_REQUEST = 100
_T = TypeVar("_T")

Fetch: TypeAlias = Callable[[Sequence[int], set[int], int | None, float], _T]
"""Fetches some rows from one server, in these key groups, at the epoch of the question (None) or at the common one,
until a time. Raises AllServersFailed if no server answers."""


def shares_of(groups: Sequence[int | None], places: Sequence[ServerPlace]) -> list[list[int]]:
    """Divides rows, given the key group of each, into shares. Greedy: the server that holds the most rows takes all of
    these, then the next server.

    Rows of groups that no server holds are a separate share: fetching it reports that. Rows without a group (None),
    which every server answers, are in the first share.

    >>> shares_of([1, 70, 2, 99, 98], [ServerPlace("a", 0, 63), ServerPlace("b", 64, 97)])
    [[0, 2], [1], [4], [3]]
    >>> shares_of([None, 70, 2], [ServerPlace("a", 0, 63), ServerPlace("b", 64, 97)])
    [[0, 2], [1]]
    """
    left = {group for group in groups if group is not None}
    if not left:
        return [list(range(len(groups)))]
    shares: list[set[int]] = []
    while left:
        best = max(({group for group in left if place.holds([group])} for place in places), key=len, default=set())
        shares.append(best or {min(left)})
        left -= shares[-1]
    share_of = {group: i for i, share in enumerate(shares) for group in share}
    rows: list[list[int]] = [[] for _ in shares]
    for row, group in enumerate(groups):
        rows[0 if group is None else share_of[group]].append(row)
    return rows


class EpochAgreement:
    """Fetches shares until all answers belong to one epoch."""

    def __init__(self, directory: Directory, timeout_s: float, now_s: Callable[[], float]) -> None:
        self._directory, self._timeout_s, self._now_s = directory, timeout_s, now_s

    def answers(
        self,
        groups_of_rows: Callable[[], Sequence[int | None]],
        fetch: Fetch[_T],
        epoch_of: Callable[[_T], int],
        *,
        is_newest: bool,
    ) -> tuple[list[list[int]], list[_T]]:
        """The shares, and an answer for each. `groups_of_rows`: the key group of each row, None if all current servers
        hold it. `is_newest`: the query does not request a particular epoch."""
        until_s = self._now_s() + self._timeout_s
        while True:
            groups = groups_of_rows()
            shares = shares_of(groups, self._directory.places())

            def fetch_share(share: Sequence[int], epoch: int | None, groups: Sequence[int | None] = groups) -> _T:
                held = set(groups) if len(share) == len(groups) else {groups[row] for row in share}
                return fetch(share, {group for group in held if group is not None}, epoch, until_s)

            try:
                return shares, _of_one_epoch(shares, fetch_share, epoch_of)
            except AllServersFailed as error:
                # The servers of these rows have ended; the current ones may hold other parts of them.
                if self._now_s() >= until_s:
                    raise NoServerError(str(error)) from error
            except QueryRefusedError as error:
                # The common epoch was removed before the slowest server was queried.
                if error.code != "epoch-gone" or not is_newest or self._now_s() >= until_s:
                    raise
            time.sleep(PAUSE_S)
            self._directory.find_again()


def _of_one_epoch(
    shares: Sequence[Sequence[int]],
    fetch: Callable[[Sequence[int], int | None], _T],
    epoch_of: Callable[[_T], int],
) -> list[_T]:
    answers = [fetch(rows, None) for rows in shares]
    oldest = min(map(epoch_of, answers))
    return [
        answer if epoch_of(answer) == oldest else fetch(rows, oldest)
        for answer, rows in zip(answers, shares, strict=True)
    ]


class RowReader:
    """Reads rows over HTTP."""

    def __init__(self, requester: Requester, agreement: EpochAgreement) -> None:
        self._requester, self._agreement = requester, agreement

    def read(
        self,
        path: str,
        states: Sequence[str],
        rows: Sequence[Row],
        groups_of_rows: Callable[[], Sequence[int | None]],
        params: dict[str, Any],
        epoch_min: int,
    ) -> tuple[dict[str, Any], list[Any]]:
        """The facts of the epoch, and the value of every row. `params` select the epoch; by default the newest, which
        is at least `epoch_min`."""

        def fetch(share: Sequence[int], groups: set[int], epoch: int | None, until_s: float) -> dict[str, Any]:
            epoch_params = params if epoch is None else {"epoch": epoch}
            question = Question(path, "reads", epoch_params, None, 0 if epoch_params else epoch_min)
            return self._share(question, bodies_of(states, [rows[row] for row in share]), groups, until_s)

        shares, answers = self._agreement.answers(
            groups_of_rows, fetch, lambda answer: int(answer["epoch"]), is_newest=not params
        )
        values: list[Any] = [None] * len(rows)
        for share, answer in zip(shares, answers, strict=True):
            for row, value in zip(share, answer["values"], strict=True):
                values[row] = value
        return answers[0], values

    def _share(
        self, question: Question, bodies: Iterable[dict[str, Any]], groups: set[int], until_s: float
    ) -> dict[str, Any]:
        """The values of rows that one server holds, in several requests, of one epoch: that of the first answer."""
        whole: dict[str, Any] = {}
        waiting = deque(bodies)
        while waiting:
            body = waiting.popleft()
            try:
                answer = self._requester.fetch_once(replace(question, body=body), groups, until_s)
            except QueryRefusedError as error:
                halves = halves_of(body) if error.code == "too-large" else []
                if not halves:
                    raise
                waiting.extendleft(reversed(halves))  # their values are too large for one answer
                continue
            values = [value for read in answer["reads"] for value in read["values"]]
            if whole:
                whole["values"] += values
            else:
                whole = {**answer, "values": values}
                question = Question(question.path, "reads", {"epoch": answer["epoch"]})
        return whole


def bodies_of(states: Sequence[str], rows: Sequence[Row]) -> Iterator[dict[str, Any]]:
    """The requests for these rows, in order, none larger than a server accepts.

    >>> list(bodies_of(["totals", "names"], [(0, "ann"), (0, "bo"), (1, 7)]))
    [{'reads': [{'state': 'totals', 'keys': ['ann', 'bo']}, {'state': 'names', 'keys': [7]}]}]
    """
    reads: list[dict[str, Any]] = []
    left = _KEYS_PER_REQUEST
    for number, rows_of_question in groupby(rows, key=lambda row: row[0]):
        keys = [json_of_key(key) for _, key in rows_of_question]
        while keys:
            reads.append({"state": states[number], "keys": keys[:left]})
            keys, left = keys[left:], left - len(reads[-1]["keys"])
            if not left or len(reads) == _READS_PER_REQUEST:
                yield {"reads": reads}
                reads, left = [], _KEYS_PER_REQUEST
    if reads:
        yield {"reads": reads}


def halves_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Splits a request in two, in the same order; none if it has only one key.

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
