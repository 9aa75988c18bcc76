"""Queries of the running job: over HTTP, as a dashboard or `curl` sends them, to the server that the job started
itself.

A query is one GET, without any memory of earlier answers. So a decreasing answer would be visible; `judge.py` checks
everything that a `Watch` received. While no server responds, because the job is down or has not begun, there is no
answer, and that is no error.
"""

from __future__ import annotations

import os
import select
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx
from job import OPEN_WINDOWS

WATCH_EVERY_S = 0.05
LOOK_UP_EVERY_S = 0.2


class OpenWindow(NamedTuple):
    """A window that can still change, and its result so far."""

    start_ms: int
    end_ms: int
    impressions: int
    seen_ms: int


@dataclass(frozen=True)
class Answer:
    """The open windows of an ad, as of a committed epoch; `watermark_ms` is the event time reached."""

    ad: int
    epoch: int
    watermark_ms: int
    age_ms: int
    windows: tuple[OpenWindow, ...]


class Refused(Exception):
    """The server rejected the query; its own message."""


def free_address() -> str:
    """An unused host and port of this machine: the same before and after the crash."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return f"127.0.0.1:{taken.getsockname()[1]}"


class Questions:
    """Queries to one address. It may be used by several threads."""

    def __init__(self, address: str) -> None:
        self._base = f"http://{address}/v1/jobs/impressions/states/{OPEN_WINDOWS}/windows"
        self._http = httpx.Client(timeout=5, trust_env=False)

    def url(self, ad: object) -> str:
        return f"{self._base}/{quote(str(ad), safe='')}"

    def ask(self, ad: object) -> Answer | None:
        """The answer, or None if no server responds yet. Raises Refused if the query is invalid."""
        try:
            response = self._http.get(self.url(ad))
            told = response.json()
        except (httpx.HTTPError, ValueError):
            return None
        if response.status_code == 429 or response.status_code >= 500:
            return None  # there is no epoch yet, or the server is overloaded
        if response.status_code != 200:
            raise Refused(told["message"])
        return answer_of(told)

    def close(self) -> None:
        self._http.close()


def answer_of(told: dict[str, Any]) -> Answer:
    windows = (
        OpenWindow(one["start_ms"], one["end_ms"], one["result"]["impressions"], one["result"]["seen_ms"])
        for one in told["windows"]
    )
    return Answer(told["key"], told["epoch"], told["watermark"] or 0, told["age_ms"], tuple(windows))


class Watch:
    """Queries one ad repeatedly, on a thread, through restarts of the job. Use it in a `with` block."""

    def __init__(self, questions: Questions, ad: int) -> None:
        self._questions, self._ad = questions, ad
        self._answers: list[Answer] = []
        self._refused: Refused | None = None
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)

    @property
    def answers(self) -> tuple[Answer, ...]:
        """All answers so far, in order. Raises Refused if the server rejected the query."""
        if self._refused is not None:
            raise self._refused
        return tuple(self._answers)

    def __enter__(self) -> Watch:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(WATCH_EVERY_S):
            try:
                answer = self._questions.ask(self._ad)
            except Refused as why:
                self._refused = why
                return
            if answer is not None:
                self._answers.append(answer)


class Keyboard:
    """Lines typed at a terminal, each with a time limit."""

    def __init__(self, file: int, now_s: Callable[[], float] = time.monotonic) -> None:
        self._file, self._now_s, self._typed = file, now_s, b""

    def line(self, wait_s: float, is_over: Callable[[], bool]) -> str | None:
        """The next line; None at the end of input, on a timeout, or when `is_over`."""
        until_s = self._now_s() + wait_s
        while b"\n" not in self._typed:
            left_s = until_s - self._now_s()
            if left_s <= 0 or is_over():
                return None
            if select.select([self._file], [], [], min(left_s, LOOK_UP_EVERY_S))[0]:
                came = os.read(self._file, 1024)
                if not came:
                    return None
                self._typed += came
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode(errors="replace").strip()
