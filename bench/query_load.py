"""Clients that query random keys of a server, each in a process of its own, over one persistent connection.

There are two halves. `clients` starts some and runs them concurrently with an action. Run as a program, this file is
one client: a line `go` starts its queries, the next line stops them and makes it print its measurements, as JSON. It
speaks HTTP/1.1 over a plain socket, because clients share the machine with the job here, and a library would use more
processor time than the server does. A paced client queries at fixed moments; moments missed during a slow answer are
skipped. The latency of an answer is from sending the request to reading its last byte, in the client. A client is an
instrument here: if permitted it has the highest priority (SCHED_FIFO), because waiting for a core that the job uses is
no part of the latency.
"""

from __future__ import annotations

import json
import os
import random
import select
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import TypeVar

import numpy as np
import pyarrow as pa

from millstream.state.keys.hashing import xxhash64_column
from millstream.state.keys.key_columns import key_groups

__all__ = ["Asked", "Seen", "clients"]

GROUPS = 128
_HEAD_END = b"\r\n\r\n"
_T = TypeVar("_T")


@dataclass(frozen=True)
class Asked:
    """The queries of a client: of which server, which keys, how often. `per_s` 0: without pauses."""

    port: int
    path: str
    keys: int
    per_s: float
    first_group: int = 0
    last_group: int = GROUPS - 1
    seed: int = 0


@dataclass
class Seen:
    """The measurements of clients: the latency and the age of each answer; and the processor time they used."""

    took_ms: list[float] = field(default_factory=list)
    ages_ms: list[int] = field(default_factory=list)
    cpu_s: float = 0.0

    def add(self, other: Seen) -> None:
        """Add another client's measurements."""
        self.took_ms += other.took_ms
        self.ages_ms += other.ages_ms
        self.cpu_s += other.cpu_s


class Clients:
    """Some clients, ready to query."""

    def __init__(self, children: Sequence[subprocess.Popen[str]]) -> None:
        self._children = children
        self.seen = [Seen() for _ in children]

    def during(self, action: Callable[[], _T]) -> _T:
        """Run all of them concurrently with `action`."""
        self._say("go")
        done = action()
        self._say("stop")
        for child, seen in zip(self._children, self.seen, strict=True):
            assert child.stdout is not None
            told = child.stdout.readline()
            if not told:
                raise RuntimeError("a client was not answered; what it said is above")
            seen.add(Seen(**json.loads(told)))
        return done

    def reset(self) -> None:
        """Discard the measurements of the warm-up."""
        self.seen = [Seen() for _ in self._children]

    def all(self) -> Seen:
        """The measurements of all of them."""
        together = Seen()
        for seen in self.seen:
            together.add(seen)
        return together

    def _say(self, word: str) -> None:
        for child in self._children:
            print(word, file=child.stdin, flush=True)


@contextmanager
def clients(asked: Sequence[Asked]) -> Iterator[Clients]:
    """One process for each, ready to ask."""
    told, pipe = [json.dumps(asdict(replace(one, seed=seed))) for seed, one in enumerate(asked)], subprocess.PIPE
    commands = [[sys.executable, __file__, one] for one in told]
    children = [subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) for command in commands]
    try:
        for child in children:
            assert child.stdout is not None
            if child.stdout.readline() != "ready\n":
                raise RuntimeError("a client could not start; what it said is above")
        yield Clients(children)
    finally:
        for child in children:
            assert child.stdin is not None
            child.stdin.close()
        for child in children:
            child.wait(60)


class _Client:
    def __init__(self, asked: Asked) -> None:
        self._asked = asked
        keys = np.arange(asked.keys, dtype=np.int64)
        groups = key_groups(xxhash64_column(pa.array(keys)), GROUPS)
        self._keys = keys[(groups >= asked.first_group) & (groups <= asked.last_group)].tolist()
        self._random = random.Random(asked.seed)

    @contextmanager
    def _connected(self) -> Iterator[None]:
        # A server closes a connection that has been idle for a while.
        with socket.create_connection(("127.0.0.1", self._asked.port), timeout=60) as self._connection:
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            yield

    def _ask(self) -> tuple[float, bytes]:
        """The latency in ms, and the answer."""
        path = f"{self._asked.path}/{self._random.choice(self._keys)}"
        request = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode()
        sent_s = time.perf_counter()
        self._connection.sendall(request)
        head, end, body = self._received(b"").partition(_HEAD_END)
        while not end:
            head, end, body = self._received(head).partition(_HEAD_END)
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        while len(body) < length:
            body = self._received(body)
        took_ms = (time.perf_counter() - sent_s) * 1000
        if not head.startswith(b"HTTP/1.1 200 "):
            raise RuntimeError(f"{path} was answered with {head.decode()}: {body.decode()}")
        return took_ms, body

    def _received(self, before: bytes) -> bytes:
        more = self._connection.recv(65_536)
        if not more:
            raise RuntimeError("the query server has closed the connection")
        return before + more

    def until_told(self) -> Seen:
        """Query until the next line."""
        seen, bodies, began_s = Seen(), [], time.process_time()
        pace_s = 1 / self._asked.per_s if self._asked.per_s else 0.0
        next_s = time.perf_counter() + self._random.random() * pace_s
        with self._connected():
            while not select.select([sys.stdin], [], [], max(0.0, next_s - time.perf_counter()))[0]:
                took_ms, body = self._ask()
                seen.took_ms.append(round(took_ms, 3))
                bodies.append(body)
                missed = max(0, int((time.perf_counter() - next_s) / pace_s)) if pace_s else 0
                next_s += (1 + missed) * pace_s
        seen.cpu_s = time.process_time() - began_s
        sys.stdin.readline()
        seen.ages_ms = [json.loads(body)["age_ms"] for body in bodies]
        return seen


def main() -> None:
    """One client, until its input ends."""
    client = _Client(Asked(**json.loads(sys.argv[1])))
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    print("ready", flush=True)
    while sys.stdin.readline():
        print(json.dumps(asdict(client.until_told())), flush=True)


if __name__ == "__main__":
    main()
