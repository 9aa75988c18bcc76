"""How a client comes to know servers: from registrations in the job's store, or from servers that are known.

A server that is asked tells of itself and of all others that are registered with its job, so one address that answers
is enough. Addresses that were given stay candidates, whatever is found.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import httpx

from millstream.checkpoint.job_record import read as read_job_record
from millstream.errors import ConfigurationError
from millstream.query.client.directory import ServerPlace
from millstream.query.client.errors import NoServerError, QueryRefusedError
from millstream.query.errors import UnknownJobError
from millstream.query.wire.registration import registrations_of
from millstream.storage.store import Store, open_store

__all__ = ["Finding"]

_ASK_S = 3.0


class Finding:
    """Finds the servers of one job."""

    def __init__(self, store_or_urls: str | Sequence[str], http: httpx.Client, job: str | None) -> None:
        given = [store_or_urls] if isinstance(store_or_urls, str) else list(store_or_urls)
        if not given:
            raise ConfigurationError("no address is given. Give the store of a job, or addresses of query servers.")
        are_urls = [one.startswith(("http://", "https://")) for one in given]
        if not all(are_urls) and len(given) > 1:
            raise ConfigurationError(f"{given} are several stores. Give one, or addresses that begin with http.")
        self._http, self._job = http, job
        self._seeds = [one.rstrip("/") for one in given] if are_urls[0] else []
        self._store: Store | None = None if are_urls[0] else open_store(given[0])
        self._lock = threading.Lock()

    def job(self) -> str:
        """The job's id, or the name that was given."""
        with self._lock:
            if self._job is None:
                self._job = self._found_job()
            return self._job

    def places(self) -> list[ServerPlace]:
        """The servers there are."""
        if self._store is not None:
            # All of them, whenever they end: whose clock is right is not known, and a dead one is soon found out.
            registered = sorted(registrations_of(self._store), key=lambda one: -one.ends_ms)
            return [ServerPlace(one.url, one.first_group, one.last_group, one.flight_url) for one in registered]
        job = quote(self.job(), safe="")
        found: dict[str, ServerPlace] = {}
        for seed in self._seeds:
            told = self._asked(f"{seed}/v1/jobs/{job}/servers")
            if told is None:
                continue
            held = told["held"] or [None, None]
            found[seed] = ServerPlace(seed, held[0], held[1], told["flight_url"])
            for one in told["servers"]:
                if one["url"] not in (seed, told["url"]):
                    found.setdefault(
                        one["url"], ServerPlace(one["url"], one["first_group"], one["last_group"], one["flight_url"])
                    )
        return list(found.values())

    def _found_job(self) -> str:
        if self._store is not None:
            record = read_job_record(self._store)
            if record is None:
                raise UnknownJobError(f"{self._store.url} holds no job. Give the store of a job.")
            return record.job_id
        for seed in self._seeds:
            told = self._asked(f"{seed}/v1/jobs")
            if told is not None:
                return str(told["jobs"][0]["job_id"])
        raise NoServerError(f"no server answers at {', '.join(self._seeds)}. Look whether they run.")

    def _asked(self, url: str) -> dict[str, Any] | None:
        try:
            response = self._http.get(url, timeout=_ASK_S)
            told: dict[str, Any] = response.json()
        except (httpx.HTTPError, OSError, ValueError):
            return None
        if response.status_code in (401, 403, 404):
            raise QueryRefusedError(str(told.get("message")), response.status_code, str(told.get("error")))
        return told if response.status_code == 200 else None
