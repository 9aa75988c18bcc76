"""`millstream query-server` in a process of its own, for `bench_queries`, and its processor time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Served", "query_server"]

_PROCESS_CLOCK = 2


class Served:
    """A running server. Its start-up cost is excluded."""

    def __init__(self, url: str, pid: int) -> None:
        self.port = int(url.rpartition(":")[2])
        # Linux's clock of another process's processor time; /proc has a resolution of hundredths of a second only.
        self._clock = (~pid << 3) | _PROCESS_CLOCK
        self.reset()

    def reset(self) -> None:
        """Discard the usage of the warm-up."""
        self._started_s = time.clock_gettime(self._clock)

    def used_s(self) -> float:
        """Processor time of all its threads since then."""
        return time.clock_gettime(self._clock) - self._started_s

    def cost_ms(self, answers: int) -> float:
        """The same per answer, including epochs that it opened in the meantime."""
        return 1000 * self.used_s() / max(1, answers)


@contextmanager
def query_server(store: str, key_groups: range | None = None) -> Iterator[Served]:
    """A server of the job in the store, for all key groups or a range of them, started as usual: with the priority
    of the job's tasks.
    """
    command = [sys.executable, "-m", "millstream.cli", "query-server", "--job", store]
    command += ["--listen", "127.0.0.1:0", "--flight-port", "0"]
    if key_groups is not None:
        command += ["--key-groups", f"{key_groups[0]}-{key_groups[-1]}"]
    # Its standard output: the first line is its address.
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as child:
        assert child.stdout is not None
        try:
            place = re.search(r"http://[^\s,]+", child.stdout.readline())
            if place is None:
                raise RuntimeError(f"the query server did not start; run {' '.join(command)} to see why")
            yield Served(place[0], child.pid)
        finally:
            child.terminate()
            child.wait(60)
