"""A client that finds the servers of a job, queries the right one, and never goes back in time.

`QueryClient("jobs/clicks")` finds servers in the job's store; `QueryClient(["http://10.0.0.7:8787"])` starts with the
given addresses. Keys are hashed here as the job hashes them, so a query goes to a server that holds its key group. The
client stores the newest epoch of any answer and requests at least that (`If-Min-Epoch`): it waits for a server that
lags, or skips it. All values of one `get_many` or `read` belong to one epoch, even if several servers answered.

Values are JSON values: a row is a dict, bytes are base64, decimals and times are strings. For columns with Arrow's
types use `get_columns`; if the store can be read, `millstream.query` needs no server at all.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa
import pyarrow.compute as pc

from millstream.query.client.column_requester import ColumnRequester
from millstream.query.client.discovery import Directory, Discovery, Trust, named_addresses
from millstream.query.client.epoch_agreement import EpochAgreement, RowReader
from millstream.query.client.requester import Question, Requester
from millstream.query.client.responses import Answer, InvalidAnswer, NoServerError, PunctualTransport
from millstream.query.wire.json_values import json_of_key
from millstream.query.wire.servers import ServedState

__all__ = ["QueryClient"]

_WATCH_AGAIN_S = 0.2


class QueryClient:
    """Queries the query servers of a job. Thread-safe; close it, or use it in a `with` block.

    `timeout_s` is for a whole query, including retries; `hedge_after_s` is how long a server may be silent before
    another is queried as well. `job` is needed if the passed addresses serve several jobs. A `token` is sent to the
    passed addresses and to this machine; to servers found elsewhere, in a store or named by others, only if they match
    `allow_hosts`: names, addresses, or patterns such as `*.example.com`.
    """

    def __init__(
        self,
        store_or_urls: str | Sequence[str],
        *,
        job: str | None = None,
        token: str | None = None,
        allow_hosts: Sequence[str] = (),
        timeout_s: float = 10.0,
        hedge_after_s: float = 0.1,
        verify: Any = True,
        flight_root_certificates: bytes | None = None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        trust = Trust(token, named_addresses(store_or_urls), allow_hosts)
        limits = httpx.Limits(max_connections=200, max_keepalive_connections=50)
        headers = {"accept-encoding": "identity"}  # compressed data may expand to any size
        http = httpx.Client(headers=headers, transport=PunctualTransport(verify, limits), trust_env=False)
        discovery = Discovery(store_or_urls, http, job, trust)
        self._identity = identity = discovery.identity
        self._directory = Directory(discovery.places, now_s)
        self._requester = Requester(self._directory, http, trust, identity, timeout_s, hedge_after_s, now_s)
        self._agreement = EpochAgreement(self._directory, timeout_s, now_s)
        self._rows = RowReader(self._requester, self._agreement)
        self._columns = ColumnRequester(self._directory, trust, identity, timeout_s, flight_root_certificates, now_s)
        self._timeout_s, self._now_s = timeout_s, now_s
        self._states: dict[str, ServedState] = {}
        self._epoch_seen = 0
        self._lock = threading.Lock()

    @property
    def epoch_seen(self) -> int:
        """The newest epoch of any answer; later answers are never older."""
        return self._epoch_seen

    def states(self) -> list[ServedState]:
        """The states that this token may query."""
        answer = self._requester.fetch(Question(f"{self._base()}/states", "states"))
        states = [state for state in map(ServedState.parsed, answer["states"]) if state is not None]
        self._states = {state.name: state for state in states}
        return states

    def get(self, state: str, key: Any, *, epoch: int | None = None, time: str | int | None = None) -> Answer:
        """The value of one key, now or in the past."""
        path = f"{self._base()}/states/{_quoted(state)}/keys/{_quoted(_text(key))}"
        return self._fetch_key(Question(path, "value", _params(epoch, time, key_format="json")), state, key)

    def get_many(
        self, state: str, keys: Sequence[Any], *, epoch: int | None = None, time: str | int | None = None
    ) -> list[Answer]:
        """The values of many keys in their order, all of one epoch."""
        return self.read([(state, keys)], epoch=epoch, time=time)[0]

    def read(
        self,
        questions: Sequence[tuple[str, Sequence[Any]]],
        *,
        epoch: int | None = None,
        time: str | int | None = None,
    ) -> list[list[Answer]]:
        """The values of keys of several states: for each (state, keys) the answers in the order of its keys. All of
        them belong to one epoch."""
        states = [state for state, _ in questions]
        rows = [(number, key) for number, (_, keys) in enumerate(questions) for key in keys]
        answers: list[list[Answer]] = [[] for _ in questions]
        if not rows:
            return answers

        def groups() -> list[int | None]:
            return [group for state, keys in questions for group in self._groups_or_none(state, keys)]

        params = _params(epoch, time)
        facts, values = self._rows.read(f"{self._base()}/read", states, rows, groups, params, self._epoch_seen)
        self._note_epoch(facts["epoch"], not params)
        for (number, _), value in zip(rows, values, strict=True):
            answers[number].append(Answer.of(facts, value))
        return answers

    def get_columns(self, state: str, keys: pa.Array, *, epoch: int | None = None) -> pa.Table:
        """The columns key, found and value for a column of keys, in its order, of one epoch; over Arrow Flight.

        The epoch is in the metadata of the schema. The servers must have been started with a port for Flight.
        """

        def groups() -> Sequence[int | None]:
            known = self._known(state) if self._has_ranges() else None
            return known.groups_of_column(keys) if known is not None and known.key_groups else [None] * len(keys)

        epoch_min = {"epoch_min": self._epoch_seen} if self._epoch_seen else {}

        def fetch(rows: Sequence[int], held: set[int], agreed_epoch: int | None, until_s: float) -> pa.Table:
            wanted_epoch = epoch if agreed_epoch is None else agreed_epoch
            question = {"state": state, **(epoch_min if wanted_epoch is None else {"epoch": wanted_epoch})}
            piece = keys if len(rows) == len(keys) else keys.take(pa.array(rows))
            return self._columns.fetch_once(question, piece, held, until_s)

        shares, parts = self._agreement.answers(groups, fetch, _epoch_of, is_newest=epoch is None)
        self._note_epoch(_epoch_of(parts[0]), epoch is None)
        if len(parts) == 1:
            return parts[0]
        order = pa.array([row for rows in shares for row in rows])
        return pa.concat_tables(parts).take(pc.sort_indices(order))

    def windows(self, state: str, key: Any, *, epoch: int | None = None, time: str | int | None = None) -> Answer:
        """The windows still open for a key: a list of dicts with start_ms, end_ms, result."""
        path = f"{self._base()}/states/{_quoted(state)}/windows/{_quoted(_text(key))}"
        return self._fetch_key(Question(path, "windows", _params(epoch, time, key_format="json")), state, key)

    def series(self, state: str, key: Any) -> list[Answer]:
        """The value of a key at every retained epoch, oldest first."""
        path = f"{self._base()}/states/{_quoted(state)}/series/{_quoted(_text(key))}"
        question = Question(path, "points", {"key_format": "json"})
        answer = self._requester.fetch(question, self._groups(state, [key]))
        now_ms = answer["committed_ms"] + answer["age_ms"]
        return [
            Answer(point["value"], point["epoch"], None, point["committed_ms"], max(0, now_ms - point["committed_ms"]))
            for point in answer["points"]
        ]

    def scan(self, state: str, prefix: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """Rows of a state."""
        params = {"limit": limit} if prefix is None else {"limit": limit, "prefix": prefix}
        path = f"{self._base()}/states/{_quoted(state)}/scan"
        answer = self._requester.fetch(Question(path, "rows", params, None, self._epoch_seen))
        self._note_epoch(answer["epoch"], True)
        rows: list[dict[str, Any]] = answer["rows"]
        return rows

    def watch(self, state: str, key: Any) -> Iterator[Answer]:
        """The value of a key, or its windows, now and after every change. A server that ends is replaced."""
        path = f"{self._base()}/states/{_quoted(state)}/watch/{_quoted(_text(key))}"
        seen, last, fails_at_s = 0, None, self._now_s() + self._timeout_s
        epoch_min = self._epoch_seen
        while True:
            for place in self._directory.candidates(self._groups(state, [key])):
                try:
                    for event in self._requester.events(place, path, seen):
                        if event["epoch"] < epoch_min:
                            break  # it lags: another may not
                        fails_at_s = self._now_s() + self._timeout_s
                        value = event["windows"] if "windows" in event else event["value"]
                        seen = epoch_min = event["epoch"]
                        self._note_epoch(seen, True)
                        if last != (value,):
                            last = (value,)
                            yield Answer.of(event, value)
                except (httpx.HTTPError, httpx.InvalidURL, OSError, InvalidAnswer):
                    self._directory.note_failure(place)
            if self._now_s() > fails_at_s:
                raise NoServerError(f"no server lets key {key!r} of {state!r} be watched. Check whether they run.")
            time.sleep(_WATCH_AGAIN_S)
            self._directory.find_again()

    def close(self) -> None:
        """Close connections."""
        self._requester.close()
        self._columns.close()

    def __enter__(self) -> QueryClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- one question ---------------------------------------------------------------------------------------------

    def _fetch_key(self, question: Question, state: str, key: Any) -> Answer:
        is_newest = not {"epoch", "time"} & set(question.params)
        question = replace(question, epoch_min=self._epoch_seen if is_newest else 0)
        answer = self._requester.fetch(question, self._groups(state, [key]))
        self._note_epoch(answer["epoch"], is_newest)
        return Answer.of(answer, answer[question.part])

    def _groups(self, state: str, keys: Sequence[Any]) -> Sequence[int]:
        """The key groups of the keys; empty if every server answers for them."""
        known = self._known(state) if self._has_ranges() else None
        return known.groups_of(keys) if known is not None and known.key_groups else []

    def _groups_or_none(self, state: str, keys: Sequence[Any]) -> Sequence[int | None]:
        return self._groups(state, keys) or [None] * len(keys)

    def _has_ranges(self) -> bool:
        """Whether the choice of the server matters: some servers do not hold all key groups."""
        return any(place.first_group is not None for place in self._directory.places())

    def _known(self, state: str) -> ServedState | None:
        if state not in self._states:
            self.states()
        return self._states.get(state)

    def _base(self) -> str:
        return f"/v1/jobs/{_quoted(self._identity().job)}"

    def _note_epoch(self, epoch: int, is_newest: bool) -> None:
        if is_newest:
            with self._lock:
                self._epoch_seen = max(self._epoch_seen, epoch)


def _epoch_of(table: pa.Table) -> int:
    return int(table.schema.metadata[b"epoch"])


def _params(epoch: int | None, time: str | int | None, **more: Any) -> dict[str, Any]:
    moment = {"epoch": epoch, "time": time}
    return {**{name: value for name, value in moment.items() if value is not None}, **more}


def _text(key: Any) -> str:
    return json.dumps(json_of_key(key))


def _quoted(text: str) -> str:
    return quote(text, safe="")
