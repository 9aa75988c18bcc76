"""Requests to a running job from other processes, through its store: stop, cancel, rescale (`jobs/commands.py`).

    control/{id}.json            what is asked, sealed
    control/{id}.answer.json     that a job has taken it up; in its place, later, what came of it

Whoever can write to a store may ask. A running job looks every quarter of a second (every two seconds where looking
costs a call to an object store); a request that nobody takes up in time is taken back, and one that was written before
the job started is void: nobody must be stopped by yesterday's wish. There is no server and no port.

Each request is obeyed on a thread of its own: a cancel must not wait for a stop that takes long.
"""

from __future__ import annotations

import atexit
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from millstream.checkpoint.sealed import seal, unseal
from millstream.errors import JobFailedError, MillstreamError, StoreDamagedError
from millstream.storage.names import CONTROL, answer_name, is_request, request_name
from millstream.storage.store import Store

__all__ = ["Mailbox", "Request", "RequestServer", "UnansweredError"]

FORMAT = 1
_EVERY_S = 0.25
_EVERY_S_REMOTE = 2.0
_LAST_WORDS_S = 2.0


@dataclass(frozen=True)
class Request:
    """A wish: a command and its arguments."""

    id: str
    command: str
    created_ms: int
    arguments: Mapping[str, Any] = field(default_factory=dict)


class Mailbox:
    """The requests in a store."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def ask(
        self, command: str, arguments: Mapping[str, Any], now_ms: int, timeout_s: float, patience_s: float = 3600.0
    ) -> str:
        """Ask, and wait for what comes of it. `timeout_s`: until a job takes the request up; `patience_s`: until it is
        done. JobFailedError when the answer is no, UnansweredError when nobody takes it up."""
        request = Request(secrets.token_hex(8), command, now_ms, arguments)
        self._store.put(request_name(request.id), seal("request", FORMAT, asdict(request)))
        started, taken = time.monotonic(), False
        try:
            while (waited_s := time.monotonic() - started) < (patience_s if taken else timeout_s):
                answer = self._answer(request.id)
                taken = answer is not None
                if answer is not None and answer["done"]:
                    return _told(command, answer)
                time.sleep(0.05 if waited_s < 5 else 0.5)
        finally:
            self._store.delete(request_name(request.id))
            self._store.delete(answer_name(request.id))
        if taken:
            raise JobFailedError(
                f"{command}: the job took the request up and has not done it within {patience_s:g} s. It is still at "
                "it, unless it died; `millstream list` shows when its last epoch was"
            )
        raise UnansweredError(
            f"{command}: no running job answered in store {self._store.url} within {timeout_s:g} s; the request was "
            "taken back. Is it running? `millstream list` shows when its last epoch was"
        )

    def _answer(self, id: str) -> dict[str, Any] | None:
        if not self._store.exists(answer_name(id)):
            return None
        return unseal(self._store.get(answer_name(id)), "answer", FORMAT, "the job's answer")

    def pending(self) -> list[Request]:
        """What is asked and not answered yet."""
        found = []
        for name in self._store.list(CONTROL):
            if is_request(name) and not self._store.exists(answer_name(name.removeprefix(f"{CONTROL}/")[:-5])):
                try:
                    found.append(Request(**unseal(self._store.get(name), "request", FORMAT, name)))
                except StoreDamagedError:
                    continue  # it was taken back, or is no request that we understand: others must still be heard
        return found

    def take_up(self, request: Request) -> None:
        """Say that a request was heard."""
        self._store.put(answer_name(request.id), seal("answer", FORMAT, {"done": False, "ok": False, "text": ""}))

    def answer(self, request: Request, text: str, *, ok: bool) -> None:
        """Say what came of a request, if somebody still waits."""
        if self._store.exists(request_name(request.id)):
            self._store.put(answer_name(request.id), seal("answer", FORMAT, {"done": True, "ok": ok, "text": text}))

    def looks_every_s(self) -> float:
        """How often a job should look."""
        return _EVERY_S if self._store.url.startswith(("file:", "memory:")) else _EVERY_S_REMOTE


def _told(command: str, answer: Mapping[str, Any]) -> str:
    text = str(answer["text"])
    if answer["ok"]:
        return text
    raise JobFailedError(text if text.startswith(command) else f"{command}: {text}")


class UnansweredError(JobFailedError):
    """Nobody runs the job, or not where this store can be seen."""


class RequestServer:
    """Answers the requests to one job, on a thread of its own, until it is closed.

    `commands` are called with the arguments and return what to say; what they raise is the answer no.
    """

    def __init__(self, store: Store, commands: Mapping[str, Callable[..., str]], started_ms: int) -> None:
        self._mailbox, self._commands, self._started_ms = Mailbox(store), commands, started_ms
        self._closed = threading.Event()
        self._obeying: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._serve, name="millstream-requests", daemon=True)

    def start(self) -> RequestServer:
        """Begin to answer."""
        self._thread.start()
        atexit.register(self._say_last_words)
        return self

    def close(self) -> None:
        """Take up no more; what was taken up is still answered."""
        self._closed.set()

    def _say_last_words(self) -> None:
        """The program ends, often because somebody asked: they are told before the threads go with the process."""
        self.close()
        self._thread.join(_LAST_WORDS_S)

    def _serve(self) -> None:
        every_s = self._mailbox.looks_every_s()
        while not self._closed.wait(every_s):
            try:
                for request in self._mailbox.pending():
                    if request.created_ms >= self._started_ms:
                        self._take_up(request)
            except (MillstreamError, OSError):
                continue  # a store that cannot be read is the driver's to report
        for thread in self._obeying:
            thread.join()
        atexit.unregister(self._say_last_words)

    def _take_up(self, request: Request) -> None:
        self._mailbox.take_up(request)
        thread = threading.Thread(target=self._obey, args=(request,), name="millstream-request", daemon=True)
        self._obeying = [*(one for one in self._obeying if one.is_alive()), thread]
        thread.start()

    def _obey(self, request: Request) -> None:
        command = self._commands.get(request.command)
        try:
            if command is None:
                raise JobFailedError(f"unknown request; this job understands {', '.join(sorted(self._commands))}")
            self._mailbox.answer(request, command(**request.arguments), ok=True)
        except Exception as error:
            self._mailbox.answer(request, str(error), ok=False)
