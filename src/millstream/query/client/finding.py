"""How a client comes to know servers: from registrations in the job's store, or from servers that are known.

A server that is asked tells of itself and of all others that are registered with its job, so one address that answers
is enough. Addresses that were given stay candidates, whatever is found.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx

from millstream.checkpoint.job_record import read as read_job_record
from millstream.errors import ConfigurationError
from millstream.query.client.deadlines import within
from millstream.query.client.directory import ServerPlace
from millstream.query.client.errors import NoServerError, QueryRefusedError
from millstream.query.client.received import JobIdentity, NoAnswer, body_of, json_of_body, place_of
from millstream.query.client.trust import Trust
from millstream.query.errors import UnknownJobError
from millstream.query.wire.addresses import ServerAddress
from millstream.query.wire.registration import registrations_of
from millstream.storage.store import Store, open_store

__all__ = ["Finding", "given_addresses"]

_ASK_S = 3.0
_TOLD_BYTES_MAX = 8 << 20


def given_addresses(store_or_urls: str | Sequence[str]) -> list[str]:
    """The addresses of servers that were given; none where it is a store.

    >>> given_addresses(["https://a:8787/"]), given_addresses("jobs/clicks")
    (['https://a:8787'], [])
    """
    given = [store_or_urls] if isinstance(store_or_urls, str) else list(store_or_urls)
    if not given:
        raise ConfigurationError("no address is given. Give the store of a job, or addresses of query servers.")
    are_urls = [one.startswith(("http://", "https://")) for one in given]
    if not all(are_urls) and len(given) > 1:
        raise ConfigurationError(f"{given} are several stores. Give one, or addresses that begin with http.")
    return [one.rstrip("/") for one in given] if are_urls[0] else []


class Finding:
    """Finds the servers of one job, those that are trusted."""

    def __init__(self, store_or_urls: str | Sequence[str], http: httpx.Client, job: str | None, trust: Trust) -> None:
        self._seeds = given_addresses(store_or_urls)
        self._http, self._job, self._trust = http, job, trust
        self._store: Store | None = None
        if not self._seeds:
            self._store = open_store(store_or_urls if isinstance(store_or_urls, str) else store_or_urls[0])
        self._identity: JobIdentity | None = None
        self._lock = threading.Lock()

    def identity(self) -> JobIdentity:
        """The job that is asked about."""
        with self._lock:
            if self._identity is None:
                self._identity = JobIdentity(self._found_job())
            return self._identity

    def job(self) -> str:
        """The job's id, or the name that was given."""
        return self.identity().job

    def places(self) -> list[ServerPlace]:
        """The servers there are."""
        if self._store is None:
            return self._trust.admitted(self._told_places())
        job = self.job()
        # All of them, whenever they end: whose clock is right is not known, and a dead one is soon found out.
        registered = sorted(registrations_of(self._store), key=lambda one: -one.ends_ms)
        places = [place_of(vars(one)) for one in registered if job == one.job_id]
        return self._trust.admitted([place for place in places if place is not None])

    def _told_places(self) -> list[ServerPlace]:
        """What the servers whose addresses were given tell of themselves and of others."""
        job = quote(self.job(), safe="")
        found: dict[str, ServerPlace] = {}
        refusal: QueryRefusedError | None = None
        for seed in self._seeds:
            try:
                told = self._asked(f"{seed}/v1/jobs/{job}/servers")
            except QueryRefusedError as error:
                if error.code != "unknown-job":
                    raise
                refusal = error  # another job's, perhaps: the next may be right
                continue
            held = told.get("held") if told is not None else None
            first, last = held if isinstance(held, list) and len(held) == 2 else (None, None)
            own = place_of({**(told or {}), "url": seed, "first_group": first, "last_group": last})
            others = told.get("servers") if told is not None else None
            if told is None or own is None or not isinstance(others, list):
                continue
            found[seed] = replace(own, flight_url=_beside(seed, own.flight_url))
            for place in map(place_of, others):
                if place is not None and place.url not in (seed, told.get("url")):
                    found.setdefault(place.url, place)
        if refusal is not None and not found:
            raise refusal
        return list(found.values())

    def _found_job(self) -> str:
        if self._store is not None:
            record = read_job_record(self._store)
            if record is None:
                raise UnknownJobError(f"{self._store.url} holds no job. Give the store of a job.")
            if self._job not in (None, record.job_id, *record.names):
                raise UnknownJobError(
                    f"{self._store.url} holds the job '{record.job}', not {self._job!r}. Give the store of that job."
                )
            return record.job_id
        if self._job is not None:
            return self._job
        for seed in self._seeds:
            told = self._asked(f"{seed}/v1/jobs")
            try:
                if told is not None:
                    return str(told["jobs"][0]["job_id"])
            except (KeyError, IndexError, TypeError):
                continue  # whatever answers there, it is no query server
        raise NoServerError(f"no server answers at {', '.join(self._seeds)}. Look whether they run.")

    def _asked(self, url: str) -> dict[str, Any] | None:
        try:
            headers = self._trust.headers(_origin(url))
            with within(_ASK_S), self._http.stream("GET", url, timeout=_ASK_S, headers=headers) as response:
                told = json_of_body(body_of(response, _TOLD_BYTES_MAX))
        except (httpx.HTTPError, OSError, NoAnswer):
            return None
        code, message = told.get("error"), told.get("message")
        if response.status_code in (401, 403, 404) and isinstance(code, str) and isinstance(message, str):
            raise QueryRefusedError(message, response.status_code, code)
        return told if response.status_code == 200 else None


def _origin(url: str) -> str:
    return "/".join(url.split("/", 3)[:3])


def _beside(url: str, flight_url: str | None) -> str | None:
    """Where a server speaks Flight: by the host it is known by, if it listens everywhere and names none."""
    address, flight = ServerAddress.parsed(url), ServerAddress.parsed(flight_url)
    if address is None or flight is None or flight.host not in ("0.0.0.0", "::"):
        return flight_url
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{flight.scheme}://{host}:{flight.port}"
