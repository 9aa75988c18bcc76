"""A client for query servers: finds them, asks the right one, and never sees an older epoch than before."""

from __future__ import annotations

from millstream.query.client.answer import Answer
from millstream.query.client.errors import NoServerError, QueryRefusedError
from millstream.query.client.query_client import QueryClient

__all__ = ["Answer", "NoServerError", "QueryClient", "QueryRefusedError"]
