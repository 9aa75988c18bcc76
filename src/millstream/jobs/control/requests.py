"""Requests to a running job from other processes, through its store: stop, cancel, rescale (`jobs/launch/job.py:
commands_of`).

    control/{id}.json            the request, sealed
    control/{id}.answer.json     that a job has accepted it; later replaced by the result

Any process that can write to a store may make a request. A running job polls for requests every quarter of a second
(every two seconds if polling costs a call to an object store). If no job accepts a request in time, its client removes
it. The job rejects requests that existed when it started, except read-only queries: an old request must not stop a job.
The job lists them at its start instead of comparing dates, so the clocks of two machines are never compared. There is
no server and no port.

Each request is executed on a thread of its own: a cancel must not wait for a stop that takes long. A request that
cannot be parsed or executed gets a negative answer; the job and its polling continue. Answers that nobody fetches,
because the client has died, are removed with their requests.

The files are not trusted. Anybody with write access to `control/` may have written them, with any version of Millstream
or by hand. An unknown field is rejected rather than ignored (it might restrict the command), as are a newer format, a
wrong type, and a file under the name of another. The rejection is the answer to the request.
"""

from __future__ import annotations

import atexit
import logging
import re
import secrets
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from millstream.checkpoint.sealed import seal, unseal
from millstream.errors import JobFailedError, MillstreamError, StoreDamagedError
from millstream.jobs.control.command import Command
from millstream.storage.shared_names import CONTROL, answer_name, is_request, request_name
from millstream.storage.store import Store

__all__ = [
    "Answer",
    "Mailbox",
    "Request",
    "RequestServer",
    "UnansweredError",
    "answer_of",
    "id_of",
    "request_of",
    "sealed_answer",
    "sealed_request",
]

FORMAT = 1
_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Request:
    """A command and its arguments. `created_ms` is by the client's clock, and is never compared with another clock."""

    id: str
    command: str
    created_ms: int
    arguments: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """The answer to a request: accepted by a job or, if `done`, its result."""

    done: bool
    ok: bool
    text: str


def id_of(name: str) -> str | None:
    """The id of the request in the file `name`; None for any other file.

    >>> id_of("control/a1.json"), id_of("control/a1.answer.json"), id_of("control/..%2F.json")
    ('a1', None, None)
    """
    id = name.removeprefix(f"{CONTROL}/").removesuffix(".json")
    return id if is_request(name) and _ID.fullmatch(id) else None


def sealed_request(request: Request) -> bytes:
    """Serialises a request for its file."""
    return seal("request", FORMAT, asdict(request))


def sealed_answer(answer: Answer) -> bytes:
    """Serialises an answer for its file."""
    return seal("answer", FORMAT, asdict(answer))


def request_of(data: bytes, id: str) -> Request:
    """The request in a file; raises JobFailedError, with a message for the client, if it cannot be executed."""
    request = Request(**_fields(data, "request", Request))
    if request.id != id:
        raise JobFailedError(f"the request is called {request.id!r} but stored under {id!r}. Send it again")
    return request


def answer_of(data: bytes) -> Answer:
    """The answer in a file; raises JobFailedError if it cannot be read."""
    return Answer(**_fields(data, "answer", Answer))


_TYPES: Mapping[str, type] = {
    "id": str,
    "command": str,
    "created_ms": int,
    "arguments": dict,
    "done": bool,
    "ok": bool,
    "text": str,
}


def _fields(data: bytes, kind: str, shape: type[Any]) -> dict[str, Any]:
    try:
        values = unseal(data, kind, FORMAT, f"the {kind}")
    except StoreDamagedError as error:
        raise JobFailedError(f"{error} Use the version of Millstream that runs the job") from error
    names = {place.name for place in fields(shape)}
    unknown, missing = sorted(values.keys() - names), sorted(names - values.keys() - {"arguments"})
    if unknown or missing:
        problem = f"has a field {unknown[0]!r}, which is not known here" if unknown else f"has no field {missing[0]!r}"
        raise JobFailedError(f"the {kind} {problem}. Use the version of Millstream that runs the job")
    for name, value in values.items():
        if type(value) is not _TYPES[name]:
            raise JobFailedError(f"field {name!r} of the {kind} is {value!r}, expected {_TYPES[name].__name__}")
    return values


_LOG = logging.getLogger("millstream.jobs.control.requests")
_EVERY_S = 0.25
_EVERY_S_REMOTE = 2.0
_EXIT_WAIT_S = 2.0
_ANSWER_TRIES = 10
_UNFETCHED_S = 60.0
_ACCEPTED = Answer(done=False, ok=False, text="")
_ANSWER = ".answer.json"


class Mailbox:
    """The requests in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def send(
        self,
        command: str,
        arguments: Mapping[str, Any],
        now_ms: int,
        timeout_s: float,
        patience_s: float = 3600.0,
        purpose: str = "",
    ) -> str:
        """Send a request and wait for its result: at most `timeout_s` until a job accepts it, and `patience_s` until it
        is done. Raises JobFailedError if the answer is negative, UnansweredError if no job accepts it. `purpose`: the
        user's goal, if it is not the command; errors name it."""
        purpose = purpose or command
        request = Request(secrets.token_hex(8), command, now_ms, dict(arguments))
        self._store.put(request_name(request.id), sealed_request(request))
        started, is_accepted = time.monotonic(), False
        try:
            while (waited_s := time.monotonic() - started) < (patience_s if is_accepted else timeout_s):
                answer = self._answer(request.id)
                is_accepted = answer is not None
                if answer is not None and answer.done:
                    return _text_of(purpose, answer)
                time.sleep(0.05 if waited_s < 5 else 0.5)
        finally:
            self.remove(request.id)
        if is_accepted:
            raise JobFailedError(
                f"{purpose}: the job accepted the request and has not completed it within {patience_s:g} s. It is "
                "still working on it, unless it died; `millstream list` shows when its last epoch was"
            )
        raise UnansweredError(
            f"{purpose}: no running job answered in store {self._store.url} within {timeout_s:g} s; the request was "
            "withdrawn. Is it running? `millstream list` shows when its last epoch was"
        )

    def _answer(self, id: str) -> Answer | None:
        return answer_of(self._store.get(answer_name(id))) if self._store.exists(answer_name(id)) else None

    def ids(self) -> tuple[list[str], set[str]]:
        """The ids of all requests, in order, and the ids of all answers."""
        names = self._store.list(CONTROL)
        answers = {name.removeprefix(f"{CONTROL}/")[: -len(_ANSWER)] for name in names if name.endswith(_ANSWER)}
        return [id for id in map(id_of, names) if id is not None], answers

    def request(self, id: str) -> Request | None:
        """The request in the store; None if it was withdrawn. Raises JobFailedError if it cannot be executed."""
        if not self._store.exists(request_name(id)):
            return None
        return request_of(self._store.get(request_name(id)), id)

    def answer(self, id: str, answer: Answer) -> None:
        """Answer a request, if its client still waits."""
        if self._store.exists(request_name(id)):
            self._store.put(answer_name(id), sealed_answer(answer))

    def remove(self, id: str) -> None:
        """Remove a request and its answer."""
        self._store.delete(request_name(id))
        self._store.delete(answer_name(id))

    def poll_interval_s(self) -> float:
        """How often a job should poll."""
        return _EVERY_S if self._store.url.startswith(("file:", "memory:")) else _EVERY_S_REMOTE


def _text_of(command: str, answer: Answer) -> str:
    if answer.ok:
        return answer.text
    raise JobFailedError(answer.text if answer.text.startswith(command) else f"{command}: {answer.text}")


class UnansweredError(JobFailedError):
    """No process runs the job, or none that can access this store."""


class RequestServer:
    """Answers the requests to one job, on a thread of its own, until it is closed.

    `commands` are called with the arguments and return the text of the answer; an exception is a negative answer.
    Requests already in the store when the server is created are stale, and rejected. `every_s`: the
    polling interval, if not the store's default.
    """

    def __init__(
        self,
        store: Store,
        commands: Mapping[str, Command],
        *,
        unfetched_s: float = _UNFETCHED_S,
        every_s: float | None = None,
    ) -> None:
        self._mailbox, self._commands, self._unfetched_s = Mailbox(store), commands, unfetched_s
        self._every_s = self._mailbox.poll_interval_s() if every_s is None else every_s
        self._earlier: set[str] = set()
        with suppress(MillstreamError, OSError):  # no request can arrive through a store that cannot be read
            self._earlier.update(self._mailbox.ids()[0])
        self._answered_s: dict[str, float] = {}
        self._closed = threading.Event()
        self._obeying: dict[str, threading.Thread] = {}
        self._thread = threading.Thread(target=self._serve, name="millstream-requests", daemon=True)

    def start(self) -> RequestServer:
        """Begin to answer."""
        self._thread.start()
        atexit.register(self._answer_at_exit)
        return self

    def close(self) -> None:
        """Accept no more requests; accepted ones are still answered."""
        self._closed.set()

    def _answer_at_exit(self) -> None:
        """The program may be exiting because of a request: answer it before the threads end with the process."""
        self.close()
        self._thread.join(_EXIT_WAIT_S)

    def _serve(self) -> None:
        while not self._closed.wait(self._every_s):
            try:
                self._poll()
            except (MillstreamError, OSError):
                continue  # the driver reports a store that cannot be read
            except Exception:
                _LOG.exception("polling the requests to this job failed; the job continues, and polls again")
        for thread in tuple(self._obeying.values()):
            thread.join()
        atexit.unregister(self._answer_at_exit)

    def _poll(self) -> None:
        """Accept new requests, and remove answers that nobody fetches."""
        self._obeying = {id: thread for id, thread in self._obeying.items() if thread.is_alive()}
        requests, answered = self._mailbox.ids()
        for id in requests:
            if id not in answered and id not in self._obeying:
                with suppress(MillstreamError, OSError):  # one that may not be read, or was just withdrawn
                    self._accept(id)
        now_s = time.monotonic()
        unfetched = (answered | self._earlier.intersection(requests)) - self._obeying.keys()
        self._answered_s = {id: self._answered_s.get(id, now_s) for id in unfetched}
        for id, since_s in self._answered_s.items():
            if now_s - since_s >= self._unfetched_s:
                with suppress(MillstreamError, OSError):  # another user's file, in a folder where only owners remove
                    self._mailbox.remove(id)

    def _accept(self, id: str) -> None:
        try:
            request = self._mailbox.request(id)
            if request is not None and id in self._earlier and not self._is_question(request):
                raise JobFailedError("the request was made before the job started. Send it again")
        except JobFailedError as refusal:
            self._mailbox.answer(id, Answer(done=True, ok=False, text=str(refusal)))
            return
        if request is not None:
            self._mailbox.answer(id, _ACCEPTED)
            thread = threading.Thread(target=self._obey, args=(request,), name="millstream-request", daemon=True)
            self._obeying[id] = thread
            thread.start()

    def _is_question(self, request: Request) -> bool:
        command = self._commands.get(request.command)
        return command is not None and command.is_question

    def _obey(self, request: Request) -> None:
        try:
            command = self._commands.get(request.command)
            if command is None:
                raise JobFailedError(f"unknown request; this job understands {', '.join(sorted(self._commands))}")
            answer = Answer(done=True, ok=True, text=command.obey(request.arguments))
        except Exception as error:
            answer = Answer(done=True, ok=False, text=str(error) or type(error).__name__)
        for _ in range(_ANSWER_TRIES):
            try:
                self._mailbox.answer(request.id, answer)
                return
            except (MillstreamError, OSError):
                # a client waits for the answer: a brief store outage must not make it wait until its timeout
                time.sleep(_EVERY_S)
