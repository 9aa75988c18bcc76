"""What a question to servers can come to, besides an answer.

MillstreamError
├── QueryRefusedError    a server said no: unknown state, no right, wrong key; asking again is no use
└── NoServerError        no server answered in time; says which were asked, and what each said
"""

from __future__ import annotations

from millstream.errors import MillstreamError

__all__ = ["NoServerError", "QueryRefusedError"]


class QueryRefusedError(MillstreamError):
    """A server said no; `status` and `code` are those of its answer."""

    def __init__(self, message: str, status: int = 0, code: str = "") -> None:
        super().__init__(message)
        self.status, self.code = status, code


class NoServerError(MillstreamError):
    """No server answered in time."""
