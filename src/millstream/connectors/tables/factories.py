"""All table connectors, by the name in `'connector' = '…'`."""

from __future__ import annotations

from collections.abc import Iterable

from millstream.connectors.tables.databases.factories import JdbcFactory, PostgresChangesFactory
from millstream.connectors.tables.datagen.factory import DatagenFactory
from millstream.connectors.tables.factory import TableFactory
from millstream.connectors.tables.filesystem.factory import FilesystemFactory
from millstream.connectors.tables.kafka.factory import KafkaFactory
from millstream.connectors.tables.kafka.upsert_factory import UpsertKafkaFactory
from millstream.connectors.tables.lookups import PythonFactory
from millstream.connectors.tables.nexmark.factory import NexmarkFactory
from millstream.connectors.tables.simple_tables import BlackholeFactory, PrintFactory
from millstream.connectors.tables.socket_table import SocketFactory
from millstream.connectors.tables.state_table import StateFactory
from millstream.connectors.tables.values_table import ValuesFactory
from millstream.errors import ProgramError, did_you_mean

__all__ = ["FACTORIES", "factory_of"]

FACTORIES: dict[str, TableFactory] = {
    factory.name: factory
    for factory in (
        BlackholeFactory(),
        DatagenFactory(),
        FilesystemFactory(),
        JdbcFactory(),
        KafkaFactory(),
        NexmarkFactory(),
        PostgresChangesFactory(),
        PrintFactory(),
        PythonFactory(),
        SocketFactory(),
        StateFactory(),
        UpsertKafkaFactory(),
        ValuesFactory(),
    )
}
"""Every connector."""


def factory_of(name: str, table: str = "") -> TableFactory:
    """The factory of a connector; an unknown name is an error with the nearest one."""
    factory = FACTORIES.get(name)
    if factory is None:
        raise ProgramError(
            f"{f'table {table!r}: ' if table else ''}there is no connector {name!r}."
            f"{did_you_mean(name, FACTORIES)} Known: {_listed(FACTORIES)}"
        )
    return factory


def _listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))
