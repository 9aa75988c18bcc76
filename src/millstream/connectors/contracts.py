"""The contracts of sources and sinks: an epoch can be repeated, and its output appears once.

A **source** is a set of splits; a split is a log that can be reread. On the driver the source reports how far a
split can be read now; in a task it reads a range. An offset is any JSON value the source understands.
The manifest stores, per split, the offset up to which records are part of the job's state: reading the same
range again must return the same records, in the same order. A source that cannot promise this declares it
(`replayable = False`), and the job warns that a crash may lose or repeat records.

A **sink** has a writer, which runs in a task and *stages* records where no reader sees them, and a committer,
which runs on the driver after the manifest is written and *publishes* the entries that the manifest lists. Publishing
the same entries again must change nothing: after a crash it is repeated. Published output has a name that is never
reused (`CommitId`). An epoch number alone is not unique: every job counts from 1, and a job that was forked, or
restored into another store, continues the count of its origin, which may continue too.

Sources and sinks are pickled and sent to tasks, so they hold settings, not open connections.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.errors import ProgramError
from millstream.storage.path_parts import safe
from millstream.storage.store import Store, open_store

if TYPE_CHECKING:
    from millstream.records.batch import Batch

__all__ = [
    "CommitId",
    "CommitPlan",
    "Guarantee",
    "Json",
    "Offset",
    "Outlook",
    "RestorePoint",
    "Sink",
    "SinkWriter",
    "Source",
    "SourceContext",
    "Split",
    "WriterContext",
]

Json = Any
"""A JSON value, written into the manifest unchanged."""
Offset = Json
Guarantee = str
"""'exactly-once' or 'at-least-once'; shown in the plan."""


@dataclass(frozen=True)
class Split:
    """One log of a source. `name` never changes; reading begins at `start`; `info` is extra data for the reader."""

    name: str
    start: Offset = 0
    info: Json = None


@dataclass(frozen=True)
class SourceContext:
    """The driver's clock and limits, as a source may use them. `now_ms` is the clock of its machine, which may be set
    back; `run_started_ms` is the time at which this driver took over.

    `record_bytes_max`: average record size up to which the epoch stays within its byte limit. A source
    that knows the size of its records limits `reach` by it.
    """

    now_ms: int
    run_started_ms: int
    parallelism: int
    record_bytes_max: int | None = None
    uid: str = ""


Read = Generator[Any | pa.RecordBatch, None, Offset | None]


@dataclass(frozen=True)
class Outlook:
    """The rest of a split: its number of records, and a lower bound of their times."""

    records: int
    earliest_ms: int


class Source(ABC):
    """A replayable input. Subclass it to implement your own.

    On the driver, each epoch: `splits` (new splits may appear, but no unfinished one may disappear), then
    `reach` for each split not yet at its end. In a task: `read`.
    """

    bounded: bool = False
    replayable: bool = True
    type_info: TypeInformation | None = None
    """The type of the records, or None when they are plain Python values."""
    carries_timestamps: bool = False
    """True when `read` yields batches that carry their timestamps."""
    single: bool = False
    """True when the source always has exactly one split, so that it runs at parallelism 1 (as Flink's collection
    source)."""
    dead_letter_tag: Any = None
    """The OutputTag of unreadable messages; `read` then yields them as `DeadLetters` (see `messages`), and the
    stream's `get_side_output(tag)` returns them. A source that decodes messages takes the tag from its schema."""
    sequential: bool = False
    """True when its splits end and may be read one after the other, in list order, and new splits are only appended.
    Their number is then unlimited: an epoch queries the first unfinished splits only."""
    keeps_starts: bool = False
    """True when the start of a split is decided once, from the state of the external system ("at the newest record").
    The manifest then stores the start from the first epoch that lists the split, even if nothing was read."""

    @abstractmethod
    def splits(self, context: SourceContext) -> Sequence[Split]:
        """All splits known now, in a stable order. Called on the driver, once per epoch: keep it cheap."""

    @abstractmethod
    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        """How far the next epoch may read `split`: about `budget` records from `offset`; `offset` itself without input.

        Must have no side effects: it may be called again for the same epoch, with budget left by other splits.
        """

    def finished(self, split: Split, offset: Offset) -> bool:
        """Whether the split ends at `offset` permanently. A bounded source must return True eventually; default:
        never."""
        return False

    def complete(self, context: SourceContext) -> bool:
        """Whether no further split will appear. Default: bounded sources list all their splits at once."""
        return self.bounded

    @abstractmethod
    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        """Yield the records from `start` to `stop` (lists of values, or Arrow record batches of the source's type).

        Runs in a task. May return (as the generator's value) the offset actually reached, if it differs from `stop`.
        A yielded `list` is a list of records; a `RecordBatch` has the layout of `stream_schema(type_info)`; a `Batch`
        is passed on unchanged, with its timestamps.
        """

    def read_within(self, split: Split, start: Offset, stop: Offset, bytes_max: int) -> Read:
        """As `read`, but stops once the records have about `bytes_max` bytes, and returns the offset reached.

        Override it for records of unbounded size, as in a log: a number of records does not bound memory. The
        next epoch reads the rest of the range. Reads at least one record.
        """
        return self.read(split, start, stop)

    def backlog(self, split: Split, offset: Offset, context: SourceContext) -> int | None:
        """Approximate number of records after `offset`; None (the default): unknown. Called on the driver,
        once per split and epoch: reuse the values that `reach` fetched."""
        return None

    def outlook(self, split: Split, offset: Offset, column: int) -> Outlook | None:
        """Count and earliest time of the records after `offset`, without reading them; None (the default): unknown.
        `column` is the time column of the rows. Called on the driver, for every unfinished split and epoch."""
        return None

    def watermark(self, split: Split, offset: Offset) -> int | None:
        """The source's own watermark after `offset`, in ms; None (the default) leaves it to the watermark strategy."""
        return None

    def opened(self, store: Store, session: Any) -> Source:
        """This source, ready for the job in `store`. Called once by the driver before the first epoch."""
        return self

    def reopened(self, store: Store, session: Any) -> Source:
        """This source, opened only to read earlier ranges again, for a replay: it must not receive or acknowledge
        input.

        Writes to `store` do not reach the job. Default: as `opened`. A source that does not retain its input
        raises an error.
        """
        return self.opened(store, session)

    def committed(self, positions: dict[str, Offset]) -> None:
        """The job continues from `positions`: a manifest with them was written, or was read at the start.

        Remove no input here: the job may return to an older epoch, and others may start from one. An error raised at
        the start stops a job that the source cannot continue.
        """

    def released(self, retained_positions: Sequence[dict[str, Offset]]) -> None:
        """Input before all `retained_positions`, the positions of every retained epoch, is never read again.

        Called occasionally, possibly concurrently with any other method, for sources that remove stored input.
        """

    def close(self) -> None:
        """The driver is done with this source."""

    def describe(self) -> str:
        """One line for the plan."""
        return type(self).__name__


@dataclass(frozen=True)
class WriterContext:
    """The task of a sink's writer. `nonce` is unique per task attempt, which may run several sinks; `uid` identifies
    the sink, and `job` the job's store. Put the first two into every staged name, and all three into a name that other
    jobs could also use."""

    uid: str
    epoch: int
    subtask: int
    parallelism: int
    nonce: str
    store: Store
    now_ms: int
    input_type: TypeInformation | None
    job: str
    dead_letters: str | None = None
    """Folder for rows that the target refuses. The writer then accepts such rows; publishing sets them aside."""


class SinkWriter(ABC):
    """Stages the records of one epoch in one task. It may be lost at any time; then its records are discarded."""

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Write a batch. Nothing may become visible."""

    @abstractmethod
    def stage(self) -> Sequence[Json]:
        """End the epoch: make all output durable and return the entries for the committer (JSON, small)."""

    def stateful(self) -> Any:
        """The object with `initialize_state` and `snapshot_state`, if the sink has operator state. The engine passes it
        this subtask's stored state before `write`, and snapshots it after `stage`."""
        return self

    def abort(self) -> None:
        """The task failed. Remove staged output if that is cheap; leftovers are collected later."""


@dataclass(frozen=True)
class CommitId:
    """The name of one commit's output. It is never reused: not after a restore, nor by another job.

    `job` is the job's id, new for every store and every fork; `sink` is the sink's uid; `epoch` only grows within a
    job. `part` numbers the staged values of an epoch if each is committed separately.

    >>> commit = CommitId("3f9a", "ledger", 7)
    >>> str(commit), commit.committer
    ('3f9a.ledger.000000000007', '3f9a.ledger')
    """

    job: str
    sink: str
    epoch: int
    part: int | None = None

    @property
    def committer(self) -> str:
        """The job and sink that commit. Their epochs only grow, so a target only needs to remember the newest."""
        part = "" if self.part is None else f".{self.part}"
        return f"{self.job}.{safe(self.sink)}{part}"

    def __str__(self) -> str:
        """One string, usable as a primary key or file name; the names of one committer sort by epoch."""
        return f"{self.committer}.{self.epoch:012d}"


@dataclass(frozen=True)
class CommitPlan:
    """The entries that an epoch publishes for a sink, and the ones it defers. The manifest stores both."""

    publish: tuple[Json, ...]
    pending: Json = None


@dataclass(frozen=True)
class RestorePoint:
    """The epoch from which a job continues: `epoch` of `past_job`. `past_job` is the job itself or, if it is `forked`,
    another job that may continue too. `job` and `store` are those of the continuing job; `uid` is the sink's.
    `published`: the entries that this epoch's commit published for this sink. Epoch numbers passed to writers may be
    greater: an epoch that ran ahead may have been committed together with the epoch before it, under the lower
    number."""

    epoch: int
    uid: str
    store: Store
    job: str
    past_job: str
    published: Sequence[Json] = ()

    @property
    def forked(self) -> bool:
        return self.job != self.past_job


class Sink(ABC):
    """An output. Subclass it, or use `millstream.connectors.TwoPhaseSink` for the usual shape."""

    guarantee: Guarantee = "exactly-once"
    reports_refused_rows = False
    """Whether `commit` raises `RefusedRowsError` (`refused_rows.py`) for rows that the target refuses."""
    dead_letters: str | None = None
    """The folder for rows that the target refuses; None: a refused row stops the job."""

    def with_dead_letters(self, folder: str) -> Self:
        """This sink, with rows that its target refuses written to files in `folder` while the job continues.

        `{commit}.jsonl` has a line for each row, with the reason; `{commit}-0.arrow` has the same rows with their
        types.
        """
        if not self.reports_refused_rows:
            raise ProgramError(
                f"with_dead_letters: {type(self).__name__} cannot identify the rows its target refuses. Filter them "
                f"out before the sink"
            )
        sink = copy(self)
        sink.dead_letters = open_store(folder).url  # absolute: the driver may have another working directory
        return sink

    @abstractmethod
    def writer(self, context: WriterContext) -> SinkWriter:
        """A writer for one task attempt of one epoch. Called in the task."""

    def plan_commit(self, staged: Sequence[Json], pending: Json, now_ms: int, final: bool) -> CommitPlan:
        """Decide, before the manifest is written, which entries this epoch publishes. Pure. Default: all staged ones.

        `pending` holds the entries that the previous manifest deferred (None at first); `final` means that no epoch
        follows, so nothing may be deferred.
        """
        return CommitPlan(tuple(staged))

    def plan_timed_commit(
        self, staged: Sequence[Json], pending: Json, now_ms: int, final: bool, watermark_ms: int
    ) -> CommitPlan:
        """As `plan_commit`, for a sink that uses event time: `watermark_ms` is the watermark at this sink after
        the epoch (`records/watermarks`). Default: as `plan_commit`."""
        return self.plan_commit(staged, pending, now_ms, final)

    def merges(self, staged: Sequence[Json]) -> bool:
        """Whether one commit may publish these entries, staged by several epochs, oldest first. Pure.

        Default: yes, because a commit publishes staged entries in order. A sink that publishes entries concurrently
        although their order matters returns False; then each epoch is committed separately."""
        return True

    def due_ms(self, pending: Json) -> int | None:
        """When to run an epoch without input because of `pending` entries. Default: never."""
        return None

    @abstractmethod
    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        """Publish the entries that the manifest of `commit.epoch` lists, on the driver, in epoch order.

        Must be idempotent, also after a partial run. Recognise finished work by `commit`, never by the epoch number
        alone: another job that writes to the same target has epochs with the same numbers.
        """

    def staged_records(self, staged: Json, store: Store) -> Sequence[Any] | None:
        """The records of a staged entry, for a replay to compare. Default: None, the sink cannot read them.

        A sink that implements this must stage only in the job's store: a replay runs its writer on a layer over the
        store.
        """
        return None

    def opened(self, session: Any) -> Sink:
        """This sink, ready for the driver. Called once before the first epoch; `session` is the Spark session."""
        return self

    def after_restore(self, pending: Json, point: RestorePoint) -> tuple[Json, str]:
        """The entries of `pending` still to be published when the job continues from an earlier epoch, and a sentence
        for the user about output of later epochs, which is already published and will be repeated ("": none).

        Called before the job starts, again if that fails, and never on an opened sink."""
        return pending, "output published after that epoch remains, and is repeated in new commits"

    def close(self) -> None:
        """The driver is done with this sink."""

    def describe(self) -> str:
        """One line for the plan."""
        return type(self).__name__
