"""A minimal server: it sends the same bytes for every request, over a plain socket, without any state.

*Its* latency under the same job is the time that two busy cores take to wake up a process: no server responds sooner.
It has the priority of the job's tasks, as the query server has. Run as a program, it is that server.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["bare_server"]

_BODY = b'{"age_ms": 0}'
_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(_BODY) + _BODY


@contextmanager
def bare_server() -> Iterator[int]:
    """The port of a server in a process of its own."""
    with subprocess.Popen([sys.executable, __file__], stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        try:
            yield int(child.stdout.readline())
        finally:
            child.terminate()
            child.wait(60)


def main() -> None:
    """Answer one connection after the other, until killed."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            connection, _ = server.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                while connection.recv(65_536):
                    connection.sendall(_ANSWER)


if __name__ == "__main__":
    main()
