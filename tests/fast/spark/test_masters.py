"""A master is reached, or rejected at once: Spark would retry for a minute and report it only in its log."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from millstream.errors import ConfigurationError, PlatformError
from millstream.spark.masters import reach_master


@pytest.fixture
def port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


@pytest.fixture
def closed_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def test_the_drivers_address_is_that_of_its_route_to_the_master(port: int) -> None:
    assert reach_master(f"spark://127.0.0.1:{port}") == "127.0.0.1"


def test_one_reachable_master_of_several_is_enough(port: int, closed_port: int) -> None:
    assert reach_master(f"spark://127.0.0.1:{closed_port},127.0.0.1:{port}") == "127.0.0.1"


def test_an_unreachable_master_is_rejected_with_its_address(closed_port: int) -> None:
    with pytest.raises(PlatformError, match=rf"master spark://127\.0\.0\.1:{closed_port} cannot be reached from here"):
        reach_master(f"spark://127.0.0.1:{closed_port}")


def test_a_master_without_a_port_is_rejected_as_written() -> None:
    with pytest.raises(ConfigurationError, match=r"found 'somewhere', expected HOST:PORT after spark://"):
        reach_master("spark://somewhere")


@pytest.mark.parametrize("master", ["yarn", "k8s://https://a:6443", "local[2]"])
def test_other_masters_are_not_checked(master: str) -> None:
    assert reach_master(master) is None
