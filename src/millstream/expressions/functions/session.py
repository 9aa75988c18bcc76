"""Session functions: the current database and UUIDs."""

from __future__ import annotations

from millstream.expressions.functions.signatures import STRING, scalar
from millstream.expressions.types import CharType

__all__: list[str] = []

FAMILY = "session"

scalar(
    "CURRENT_DATABASE()", (), STRING, "The session's database.", FAMILY,
    nulls="never", deterministic=False, may_fail=False, method="current_database",
)  # fmt: skip
scalar(
    "UUID()", (), CharType(36), "A unique identifier per row, by RFC 4122 (version 4).", FAMILY,
    nulls="never", deterministic=False, may_fail=False, method="uuid",
)  # fmt: skip
