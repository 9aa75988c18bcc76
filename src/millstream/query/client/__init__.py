"""A client for query servers: finds them, queries the right one, and never returns an older epoch than before."""

from __future__ import annotations

from millstream.query.client.query_client import QueryClient
from millstream.query.client.responses import Answer, NoServerError, QueryRefusedError

__all__ = ["Answer", "NoServerError", "QueryClient", "QueryRefusedError"]
