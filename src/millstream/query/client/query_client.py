"""A client that finds the servers of a job, asks the right one, and never sees time go backwards.

`QueryClient("jobs/clicks")` finds servers in the job's store; `QueryClient(["http://10.0.0.7:8787"])` begins with
given ones. Keys are hashed here as the job hashes them, so a question goes to a server that holds its key group. The
newest epoch that any answer had is remembered and asked for (`If-Min-Epoch`): another server that lags is waited for
or left out. All values of one `get_many` or `read` belong to one epoch, also where several servers answered.

Values are JSON's: a row is a dict, bytes are base64, decimals and times are texts. For columns with Arrow's types use
`get_columns`; where the store can be read, `millstream.query` needs no server at all.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx
import pyarrow as pa
import pyarrow.compute as pc

from millstream.query.client.answer import Answer
from millstream.query.client.asking import Asking, Question, Unanswered, answer_of
from millstream.query.client.columns import ColumnAsking
from millstream.query.client.deadlines import PunctualTransport, within
from millstream.query.client.directory import Directory
from millstream.query.client.errors import NoServerError
from millstream.query.client.finding import Finding, given_addresses
from millstream.query.client.reading import Reading, Settling
from millstream.query.client.received import NoAnswer, body_of, json_of_body, lines_of, state_of
from millstream.query.client.trust import Trust
from millstream.query.wire.json_values import json_of_key
from millstream.query.wire.served import ServedState

__all__ = ["QueryClient"]

_WATCH_AGAIN_S = 0.2
_SILENT_S = 30.0


class QueryClient:
    """Asks the query servers of a job. It may be used by many threads; close it, or use it in a `with` block.

    `timeout_s` is for a whole question, retries included; `hedge_after_s` is how long a server may be silent before
    another is asked too. `job` is needed where given addresses serve several jobs. A `token` is sent to given addresses
    and to this machine; servers that are found elsewhere, in a store or by others, are asked with it only on
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
        trust = Trust(token, given_addresses(store_or_urls), allow_hosts)
        limits = httpx.Limits(max_connections=200, max_keepalive_connections=50)
        headers = {"accept-encoding": "identity"}  # what is packed may become any number of bytes
        self._http = httpx.Client(headers=headers, transport=PunctualTransport(verify, limits), trust_env=False)
        self._finding = Finding(store_or_urls, self._http, job, trust)
        self._trust, expects = trust, self._finding.identity
        self._directory = Directory(self._finding.places, now_s)
        self._asking = Asking(self._directory, self._http, trust, expects, timeout_s, hedge_after_s, now_s)
        self._settling = Settling(self._directory, timeout_s, now_s)
        self._reading = Reading(self._asking, self._settling)
        self._columns = ColumnAsking(self._directory, trust, expects, timeout_s, flight_root_certificates, now_s)
        self._timeout_s, self._now_s = timeout_s, now_s
        self._states: dict[str, ServedState] = {}
        self._epoch_seen = 0
        self._lock = threading.Lock()

    @property
    def epoch_seen(self) -> int:
        """The newest epoch that an answer had; none will be older."""
        return self._epoch_seen

    def states(self) -> list[ServedState]:
        """What can be asked for with this token."""
        answer = self._asking.ask(Question(f"{self._base()}/states", "states"))
        found = [state for state in map(state_of, answer["states"]) if state is not None]
        self._states = {state.name: state for state in found}
        return found

    def get(self, state: str, key: Any, *, epoch: int | None = None, time: str | int | None = None) -> Answer:
        """The value of one key, now or in the past."""
        path = f"{self._base()}/states/{_quoted(state)}/keys/{_quoted(_text(key))}"
        return self._one(Question(path, "value", _params(epoch, time, key_format="json")), state, key)

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
        found: list[list[Answer]] = [[] for _ in questions]
        if not rows:
            return found

        def groups() -> list[int | None]:
            return [group for state, keys in questions for group in self._groups_or_none(state, keys)]

        params = _params(epoch, time)
        told, values = self._reading.read(f"{self._base()}/read", states, rows, groups, params, self._epoch_seen)
        self._saw(told["epoch"], not params)
        for (number, _), value in zip(rows, values, strict=True):
            found[number].append(Answer.of(told, value))
        return found

    def get_columns(self, state: str, keys: pa.Array, *, epoch: int | None = None) -> pa.Table:
        """The columns key, found and value for a column of keys, in its order, of one epoch; over Arrow Flight.

        The epoch is in the metadata of the schema. The servers must have been started with a port for Flight.
        """

        def groups() -> Sequence[int | None]:
            known = self._known(state) if self._has_ranges() else None
            return known.groups_of_column(keys) if known is not None and known.key_groups else [None] * len(keys)

        epoch_min = {"epoch_min": self._epoch_seen} if self._epoch_seen else {}

        def ask(rows: Sequence[int], held: set[int], settled: int | None, until_s: float) -> pa.Table:
            at = epoch if settled is None else settled
            question = {"state": state, **(epoch_min if at is None else {"epoch": at})}
            piece = keys if len(rows) == len(keys) else keys.take(pa.array(rows))
            return self._columns.ask_once(question, piece, held, until_s)

        shares, parts = self._settling.settled(groups, ask, _epoch_of, is_newest=epoch is None)
        self._saw(_epoch_of(parts[0]), epoch is None)
        if len(parts) == 1:
            return parts[0]
        order = pa.array([row for rows in shares for row in rows])
        return pa.concat_tables(parts).take(pc.sort_indices(order))

    def windows(self, state: str, key: Any, *, epoch: int | None = None, time: str | int | None = None) -> Answer:
        """The windows still open for a key: a list of dicts with start_ms, end_ms, result."""
        path = f"{self._base()}/states/{_quoted(state)}/windows/{_quoted(_text(key))}"
        return self._one(Question(path, "windows", _params(epoch, time, key_format="json")), state, key)

    def series(self, state: str, key: Any) -> list[Answer]:
        """The value of a key at every retained epoch, oldest first."""
        path = f"{self._base()}/states/{_quoted(state)}/series/{_quoted(_text(key))}"
        told = self._asking.ask(Question(path, "points", {"key_format": "json"}), self._groups(state, [key]))
        now_ms = told["committed_ms"] + told["age_ms"]
        return [
            Answer(one["value"], one["epoch"], None, one["committed_ms"], max(0, now_ms - one["committed_ms"]))
            for one in told["points"]
        ]

    def scan(self, state: str, prefix: str | None = None, limit: int = 100) -> list[dict[str, Any]]:
        """Rows of a state."""
        params = {"limit": limit} if prefix is None else {"limit": limit, "prefix": prefix}
        told = self._asking.ask(
            Question(f"{self._base()}/states/{_quoted(state)}/scan", "rows", params, None, self._epoch_seen)
        )
        self._saw(told["epoch"], True)
        rows: list[dict[str, Any]] = told["rows"]
        return rows

    def watch(self, state: str, key: Any) -> Iterator[Answer]:
        """The value of a key, or its windows, now and whenever it has changed. A server that goes away is replaced."""
        path = f"{self._base()}/states/{_quoted(state)}/watch/{_quoted(_text(key))}"
        seen, last, fails_at_s = 0, None, self._now_s() + self._timeout_s
        epoch_min = self._epoch_seen
        while True:
            for place in filter(self._trust.may_ask, self._directory.candidates(self._groups(state, [key]))):
                try:
                    for told in self._events(place.url, path, seen):
                        if told["epoch"] < epoch_min:
                            break  # it lags: another may not
                        fails_at_s = self._now_s() + self._timeout_s
                        value = told["windows"] if "windows" in told else told["value"]
                        seen = epoch_min = told["epoch"]
                        self._saw(seen, True)
                        if last != (value,):
                            last = (value,)
                            yield Answer.of(told, value)
                except (httpx.HTTPError, httpx.InvalidURL, OSError, NoAnswer):
                    self._directory.failed(place)
            if self._now_s() > fails_at_s:
                raise NoServerError(f"no server lets key {key!r} of {state!r} be watched. Look whether they run.")
            time.sleep(_WATCH_AGAIN_S)
            self._directory.look_again()

    def close(self) -> None:
        """Let connections go."""
        self._asking.close()
        self._columns.close()

    def __enter__(self) -> QueryClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # --- one question ---------------------------------------------------------------------------------------------

    def _one(self, question: Question, state: str, key: Any) -> Answer:
        is_newest = not {"epoch", "time"} & set(question.params)
        asked = replace(question, epoch_min=self._epoch_seen if is_newest else 0)
        told = self._asking.ask(asked, self._groups(state, [key]))
        self._saw(told["epoch"], is_newest)
        return Answer.of(told, told[question.part])

    def _events(self, url: str, path: str, seen: int) -> Iterator[dict[str, Any]]:
        params, headers = {"key_format": "json"}, {"last-event-id": str(seen), **self._trust.headers(url)}
        with ExitStack() as open_stream:
            with within(_SILENT_S):  # the events themselves have no end
                stream = self._http.stream("GET", url + path, params=params, headers=headers, timeout=_SILENT_S)
                response = open_stream.enter_context(stream)
                if response.status_code != 200:
                    try:
                        answer_of(response.status_code, body_of(response))
                    except Unanswered:
                        return
            for line in lines_of(response):
                if line.startswith(b"data: "):
                    told = json_of_body(line.removeprefix(b"data: "))
                    if "error" in told:
                        return
                    self._finding.identity().check(told)
                    self._trust.answered(url)
                    if "value" not in told and "windows" not in told:
                        raise NoAnswer("its event has no value")
                    yield told

    def _groups(self, state: str, keys: Sequence[Any]) -> Sequence[int]:
        """The key groups of keys; none where every server answers."""
        known = self._known(state) if self._has_ranges() else None
        return known.groups_of(keys) if known is not None and known.key_groups else []

    def _groups_or_none(self, state: str, keys: Sequence[Any]) -> Sequence[int | None]:
        return self._groups(state, keys) or [None] * len(keys)

    def _has_ranges(self) -> bool:
        """Whether it matters who is asked: some servers do not hold all key groups."""
        return any(place.first_group is not None for place in self._directory.places())

    def _known(self, state: str) -> ServedState | None:
        if state not in self._states:
            self.states()
        return self._states.get(state)

    def _base(self) -> str:
        return f"/v1/jobs/{_quoted(self._finding.job())}"

    def _saw(self, epoch: int, is_newest: bool) -> None:
        if is_newest:
            with self._lock:
                self._epoch_seen = max(self._epoch_seen, epoch)


def _epoch_of(table: pa.Table) -> int:
    return int(table.schema.metadata[b"epoch"])


def _params(epoch: int | None, time: str | int | None, **more: Any) -> dict[str, Any]:
    asked = {"epoch": epoch, "time": time}
    return {**{name: value for name, value in asked.items() if value is not None}, **more}


def _text(key: Any) -> str:
    return json.dumps(json_of_key(key))


def _quoted(text: str) -> str:
    return quote(text, safe="")
