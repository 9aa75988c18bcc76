"""MySQL and MariaDB, by PyMySQL. Not built yet."""

from __future__ import annotations

from millstream.errors import NotYetError

__all__ = ["MysqlDialect"]


def MysqlDialect() -> object:  # noqa: N802 - a class when it is built
    raise NotYetError.of("The sink to MySQL", "the next connectors")
