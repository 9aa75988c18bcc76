"""Runs a complete job in this process: the real engine, with tasks called one after another instead of by Spark.

`run` returns the job's published output and the manifests of its epochs. It rejects a job that would never end, and
never waits longer than `timeout_s`.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn

from millstream.checkpoint.manifest import Manifest, decode
from millstream.common.options import EPOCH_MAX_RECORDS
from millstream.common.restart_strategy import RestartStrategies, RestartStrategyConfiguration
from millstream.datastream.environment.launch_defaults import with_job_receiver
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.datastream.streams.function_calls import check_takes
from millstream.errors import JobFailedError, ProgramError
from millstream.graph.nodes import Graph, Read, Write
from millstream.graph.site import refuse
from millstream.jobs.console.foreground import FailureInTask
from millstream.jobs.epochs.progress import JobProgress
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.jobs.settings.job_settings import JobSettings
from millstream.runtime.task.local import LocalRunner
from millstream.storage.memory import MemoryStore
from millstream.storage.names import epoch_of_manifest
from millstream.testing.collecting import Collect, Collected
from millstream.testing.manual_clock import ManualClock
from millstream.testing.script import Script

__all__ = ["Result", "run"]


@dataclass(frozen=True)
class Result:
    """The outcome of a job.

    `result[out]` is the list of values that reached the `Collect` sink `out`, which may also be given by name. `epochs`
    counts the epochs that processed input; `manifests` has one more at the end, which records that everything is
    published.
    """

    collected: Mapping[str, tuple[Collected, ...]]
    manifests: tuple[Manifest, ...] = field(repr=False)  # too long for a failing test's output
    restarts: int
    status: str
    _keys: Mapping[int | str, str] = field(repr=False)

    def __getitem__(self, sink: Collect | str) -> list[Any]:
        return [record.value for record in self.of(sink)]

    def of(self, sink: Collect | str) -> list[Collected]:
        """The records that reached `sink`, with their time, epoch and subtask."""
        key = self._keys.get(sink if isinstance(sink, str) else id(sink))
        if key is None:
            named = sorted(name for name in self._keys if isinstance(name, str))
            raise refuse(f"the job had no Collect sink {sink!r}; by name it had {named or 'none'}. Add it by sink_to()")
        return list(self.collected[key])

    @property
    def epochs(self) -> int:
        """The number of committed epochs with input."""
        return sum(manifest.status in ("RUNNING", "DRAINED") for manifest in self.manifests)

    @property
    def metrics(self) -> dict[str, Any]:
        """The metrics of user functions, summed over subtasks and epochs."""
        metrics = self.manifests[-1].counters.get("metrics") if self.manifests else None
        return dict(metrics) if isinstance(metrics, dict) else {}


class _RecordingStore(MemoryStore):
    """A memory store that retains a copy of every manifest, including those the job has removed."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.manifests: dict[int, Manifest] = {}

    def create(self, name: str, data: bytes) -> bool:
        created = super().create(name, data)
        epoch = epoch_of_manifest(name)
        if created and epoch is not None:
            self.manifests[epoch] = decode(data, name)
        return created


def run(
    build: Callable[[StreamExecutionEnvironment], Any] | StreamExecutionEnvironment,
    *,
    parallelism: int | None = None,
    epoch_records: int | None = None,
    clock: ManualClock | None = None,
    restart: RestartStrategyConfiguration | None = None,
    store: str | None = None,
    epochs: int | None = None,
    job_name: str | None = None,
    timeout_s: float = 60.0,
) -> Result:
    """Run a job to its end, in memory, without Spark; raises the job's failure.

    `build` adds sources and sinks to the environment it receives (or is an environment that has them).
    `parallelism`      1, unless passed or set in the environment
    `epoch_records`    the maximum of records per epoch and split; by default only the script ends epochs
    `restart`          by default once for each of the scripts' crashes, at once
    `store`            a name: a second run under the same name continues where the first one ended
    `epochs`           the number of epochs after which to stop, from the job's first; required if a source never ends

    >>> from millstream.testing import CRASH, Collect, Script
    >>> out = Collect()
    >>> result = run(lambda env: env.add_source(Script([1, 2, CRASH, 3])).sink_to(out))
    >>> result[out], result.restarts
    ([1, 2, 3], 1)
    """
    for what, count in (("epoch_records", epoch_records), ("epochs", epochs)):
        if count is not None and (isinstance(count, bool) or not isinstance(count, int) or count < 1):
            raise refuse(f"run: {what} is {count!r}, expected a whole number of at least 1")
    env = _built_environment(build, parallelism)
    try:
        graph, settings = env._graph(job_name), env._job_settings()
    finally:
        env._builder.take()
    _check_it_ends(graph, epochs)
    _check_names(graph)
    if epoch_records is not None:
        changed = {**settings.configuration, EPOCH_MAX_RECORDS.key: str(epoch_records)}
        settings = replace(settings, configuration=changed)
    settings = replace(settings, restart=restart or settings.restart or _restart_after_scripted_crashes(graph))
    for _, sink in _collects(graph):
        sink.clear()
    memory = _RecordingStore(store or f"run-{secrets.token_hex(8)}")
    job = Launch(clock or ManualClock(), LocalRunner(), memory).prepare(graph, settings)
    if epochs is not None:
        _stop_after(job, epochs)  # before the start: a short job would run past the limit
    job.start()
    if not job.wait(timeout_s):
        job.cancel()
        raise JobFailedError(f"job '{graph.job_name}' did not end within {timeout_s:g} s; it was cancelled")
    try:
        job.result()
    except JobFailedError as error:
        if error.report:
            raise error from FailureInTask(error.report)
        raise
    return _result(graph, memory, job)


def _built_environment(build: Any, parallelism: int | None) -> StreamExecutionEnvironment:
    """The environment with the program's sources and sinks in it."""
    if isinstance(build, StreamExecutionEnvironment):
        return build if parallelism is None else build.set_parallelism(parallelism)
    if not callable(build):
        raise refuse(
            f"run: found {build!r} ({type(build).__name__}), expected a function that adds sources and sinks to the "
            "environment it is given, or an environment that has them"
        )
    env = StreamExecutionEnvironment().set_parallelism(1 if parallelism is None else parallelism)
    check_takes("run", build, "env")
    with with_job_receiver(_refuse_to_execute):
        build(env)
    return env


def _refuse_to_execute(graph: Graph, settings: JobSettings) -> NoReturn:
    """Rejects a program that executes its job itself: it would start Spark, and leave nothing for `run` to do."""
    raise refuse(
        "run: the program executes its job itself, which run() does, in memory. Leave execute() out of the function, "
        "and give what it should collect to a Collect sink: stream.sink_to(Collect())"
    )


def _check_names(graph: Graph) -> None:
    """Reject two sinks with the same name: lookups by that name would be ambiguous."""
    names = [sink.name for sink in {id(sink): sink for _, sink in _collects(graph)}.values() if sink.name is not None]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise refuse(f"run: there are several Collect sinks called {twice[0]!r}. Give each a name of its own")


def _check_it_ends(graph: Graph, epochs: int | None) -> None:
    for node in graph.nodes:
        if epochs is None and isinstance(node.operation, Read) and not node.operation.source.bounded:
            raise ProgramError(
                f"'{node.name}' never ends, so neither would run(). Say when to stop: run(..., epochs=3)",
                at=str(node.site),
            )


def _restart_after_scripted_crashes(graph: Graph) -> RestartStrategyConfiguration:
    sources = [node.operation.source for node in graph.nodes if isinstance(node.operation, Read)]
    crashes = sum(source.crashes for source in sources if isinstance(source, Script))
    return RestartStrategies.fixed_delay_restart(crashes, 0) if crashes else RestartStrategies.no_restart()


def _stop_after(job: Job, epochs: int) -> None:
    def stop_at_epoch(progress: JobProgress) -> None:
        if progress.epoch >= epochs:
            job.stop()

    job.board.listen(stop_at_epoch)


def _collects(graph: Graph) -> list[tuple[int, Collect]]:
    return [
        (node.id, node.operation.sink)
        for node in graph.nodes
        if isinstance(node.operation, Write) and isinstance(node.operation.sink, Collect)
    ]


def _result(graph: Graph, store: _RecordingStore, job: Job) -> Result:
    collected: dict[str, tuple[Collected, ...]] = {}
    keys: dict[int | str, str] = {}
    for number, sink in _collects(graph):
        key = str(number)
        collected[key] = tuple(sink.records)
        keys[id(sink)] = key
        if sink.name is not None:
            keys[sink.name] = key
    manifests = tuple(manifest for _, manifest in sorted(store.manifests.items()))
    progress = job.board.now
    return Result(collected, manifests, progress.restarts, progress.status, keys)
