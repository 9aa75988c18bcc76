"""A Spark application that ends under a running job: the job fails with this cause, whatever its restart strategy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import cloudpickle
import pytest

from millstream.compiler.passes import compile_graph
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import PlatformError
from millstream.jobs.epochs.failures import is_retryable
from millstream.runtime.task.shipped_job import ShippedJob
from millstream.runtime.task.spec import JobFacts
from millstream.spark.masters import has_ended
from millstream.spark.runner import SparkRunner
from millstream.storage.memory import MemoryStore
from millstream.testing import Collect, Script


class Context:
    master = "spark://a:7077"

    def __init__(self, java: Any, conf: Any) -> None:
        self._jsc, self._conf = java, conf
        self._python_includes: list[str] = []
        self.environment: dict[str, str] = {}

    def getConf(self) -> Any:  # noqa: N802
        return self._conf


class Session:
    """A session without a running application. `java`: the remaining state of its application."""

    def __init__(self, java: Any) -> None:
        conf = SimpleNamespace(get=lambda key, default=None: default)
        self.sparkContext = Context(java, conf)

    def range(self, *_: int) -> Any:
        raise RuntimeError("Cannot call methods on a stopped SparkContext.")


def java_of(is_stopped: Any) -> Any:
    return SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=is_stopped))


def unreachable() -> bool:
    raise ConnectionRefusedError("the JVM does not listen")


def prepare(session: Any) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(1)
    env.add_source(Script([1])).sink_to(Collect())
    plan = compile_graph(env._graph("job"))
    runner = SparkRunner(session)
    try:
        runner.prepare(ShippedJob(cloudpickle.dumps(plan), JobFacts("job", "id", "run", MemoryStore("ended"))))
    finally:
        runner.close()


@pytest.mark.parametrize(
    "java", [None, java_of(lambda: True), java_of(unreachable)], ids=["stopped", "removed", "no JVM"]
)
def test_a_job_without_an_application_is_not_restarted(java: Any) -> None:
    with pytest.raises(PlatformError, match=r"on master spark://a:7077 has ended .* start the job again") as error:
        prepare(Session(java))
    assert not is_retryable(error.value)


def test_an_error_of_a_running_application_is_unchanged() -> None:
    session = Session(java_of(lambda: False))
    assert not has_ended(session.sparkContext)
    with pytest.raises(RuntimeError, match="Cannot call methods"):
        prepare(session)
