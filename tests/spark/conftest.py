"""One Spark session per test process, and environments on it.

The session is started through `make_session`, as a user's would be, and stopped when the process ends. A test that
stops it (to try another) does no harm: the next one gets a new session. Functions of test files travel to workers by
value, because workers cannot import them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import pytest

from millstream.datastream import StreamExecutionEnvironment
from millstream.spark.session import make_session

_SHARED = ("programs", "oracles")
"""Packages of tests whose functions programs call. A package stands for all its modules."""

# Two cores, and three more tries for a task whose worker dies.
MASTER = "local[2,4]"


@pytest.fixture(scope="session", autouse=True)
def _stop_spark_at_the_end() -> Iterator[None]:
    yield
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        active.stop()


@pytest.fixture(autouse=True)
def _functions_travel_by_value(request: pytest.FixtureRequest) -> Iterator[None]:
    packages = (sys.modules.get(name) for name in _SHARED)
    shipped = [module for module in (request.module, *packages) if module is not None]
    for module in shipped:
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in shipped:
        cloudpickle.unregister_pickle_by_value(module)


@pytest.fixture
def spark(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The shared session."""
    return make_session(MASTER, {"spark.driver.host": "127.0.0.1"}, tmp_path_factory.getbasetemp() / "spark.log")


@pytest.fixture
def new_env(spark: Any, tmp_path: Path) -> Callable[[], StreamExecutionEnvironment]:
    """Makes environments on the shared session, all with the same store."""

    def make() -> StreamExecutionEnvironment:
        env = StreamExecutionEnvironment.get_execution_environment()
        return env.use_spark_session(spark).set_parallelism(2).set_store(str(tmp_path / "store"))

    return make


@pytest.fixture
def env(new_env: Callable[[], StreamExecutionEnvironment]) -> StreamExecutionEnvironment:
    """An environment on the shared session, with a store of its own."""
    return new_env()
