"""The dialects of SQL. Ours is Flink's; Hive's needs Hive."""

from __future__ import annotations

from enum import Enum

__all__ = ["SqlDialect"]


class SqlDialect(Enum):
    """Which SQL statements are written in."""

    DEFAULT = 0
    HIVE = 1
