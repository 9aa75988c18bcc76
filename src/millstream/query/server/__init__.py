"""A server for the state of a job: HTTP/JSON, and Arrow Flight for bulk. It only reads committed epochs."""

from __future__ import annotations

from millstream.query.server.query_server import Ports, QueryServer
from millstream.query.server.rights import Reader, Rights, read_rights
from millstream.query.server.settings import Limits, ServerSettings, key_group_span

__all__ = [
    "Limits",
    "Ports",
    "QueryServer",
    "Reader",
    "Rights",
    "ServerSettings",
    "key_group_span",
    "read_rights",
]
