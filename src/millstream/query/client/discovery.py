"""Finds the servers of a job, decides which of them may be contacted, and in which order.

    Discovery    finds servers: from registrations in the job's store, or from servers whose addresses were passed,
                 which name the others. So one reachable address is enough
    Trust        decides which of them may be contacted, and which may receive the token
    Directory    caches them, and orders them for each request

Anybody who can write to the store, or impersonate a server, can name any address. So:

- a token is sent only to hosts that the user named (`allow_hosts=`, or addresses passed to the client) and to this
  machine;
- once a server was contacted over TLS, or the user passed a TLS address, no server is contacted without TLS; and a host
  that is registered with TLS is not contacted without it;
- an address that the user passed is used unchanged, and remains a candidate regardless of what is discovered.

Discovery is repeated when its result is too old, or when a request could not be answered. A failed server is not
removed, but tried last for a while. So a wrong clock, an old registration or one lost packet never makes a job with a
server unreachable.
"""

from __future__ import annotations

import fnmatch
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote

import httpx

from millstream.checkpoint.job_record import read as read_job_record
from millstream.errors import ConfigurationError
from millstream.query.client.responses import (
    InvalidAnswer,
    JobIdentity,
    NoServerError,
    QueryRefusedError,
    body_of,
    json_of_body,
    within,
)
from millstream.query.errors import UnknownJobError
from millstream.query.wire.servers import ServerAddress, ServerPlace, is_loopback, registrations_of
from millstream.redaction import redacted_address
from millstream.storage.store import Store, open_store

__all__ = ["Directory", "Discovery", "Trust", "in_order", "named_addresses"]

_REQUEST_S = 3.0
_RESPONSE_BYTES_MAX = 8 << 20
_AGES_S = 5.0
_SHUNNED_S = 2.0
_PLACES_MAX = 1_000
_SHOWN = 3


def named_addresses(store_or_urls: str | Sequence[str]) -> list[str]:
    """The server addresses that the user passed; empty if the argument is a store.

    >>> named_addresses(["https://a:8787/"]), named_addresses("jobs/clicks")
    (['https://a:8787'], [])
    """
    texts = [store_or_urls] if isinstance(store_or_urls, str) else list(store_or_urls)
    if not texts:
        raise ConfigurationError("no address is set. Pass the store of a job, or addresses of query servers.")
    are_urls = [text.startswith(("http://", "https://")) for text in texts]
    if not all(are_urls) and len(texts) > 1:
        raise ConfigurationError(f"{texts} are several stores. Pass one, or addresses that begin with http.")
    return [text.rstrip("/") for text in texts] if are_urls[0] else []


class Trust:
    """The trust of one client. `named` are the addresses that the user passed."""

    def __init__(self, token: str | None, named: Sequence[str] = (), allow_hosts: Sequence[str] = ()) -> None:
        self._token = token
        addresses = [ServerAddress.parsed(url) for url in named]
        wrong = next((url for url, address in zip(named, addresses, strict=True) if address is None), None)
        if wrong is not None:
            raise ConfigurationError(
                f"{redacted_address(wrong)[:100]!r} is not an address of a server. Pass one as https://HOST:PORT."
            )
        self._named = {address for address in addresses if address is not None}
        patterns = [allow_hosts] if isinstance(allow_hosts, str) else allow_hosts
        self._hosts = [pattern.strip("[]").lower() for pattern in patterns] + [named.host for named in self._named]
        self._needs_tls = any(address.has_tls for address in self._named)
        self._tls_hosts: set[str] = set()
        self._lock = threading.Lock()
        self._headers: dict[str, dict[str, str]] = {}

    def headers(self, url: str) -> dict[str, str]:
        """The client's credentials for requests to this server: the token, if the server may receive it."""
        headers = self._headers.get(url)
        if headers is None:
            address = ServerAddress.parsed(url)
            may_have_token = self._token is not None and address is not None and self._is_trusted(address.host)
            headers = {"authorization": f"Bearer {self._token}"} if may_have_token else {}
            if len(self._headers) < _PLACES_MAX:
                self._headers[url] = headers
        return dict(headers)

    def note_answer(self, url: str) -> None:
        """A server of the job has answered at this address."""
        if url.startswith(("https:", "grpc+tls:")):
            self._needs_tls = True

    def may_contact(self, place: ServerPlace) -> bool:
        """Whether an admitted server may still be contacted: another server may have used TLS since."""
        return self._refusal(place.url, is_flight=False) is None

    def admitted(self, places: Sequence[ServerPlace]) -> list[ServerPlace]:
        """The servers that may be contacted; raises ConfigurationError if there are servers but none of them may be."""
        with self._lock:
            for place in places:
                address = ServerAddress.parsed(place.url)
                if address is not None and address.has_tls and len(self._tls_hosts) < _PLACES_MAX:
                    self._tls_hosts.add(address.host)
        refusals: dict[str, str] = {}
        admitted: list[ServerPlace] = []
        for place in places[:_PLACES_MAX]:
            refusal = self._refusal(place.url, is_flight=False)
            if refusal is None:
                flight_url = place.flight_url
                if flight_url is not None and self._refusal(flight_url, True, place.url) is not None:
                    flight_url = None
                admitted.append(replace(place, flight_url=flight_url))
            else:
                refusals[redacted_address(str(place.url))[:100]] = refusal
        if refusals and not admitted:
            shown = "; ".join(f"{url}: {refusal}" for url, refusal in list(refusals.items())[:_SHOWN])
            raise ConfigurationError(f"no known query server may be contacted. {shown}")
        return admitted

    def _refusal(self, url: str, is_flight: bool, http_url: str = "") -> str | None:
        """Why a server may not be contacted; None if it may. `http_url`: the HTTP address of the same server."""
        address = ServerAddress.parsed(url)
        if address is None or address.is_flight is not is_flight:
            return "that is not an address of a server. Check who can write registrations to the store."
        if address in self._named:
            return None
        http = ServerAddress.parsed(http_url)
        needs_tls = http.has_tls if http is not None else self._needs_tls or address.host in self._tls_hosts
        if needs_tls and not address.has_tls:
            return (
                "it does not speak TLS, and servers of this job do. Start it with a certificate, or pass its address."
            )
        if self._token is not None and not self._is_trusted(address.host):
            return (
                f"the token is not sent to a host that was not named. If {address.host} is one of yours, pass "
                f"QueryClient(..., allow_hosts=[{address.host!r}])."
            )
        return None

    def _is_trusted(self, host: str) -> bool:
        return is_loopback(host) or any(fnmatch.fnmatchcase(host, pattern) for pattern in self._hosts)


class Discovery:
    """Finds the trusted servers of one job."""

    def __init__(self, store_or_urls: str | Sequence[str], http: httpx.Client, job: str | None, trust: Trust) -> None:
        self._seeds = named_addresses(store_or_urls)
        self._http, self._job, self._trust = http, job, trust
        self._store: Store | None = None
        if not self._seeds:
            self._store = open_store(store_or_urls if isinstance(store_or_urls, str) else store_or_urls[0])
        self._identity: JobIdentity | None = None
        self._impostors: dict[str, str] = {}
        self._lock = threading.Lock()

    def identity(self) -> JobIdentity:
        """The requested job: its id, or the name that was passed."""
        with self._lock:
            if self._identity is None:
                self._identity = JobIdentity(self._job_of_store() if self._store is not None else self._job_of_seeds())
            return self._identity

    def places(self) -> list[ServerPlace]:
        """The job's servers."""
        if self._store is None:
            return self._trust.admitted(self._places_of_seeds())
        job = self.identity().job
        # Includes expired ones: a clock may be wrong, and a dead server is detected quickly.
        registrations = sorted(registrations_of(self._store), key=lambda registration: -registration.ends_ms)
        places = [ServerPlace.parsed(vars(server)) for server in registrations if job == server.job_id]
        return self._trust.admitted([place for place in places if place is not None])

    def _places_of_seeds(self) -> list[ServerPlace]:
        """The servers whose addresses were passed, and the others that they name."""
        job = quote(self.identity().job, safe="")
        places: dict[str, ServerPlace] = {}
        refusal: QueryRefusedError | None = None
        for seed in self._seeds:
            try:
                answer = self._get(f"{seed}/v1/jobs/{job}/servers")
            except QueryRefusedError as error:
                if error.code != "unknown-job":
                    raise
                refusal = error  # perhaps another job's server: the next may be right
                continue
            if answer is None or not isinstance(answer.get("servers"), list):
                continue
            held = answer.get("held")
            first, last = held if isinstance(held, list) and len(held) == 2 else (None, None)
            place = ServerPlace.parsed({**answer, "url": seed, "first_group": first, "last_group": last})
            if place is None:
                continue
            places[seed] = replace(place, flight_url=_flight_address(seed, place.flight_url))
            for other in map(ServerPlace.parsed, answer["servers"]):
                if other is not None and other.url not in (seed, answer.get("url")):
                    places.setdefault(other.url, other)
        if refusal is not None and not places:
            raise refusal
        if self._impostors and not places:
            raise NoServerError(f"no server can be contacted. {self._refused_certificates()}")
        return list(places.values())

    def _job_of_store(self) -> str:
        assert self._store is not None
        record = read_job_record(self._store)
        if record is None:
            raise UnknownJobError(f"{self._store.url} holds no job. Pass the store of a job.")
        if self._job not in (None, record.job_id, *record.names):
            raise UnknownJobError(
                f"{self._store.url} holds the job '{record.job}', not {self._job!r}. Pass the store of that job."
            )
        return record.job_id

    def _job_of_seeds(self) -> str:
        if self._job is not None:
            return self._job
        for seed in self._seeds:
            answer = self._get(f"{seed}/v1/jobs")
            try:
                if answer is not None:
                    return str(answer["jobs"][0]["job_id"])
            except (KeyError, IndexError, TypeError):
                continue  # a server of another kind
        refused = f" {self._refused_certificates()}" if self._impostors else ""
        raise NoServerError(f"no server answers at {', '.join(self._seeds)}. Check whether they run.{refused}")

    def _refused_certificates(self) -> str:
        reasons = "; ".join(f"{place}: {reason}" for place, reason in self._impostors.items())
        return f"{reasons}. Check the addresses, or name the authority with verify="

    def _get(self, url: str) -> dict[str, Any] | None:
        """The answer of a server; None if it cannot be parsed."""
        place = "/".join(url.split("/", 3)[:3])
        try:
            headers = self._trust.headers(place)
            with within(_REQUEST_S), self._http.stream("GET", url, timeout=_REQUEST_S, headers=headers) as response:
                answer = json_of_body(body_of(response, _RESPONSE_BYTES_MAX))
        except (httpx.HTTPError, OSError, InvalidAnswer) as error:
            from millstream.storage.certificates import certificate_refusal

            if (reason := certificate_refusal(error)) is not None:
                self._impostors[place] = reason
            return None
        self._impostors.pop(place, None)
        code, message = answer.get("error"), answer.get("message")
        if response.status_code in (401, 403, 404) and isinstance(code, str) and isinstance(message, str):
            raise QueryRefusedError(message, response.status_code, code)
        return answer if response.status_code == 200 else None


def _flight_address(url: str, flight_url: str | None) -> str | None:
    """The Flight address of a server: with the host of its HTTP address, if it listens on all interfaces."""
    address, flight = ServerAddress.parsed(url), ServerAddress.parsed(flight_url)
    if address is None or flight is None or flight.host not in ("0.0.0.0", "::"):
        return flight_url
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{flight.scheme}://{host}:{flight.port}"


def in_order(
    places: Sequence[ServerPlace], groups: Iterable[int], failed_s: Mapping[str, float], now_s: float, turn: int
) -> list[ServerPlace]:
    """The servers that hold the groups: healthy ones in rotation, then recently failed ones, earliest failure first.

    >>> a, b, c = ServerPlace("a"), ServerPlace("b"), ServerPlace("c", 0, 5)
    >>> [place.url for place in in_order([a, b, c], [7], {"a": 9.5}, 10.0, 1)]
    ['b', 'a']
    """
    wanted = list(groups)
    holders = [place for place in places if place.holds(wanted)]
    shunned = [place for place in holders if _is_shunned(place, failed_s, now_s)]
    healthy = [place for place in holders if place not in shunned]
    if healthy:
        first = turn % len(healthy)
        healthy = healthy[first:] + healthy[:first]
    return healthy + sorted(shunned, key=lambda place: failed_s[place.url])


def _is_shunned(place: ServerPlace, failed_s: Mapping[str, float], now_s: float) -> bool:
    return now_s - failed_s.get(place.url, float("-inf")) < _SHUNNED_S


class Directory:
    """The servers that `find` returns, cached. Thread-safe."""

    def __init__(self, find: Callable[[], Sequence[ServerPlace]], now_s: Callable[[], float]) -> None:
        self._find, self._now_s = find, now_s
        self._places: Sequence[ServerPlace] = ()
        self._refreshed_s = float("-inf")
        self._failed_s: dict[str, float] = {}
        self._turns = itertools.count()
        self._lock = threading.Lock()

    def candidates(self, groups: Iterable[int]) -> list[ServerPlace]:
        """The servers for keys of these groups, best first. Calls rotate over the servers, to balance the load."""
        self._refresh(_AGES_S)
        return in_order(self._places, groups, self._failed_s, self._now_s(), next(self._turns))

    def note_failure(self, place: ServerPlace) -> None:
        """The server did not answer: try it last for a while."""
        self._failed_s[place.url] = self._now_s()

    def find_again(self) -> None:
        """The cached servers did not suffice: find servers again."""
        self._refresh(0.05)

    def places(self) -> Sequence[ServerPlace]:
        """The cached servers, without those that failed recently, unless all did."""
        self._refresh(_AGES_S)
        now_s = self._now_s()
        return [place for place in self._places if not _is_shunned(place, self._failed_s, now_s)] or self._places

    def _refresh(self, age_max_s: float) -> None:
        with self._lock:
            if self._now_s() - self._refreshed_s < age_max_s:
                return
            try:
                places = list(self._find())
            except ConfigurationError:
                if not self._places:
                    raise
                places = []  # the cached servers are valid
            # A server that is no longer listed may still answer; an empty result does not replace the cache.
            self._places = places or self._places
            self._refreshed_s = self._now_s()
            known = {place.url for place in self._places}
            self._failed_s = {url: at_s for url, at_s in self._failed_s.items() if url in known}
