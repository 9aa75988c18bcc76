"""Sends one request to servers until one answers: to the next if the first is dead, stale or the wrong one, and
concurrently to a second if the first is slow.

    answered                        the result
    refused (404, 422, …)           QueryRefusedError: every server would refuse the same
    not here, too old, busy, gone   the next server; after the last, find servers again, until the time limit
                                    (`fetch_once` leaves that to the caller, which may query several servers for parts)
    silent for a while              a second server is queried too, and the first answer counts

Requests only read, so sending one twice does no harm.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import httpx

from millstream.query.client.discovery import Directory, Trust
from millstream.query.client.responses import (
    InvalidAnswer,
    JobIdentity,
    NoServerError,
    QueryRefusedError,
    body_of,
    check_epoch,
    check_form,
    json_of_body,
    lines_of,
    within,
)
from millstream.query.wire.servers import ServerPlace

__all__ = ["PAUSE_S", "AllServersFailed", "Question", "Requester", "ServerFailed", "answer_of"]

PAUSE_S = 0.05
"""How long to wait before servers are queried again."""

_ELSEWHERE = frozenset({408, 412, 421, 429, 500, 502, 503, 504})
_CONNECT_S = 2.0
_SILENT_S = 30.0
_CODE_MAX, _MESSAGE_MAX = 60, 10_000


@dataclass(frozen=True)
class Question:
    """A request, independent of the server. `part` names the member of an answer besides the facts of its epoch."""

    path: str
    part: str
    params: Mapping[str, Any] = field(default_factory=dict)
    body: Any = None
    epoch_min: int = 0


class ServerFailed(Exception):
    """One server did not answer; another may."""


class AllServersFailed(Exception):
    """No known server that holds all key groups of a request answered it. Other servers, or several together, may."""


def answer_of(status: int, body: bytes) -> dict[str, Any]:
    """The answer in a response; raises ServerFailed or QueryRefusedError if it contains none.

    A refusal comes from a query server if it has a code and a message. A redirect, or the page of another kind of
    server or proxy, carries no information about the job.
    """
    if status == 200:
        return json_of_body(body)
    try:
        refusal = json_of_body(body)
    except InvalidAnswer:
        refusal = {}
    code, message = refusal.get("error"), refusal.get("message")
    if not (isinstance(code, str) and isinstance(message, str)):
        raise ServerFailed(f"status {status}, and no answer of a query server")
    # A server of another job may have taken over the address of one of this job.
    if status in _ELSEWHERE or not 400 <= status < 500 or code == "unknown-job":
        raise ServerFailed(f"{code[:_CODE_MAX]}: {message[:_MESSAGE_MAX]}")
    raise QueryRefusedError(message[:_MESSAGE_MAX], status, code[:_CODE_MAX])


class Requester:
    """Queries the servers of a directory about the job with this `identity`. Closing it also closes the connections,
    after the last request in flight."""

    def __init__(
        self,
        directory: Directory,
        http: httpx.Client,
        trust: Trust,
        identity: Callable[[], JobIdentity],
        timeout_s: float,
        hedge_after_s: float,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._directory, self._http, self._trust, self._identity = directory, http, trust, identity
        self._timeout_s, self._hedge_after_s, self._now_s = timeout_s, hedge_after_s, now_s
        self._threads = ThreadPoolExecutor(max_workers=32, thread_name_prefix="query-client")
        self._in_flight, self._is_closed = 0, False
        self._lock = threading.Lock()

    def fetch(self, question: Question, groups: Iterable[int] = ()) -> dict[str, Any]:
        """The answer of a server that holds these key groups, as soon as one answers."""
        wanted = list(groups)
        until_s = self._now_s() + self._timeout_s
        while True:
            try:
                return self.fetch_once(question, wanted, until_s)
            except AllServersFailed as error:
                if self._now_s() >= until_s:
                    raise NoServerError(str(error)) from error
            time.sleep(PAUSE_S)
            self._directory.find_again()

    def fetch_once(self, question: Question, groups: Iterable[int], until_s: float) -> dict[str, Any]:
        """The answer of a server that holds these key groups; raises AllServersFailed if none answered."""
        wanted = list(groups)
        excuses: dict[str, str] = {}
        answer = self._first_answer(question, self._directory.candidates(wanted), excuses, until_s)
        if answer is None:
            raise AllServersFailed(_nobody(excuses, wanted, self._timeout_s))
        return answer

    def _first_answer(
        self, question: Question, candidates: list[ServerPlace], excuses: dict[str, str], until_s: float
    ) -> dict[str, Any] | None:
        """Query the servers one after the other, or two at once if one is slow. None if no server answered; `excuses`
        then has the reason of each."""
        next_places = iter(candidates)
        requests: dict[Future[dict[str, Any]], ServerPlace] = {}
        while True:
            place = next(next_places, None)
            if place is not None:
                requests[self._begin(place, question, until_s)] = place
            if not requests:
                return None
            patience_s = self._hedge_after_s if place is not None else max(0.0, until_s - self._now_s())
            done, _ = wait(requests, patience_s, FIRST_COMPLETED)
            for request in done:
                url = requests.pop(request).url
                try:
                    return request.result()
                except ServerFailed as error:
                    excuses[url] = str(error)
            if place is None and not done:
                excuses.update({silent.url: "no answer in time" for silent in requests.values()})
                return None

    def _begin(self, place: ServerPlace, question: Question, until_s: float) -> Future[dict[str, Any]]:
        with self._lock:
            request = self._threads.submit(self._request, place, question, until_s)
            self._in_flight += 1
        request.add_done_callback(self._note_end)
        return request

    def _note_end(self, _: Future[dict[str, Any]]) -> None:
        with self._lock:
            self._in_flight -= 1
        self._close_if_idle()

    def _request(self, place: ServerPlace, question: Question, until_s: float) -> dict[str, Any]:
        if not self._trust.may_contact(place):
            raise ServerFailed("it does not speak TLS, and another server of this job does")
        headers = self._trust.headers(place.url)
        if question.epoch_min:
            headers["if-min-epoch"] = str(question.epoch_min)
        if question.body is not None:
            headers["content-type"] = "application/json"
        left_s = max(0.05, until_s - self._now_s())
        try:
            with (
                within(left_s),
                self._http.stream(
                    "GET" if question.body is None else "POST",
                    place.url + question.path,
                    params=dict(question.params),
                    # Encoded here: a key may be NaN, which httpx's own encoder rejects.
                    content=None if question.body is None else json.dumps(question.body).encode(),
                    headers=headers,
                    timeout=httpx.Timeout(left_s, connect=min(left_s, _CONNECT_S)),
                ) as response,
            ):
                answer = answer_of(response.status_code, body_of(response))
            self._identity().check(answer)
            check_epoch(answer["epoch"], question.params.get("epoch"), question.epoch_min)
            check_form(answer, question.part, question.body)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            self._directory.note_failure(place)
            raise ServerFailed(f"{type(error).__name__}: {error}") from error
        except InvalidAnswer as error:
            self._directory.note_failure(place)
            raise ServerFailed(str(error)) from error
        self._trust.note_answer(place.url)
        return answer

    def events(self, place: ServerPlace, path: str, seen: int) -> Iterator[dict[str, Any]]:
        """The events of a watched key, newer than epoch `seen`, until the server ends the stream; no events if it
        accepts no watcher now. Raises an error of httpx, OSError or InvalidAnswer if the server fails."""
        if not self._trust.may_contact(place):
            return
        params, headers = {"key_format": "json"}, {"last-event-id": str(seen), **self._trust.headers(place.url)}
        with ExitStack() as open_stream:
            with within(_SILENT_S):  # the events themselves have no end
                stream = self._http.stream("GET", place.url + path, params=params, headers=headers, timeout=_SILENT_S)
                response = open_stream.enter_context(stream)
                if response.status_code != 200:
                    try:
                        answer_of(response.status_code, body_of(response))
                    except ServerFailed:
                        return
            for line in lines_of(response):
                if line.startswith(b"data: "):
                    event = json_of_body(line.removeprefix(b"data: "))
                    if "error" in event:
                        return
                    self._identity().check(event)
                    self._trust.note_answer(place.url)
                    if "value" not in event and "windows" not in event:
                        raise InvalidAnswer("its event has no value")
                    yield event

    def close(self) -> None:
        """Stop waiting for answers.

        A request to a slow server may still be in flight after another server has answered. It may just be opening a
        connection, which would never be closed, so connections are closed only after the last request.
        """
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            self._is_closed = True
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        with self._lock:
            is_last = self._is_closed and not self._in_flight
        if is_last:
            self._http.close()


def _nobody(excuses: Mapping[str, str], groups: list[int], timeout_s: float) -> str:
    which = f" that holds key group {groups[0]}" if len(groups) == 1 else ""
    if not excuses:
        return (
            f"there is no query server{which}. Start one with `millstream query-server --job …`, "
            "or pass the address of one that runs."
        )
    reasons = "; ".join(f"{url}: {excuse}" for url, excuse in sorted(excuses.items()))
    return f"no query server{which} answered within {timeout_s:g} s ({reasons}). Check whether they run, and try again."
