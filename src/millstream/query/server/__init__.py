"""A server for the state of a job: HTTP/JSON, and Arrow Flight for bulk. It reads committed epochs and nothing else."""

from __future__ import annotations

from millstream.query.server.opened import OpenedJob
from millstream.query.server.page import read_page
from millstream.query.server.ports import Ports
from millstream.query.server.rights import Reader, Rights, read_rights
from millstream.query.server.running import QueryServer
from millstream.query.server.settings import Limits, ServerSettings, key_group_span

__all__ = [
    "Limits",
    "OpenedJob",
    "Ports",
    "QueryServer",
    "Reader",
    "Rights",
    "ServerSettings",
    "key_group_span",
    "read_page",
    "read_rights",
]
