"""The dialects of SQL. Ours is Flink's; Hive's needs Hive."""

from __future__ import annotations

from enum import Enum

from millstream.pyflink_names import add_pyflink_names

__all__ = ["SqlDialect"]


class SqlDialect(Enum):
    """Which SQL statements are written in."""

    DEFAULT = 0
    HIVE = 1


add_pyflink_names(globals())
