"""A real job of a benchmark: started on a store of its own, cancelled and removed at the end."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TypeVar

from pyspark.sql import SparkSession

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment

__all__ = ["RunningJob"]

Self = TypeVar("Self", bound="RunningJob")


class RunningJob:
    """The job of the program that `add` adds to an environment. Use it in a `with` block; the job is cancelled and
    its store removed on leaving.
    """

    def __init__(
        self,
        session: SparkSession,
        add: Callable[[StreamExecutionEnvironment], object],
        parallelism: int,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        # Not on a memory file system: the manifest's fsync is part of an epoch.
        self.store = tempfile.mkdtemp(prefix="millstream-bench-")
        configuration = Configuration()
        # Without input the driver polls; not so often that it slows the baseline.
        configuration.set_string("millstream.epoch.poll-interval", "100 ms")
        configuration.set_string("millstream.store", self.store)
        for key, value in (settings or {}).items():
            configuration.set_string(key, value)
        environment = StreamExecutionEnvironment.get_execution_environment(configuration)
        environment.set_parallelism(parallelism)
        environment.use_spark_session(session)
        add(environment)
        self.client = environment.execute_async("bench")

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.cancel().result()
        try:
            self.client.get_job_execution_result().result()
        except Exception as end:
            if "cancel" not in str(end):
                raise
        shutil.rmtree(self.store, ignore_errors=True)
