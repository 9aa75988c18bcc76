"""SQL dialects. Only Flink's is available, not Hive's."""

from __future__ import annotations

from enum import Enum

from millstream.pyflink_names import add_pyflink_names

__all__ = ["SqlDialect"]


class SqlDialect(Enum):
    """The dialect of statements."""

    DEFAULT = 0
    HIVE = 1


add_pyflink_names(globals())
