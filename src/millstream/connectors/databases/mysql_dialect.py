"""MySQL and MariaDB, by PyMySQL. Not built yet."""

from __future__ import annotations

from millstream.errors import NotYetError

__all__ = ["MysqlDialect"]


def MysqlDialect() -> object:
    raise NotYetError.of("The sink to MySQL", "the next connectors")
