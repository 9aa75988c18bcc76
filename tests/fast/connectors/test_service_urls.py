"""Addresses whose port or host is none are refused where the program is built, without what may be a password."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from millstream.common import SimpleStringSchema
from millstream.connectors.databases.addresses import parse_address
from millstream.connectors.kafka.client_settings import ClientSettings
from millstream.connectors.kinesis.settings import address_of
from millstream.connectors.messages.registry import SchemaRegistry
from millstream.connectors.rabbitmq.connection import RabbitAddress
from millstream.datastream.connectors.http import HttpSink
from millstream.datastream.connectors.redis import RedisSink
from millstream.errors import MillstreamError
from millstream.query.client import QueryClient

CLIENTS: dict[str, Callable[[str], Any]] = {
    "redis": lambda place: RedisSink.values(f"redis://ann:hush@{place}/0", key="a", value="b"),
    "rediss": lambda place: RedisSink.values(f"rediss://ann:hush@{place}/0", key="a", value="b"),
    "http": lambda place: HttpSink(f"https://{place}/hush", SimpleStringSchema()),
    "registry": lambda place: SchemaRegistry(f"https://{place}/"),
    "rabbitmq": lambda place: RabbitAddress(uri=f"amqp://ann:hush@{place}/%2F").check(),
    "kafka": lambda place: ClientSettings.of({"bootstrap.servers": f"a:9092,{place}"}),
    "kinesis": lambda place: address_of("sink", {"aws.endpoint": f"https://{place}"}),
    "queries": lambda place: QueryClient([f"https://{place}"]),
    "postgresql": lambda place: parse_address(f"postgresql://ann:hush@{place}/d"),
    "mysql": lambda place: parse_address(f"jdbc:mysql://{place}/d?user=ann&password=hush"),
}


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("place", ["db:99999", "db:x", "db:-1", "db:65536", "db:٣"])
def test_a_port_that_is_none_is_refused_where_it_is_written(client: str, place: str) -> None:
    with pytest.raises(MillstreamError) as refusal:
        CLIENTS[client](place)
    assert "hush" not in str(refusal.value)


@pytest.mark.parametrize("client", ["redis", "http", "registry", "rabbitmq", "kinesis", "queries", "postgresql"])
def test_a_host_in_half_a_bracket_is_refused(client: str) -> None:
    with pytest.raises(MillstreamError) as refusal:
        CLIENTS[client]("[::1")
    assert "hush" not in str(refusal.value)


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("place", ["db:6379", "[::1]:6379", "db"])
def test_a_valid_port_is_accepted(client: str, place: str) -> None:
    CLIENTS[client](place)
