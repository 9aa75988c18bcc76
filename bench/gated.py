"""A real job whose epochs are granted one at a time, so that a baseline can run in between.

The source is an ordinary Python-defined source (`millstream.connectors.contracts`): its offset counts epochs, and it
offers another one only while the gate allows it. The driver notifies it of every manifest, which is the moment an epoch
is complete; the moment its input was planned is when the driver requests the end offsets. So the times are those of
whole epochs of a real job (planning, the Spark job, manifest with fsync), observed through the public contract.

Whether the gate is open is decided once for every planning of the driver, for all splits, those of a second source too:
a gate that opens during planning never grants half of an epoch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow as pa
from pyspark.sql import SparkSession
from running_job import RunningJob

from millstream.common import WatermarkStrategy
from millstream.common.typeinfo import TypeInformation
from millstream.connectors.contracts import Offset, Read, Sink, Source, SourceContext, Split
from millstream.connectors.direct_sinks import DiscardingSink
from millstream.datastream import DataStream, StreamExecutionEnvironment

__all__ = ["Batches", "Build", "Feed", "GatedJob", "GatedSource"]

Batches = Callable[[int, int], Iterator[pa.RecordBatch]]
"""(split, splits) -> the batches of one epoch in that split."""
Build = Callable[..., DataStream]
"""The program: from the stream of the source, and that of a second one if the job has it."""

_STALLED_S = 300.0


@dataclass(frozen=True)
class Feed:
    """The records of a source: one epoch each of `loading`, then the same batches every epoch."""

    batches: Batches
    type_info: TypeInformation
    loading: Sequence[Batches] = ()


class GatedSource(Source):
    """Emits its feed epoch by epoch; `grant` sets the number of epochs, of its own or of its leader."""

    def __init__(self, splits: int, feed: Feed, leader: GatedSource | None = None, epochs_before: int = 0) -> None:
        self._count, self._feed, self._leader = splits, feed, leader
        self.type_info = feed.type_info
        self._epochs_before = epochs_before
        self._restart_watch()

    def _restart_watch(self) -> None:
        self._granted = self._open_to = self._committed_to = self._epochs_before
        self._asked_ms = -1
        self._is_planned = False
        self._changed = threading.Condition()
        self.planned_s: list[float] = []
        self.committed_s: list[float] = []

    def __getstate__(self) -> dict[str, Any]:
        """A task only reads."""
        kept = ("_count", "_feed", "type_info")
        return {name: self.__dict__[name] for name in kept}

    def grant(self, epochs: int) -> None:
        """Grant this many more epochs, and drop the times of earlier ones."""
        with self._changed:
            self.planned_s, self.committed_s = [], []
            self._granted += epochs

    def grant_more(self, epochs: int) -> None:
        """Let that many more through, and go on with the times."""
        with self._changed:
            self._granted += epochs

    def wait(self, epochs: int, timeout_s: float) -> bool:
        """Wait until this many epochs are committed since the last grant."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.committed_s) >= epochs, timeout_s)

    # --- the contract ---------------------------------------------------------------------------------------

    def splits(self, context: SourceContext) -> Sequence[Split]:
        return [Split(f"{i:02d}", 0, i) for i in range(self._count)]

    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        gate = self if self._leader is None else self._leader
        return gate._let_through(offset, context.now_ms)

    def _let_through(self, offset: int, now_ms: int) -> int:
        if now_ms != self._asked_ms:  # the driver plans again
            self._asked_ms, self._open_to, self._is_planned = now_ms, self._granted, False
        if offset >= self._open_to:
            return offset
        if not self._is_planned:
            self._is_planned = True
            self.planned_s.append(time.perf_counter())
        return offset + 1

    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        for epoch in range(start, stop):
            loading = self._feed.loading
            batches = loading[epoch] if epoch < len(loading) else self._feed.batches
            yield from batches(split.info, self._count)
        return stop

    def committed(self, positions: dict[str, Offset]) -> None:
        if self._epochs_before and max(positions.values(), default=0) <= self._epochs_before:
            return  # that is the snapshot it starts from
        with self._changed:
            # If a job runs ahead, several epochs may be committed as one.
            reached = max(positions.values(), default=self._committed_to)
            self.committed_s += [time.perf_counter()] * max(reached - self._committed_to, 0)
            self._committed_to = reached
            self._changed.notify_all()


class GatedJob(RunningJob):
    """One streaming job on `session`, from a gated source through `build` into a sink that discards records (or
    another). A second source, `beside`, emits its records of the same epochs to `build` as a second stream.

    Use it in a `with` block; the job is cancelled and its store removed on leaving. `epochs_before`: how many epochs of
    the source are in the snapshot that `settings` start it from.
    """

    def __init__(
        self,
        session: SparkSession,
        splits: int,
        batches: Batches,
        type_info: TypeInformation,
        build: Build,
        parallelism: int,
        loading: Sequence[Batches] = (),
        settings: Mapping[str, str] | None = None,
        epochs_before: int = 0,
        *,
        beside: Feed | None = None,
        sink: Sink | None = None,
    ) -> None:
        self.source = GatedSource(splits, Feed(batches, type_info, loading), epochs_before=epochs_before)
        sources = [self.source] if beside is None else [self.source, GatedSource(splits, beside, self.source)]

        def add(environment: StreamExecutionEnvironment) -> None:
            streams = [
                environment.from_source(source, WatermarkStrategy.no_watermarks(), f"gated-{number}")
                for number, source in enumerate(sources)
            ]
            build(*streams).sink_to(sink or DiscardingSink())

        super().__init__(session, add, parallelism, settings)

    def pass_epochs(self, epochs: int) -> None:
        """Grant this many epochs, and wait until they are committed."""
        self.source.grant(epochs)
        deadline = time.monotonic() + _STALLED_S
        while not self.source.wait(epochs, 0.5):
            if self.client.get_job_status().result().is_globally_terminal_state() or time.monotonic() > deadline:
                self.client.get_job_execution_result().result()
                raise RuntimeError(f"the job committed {len(self.source.committed_s)} of {epochs} epochs and stalled")

    def epoch_s(self) -> float:
        """One epoch, from the planning of its input to its manifest."""
        self.pass_epochs(1)
        return self.source.committed_s[0] - self.source.planned_s[0]

    def epochs_s(self, count: int) -> list[float]:
        """`count` epochs in a row, each from the previous manifest to its own: the whole loop is included."""
        self.pass_epochs(count + 1)
        return [after - before for before, after in pairwise(self.source.committed_s)][:count]
