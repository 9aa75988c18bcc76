"""Text lines from a TCP socket, for experiments (beyond PyFlink; Flink's Java API has `socketTextStream`).

A socket cannot be replayed. Received lines are stored durably in the job's store, but lines sent while the job is down
are lost.
"""

from __future__ import annotations

from millstream.connectors import socket
from millstream.datastream.connectors.base import Source
from millstream.datastream.streams.argument_checks import at_users_line

__all__ = ["SocketSource"]


class SocketSource(Source):
    """Lines of text from `host:port`, as STRING. Ends when the peer closes the connection."""

    def __init__(self, host: str, port: int, charset: str = "UTF-8") -> None:
        with at_users_line():
            super().__init__(socket.SocketSource(host, port, charset))
