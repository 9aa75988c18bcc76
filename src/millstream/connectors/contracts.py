"""What a source and a sink promise, so that an epoch can be repeated and its output appears once.

A **source** is a set of splits; a split is a log that can be read again. On the driver it says how far a
split can be read now; in a task it reads a range. An offset is any JSON value the source understands.
The manifest keeps, per split, the offset up to which records are part of the job's state: reading the same
range again must give the same records, in the same order. A source that cannot promise this says so
(`replayable = False`) and the job warns that a crash may lose or repeat its records.

A **sink** has a writer, which runs in a task and *stages* records where nobody sees them, and a committer,
which runs on the driver after the manifest is written and *publishes* what the manifest lists. Publishing
the same again must change nothing: after a crash it is repeated. What is published has a name that is never given
to anything else (`CommitId`); an epoch's number alone is no such name, for every job counts from its own beginning,
and one that was restored elsewhere or forked counts on beside the one it came from.

Sources and sinks travel to tasks by pickle, so they hold settings, not open connections.
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
"""A value that JSON can hold: it is written into the manifest as it is."""
Offset = Json
Guarantee = str
"""'exactly-once' or 'at-least-once'; shown in the plan."""


@dataclass(frozen=True)
class Split:
    """One log of a source. `name` is stable for ever; reading begins at `start`; `info` is what the reader needs."""

    name: str
    start: Offset = 0
    info: Json = None


@dataclass(frozen=True)
class SourceContext:
    """What a source may use on the driver. `now_ms` is the clock of its machine, which may be set back;
    `run_started_ms` when this driver took over.

    `record_bytes_max`: what the records of an epoch may have on average, so that it stays within its bytes. A source
    that knows how large its records are reaches no further than that.
    """

    now_ms: int
    run_started_ms: int
    parallelism: int
    record_bytes_max: int | None = None
    uid: str = ""


Read = Generator[Any | pa.RecordBatch, None, Offset | None]


@dataclass(frozen=True)
class Outlook:
    """What is left of a split: so many records, none of which is earlier than `earliest_ms`."""

    records: int
    earliest_ms: int


class Source(ABC):
    """A replayable input. Subclass it to bring your own.

    On the driver, each epoch: `splits` (new ones may appear, none may vanish before it is finished), then
    `reach` for each split not yet at its end. In a task: `read`.
    """

    bounded: bool = False
    replayable: bool = True
    type_info: TypeInformation | None = None
    """The type of the records, or None when they are plain Python values."""
    carries_timestamps: bool = False
    """True when `read` yields batches whose records bring their timestamps along."""
    single: bool = False
    """True when the source has one split for ever, so that it runs at parallelism 1 (as Flink's collection source)."""
    dead_letter_tag: Any = None
    """The OutputTag of messages that cannot be read; then `read` yields them as `DeadLetters` (see `messages`), and the
    stream's `get_side_output(tag)` gives them. A source that decodes messages takes it from its schema."""
    sequential: bool = False
    """True when its splits come to an end and may be read one after the other, in the order of a list that only ever
    grows at its end. Then it may have any number of them: an epoch asks about the first unfinished ones only."""
    keeps_starts: bool = False
    """True when where a split begins is decided once, by what the world was like then ("at the newest record"). Its
    start is then part of the manifest from the first epoch on that knows it, also if nothing was read of it."""

    @abstractmethod
    def splits(self, context: SourceContext) -> Sequence[Split]:
        """All splits known now, in a stable order. Called on the driver, once per epoch: keep it cheap."""

    @abstractmethod
    def reach(self, split: Split, offset: Offset, budget: int, context: SourceContext) -> Offset:
        """How far the next epoch may read `split`: about `budget` records from `offset`; `offset` itself: nothing now.

        Must change nothing: it may be called again for the same epoch, with the rest of other splits' budgets.
        """

    def finished(self, split: Split, offset: Offset) -> bool:
        """Whether the split ends at `offset`, for ever. A bounded source must say True some day; default: never."""
        return False

    def complete(self, context: SourceContext) -> bool:
        """Whether no further split will appear. Default: bounded sources list all their splits at once."""
        return self.bounded

    @abstractmethod
    def read(self, split: Split, start: Offset, stop: Offset) -> Read:
        """Yield the records from `start` to `stop` (lists of values, or Arrow record batches of the source's type).

        Runs in a task. May return (as the generator's value) the offset really reached, when that is not `stop`.
        A yielded `list` is a list of records; a `RecordBatch` has the layout of `stream_schema(type_info)`; a `Batch`
        is taken as it is, with its timestamps.
        """

    def read_within(self, split: Split, start: Offset, stop: Offset, bytes_max: int) -> Read:
        """As `read`, but end once the records have about `bytes_max` bytes, and return how far that was.

        Records are no measure of memory. Override it where a range of records may be of any size, as that of a log; the
        rest of the range is read by the next epoch. At least one record is read.
        """
        return self.read(split, start, stop)

    def backlog(self, split: Split, offset: Offset, context: SourceContext) -> int | None:
        """About how many records stand behind `offset` now; None (the default): it cannot tell. Called on the driver,
        once per split and epoch: use what `reach` has learnt."""
        return None

    def outlook(self, split: Split, offset: Offset, column: int) -> Outlook | None:
        """What is known, without reading them, of the records behind `offset`; None (the default): nothing. `column` is
        the one of its rows that is their time. Called on the driver, for every unfinished split and epoch."""
        return None

    def watermark(self, split: Split, offset: Offset) -> int | None:
        """The source's own watermark after `offset`, in ms; None (the default) leaves it to the watermark strategy."""
        return None

    def opened(self, store: Store, session: Any) -> Source:
        """This source, ready for the job in `store`. Called once by the driver before the first epoch."""
        return self

    def reopened(self, store: Store, session: Any) -> Source:
        """This source, only to read again what it has read before, for a replay: nothing may be received or moved on.

        What is written to `store` does not reach the job. Default: as `opened`. A source that keeps nothing of what it
        has read says so with an error.
        """
        return self.opened(store, session)

    def committed(self, positions: dict[str, Offset]) -> None:
        """The job goes on from `positions`: a manifest that holds them was written, or was found at the start.

        Remove nothing for it: the job may go back to an older epoch, and others may start from one. An error raised at
        the start stops a job that the source cannot go on with.
        """

    def released(self, kept_positions: Sequence[dict[str, Offset]]) -> None:
        """What lies before all `kept_positions`, those of every epoch that is kept, is never read again.

        Called now and then, perhaps beside everything else, for sources that remove what they have stored.
        """

    def close(self) -> None:
        """The driver is done with this source."""

    def describe(self) -> str:
        """One line for the plan."""
        return type(self).__name__


@dataclass(frozen=True)
class WriterContext:
    """What a sink's writer knows of its task. `nonce` is unique per task attempt, which may have several sinks; `uid`
    is the sink's, and `job` unique for the job's store. Put the first two into every staged name, and all of them into
    one that other jobs could have too."""

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
    """Where rows go that the target refuses. A writer lets them pass then: they are set aside at publishing."""


class SinkWriter(ABC):
    """Stages the records of one epoch in one task. It may be lost at any moment and is then simply forgotten."""

    @abstractmethod
    def write(self, batch: Batch) -> None:
        """Take a batch. Nothing may become visible."""

    @abstractmethod
    def stage(self) -> Sequence[Json]:
        """The epoch ends: make everything durable and return what the committer needs to publish it (JSON, small)."""

    def stateful(self) -> Any:
        """The object whose `initialize_state` and `snapshot_state` keep operator state, if it has them. Before `write`,
        it is given what this subtask kept; after `stage`, it is asked what to keep."""
        return self

    def abort(self) -> None:
        """The task failed. Remove what was written, if that is easy; leftovers are collected later."""


@dataclass(frozen=True)
class CommitId:
    """The name of what one commit publishes. Nothing else is ever called so: not after going back, nor elsewhere.

    `job` is the job's id, new for every store and every fork; `sink` is the sink's uid; `epoch` only grows within a
    job. `part` counts the staged values of an epoch where each is committed by itself.

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
        """The job and sink that commit. Their epochs only grow, so an output need remember only the newest."""
        part = "" if self.part is None else f".{self.part}"
        return f"{self.job}.{safe(self.sink)}{part}"

    def __str__(self) -> str:
        """One text, fit to be a primary key or the name of a file; those of one committer sort by their epochs."""
        return f"{self.committer}.{self.epoch:012d}"


@dataclass(frozen=True)
class CommitPlan:
    """What an epoch publishes of a sink, and what the sink keeps back for a later one. Both go into the manifest."""

    publish: tuple[Json, ...]
    pending: Json = None


@dataclass(frozen=True)
class RestorePoint:
    """Where a job goes on from: `epoch` of `past_job`. That is the job itself or, if it is `forked`, another job that
    may go on beside it. `job` and `store` are those of the job that goes on; `uid` is the sink's. `published`: what the
    commit of that very epoch published of this sink. By the numbers that writers were given it may seem to be later:
    an epoch that ran ahead may have been committed as one with the epoch before it, under that one's number."""

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
    tells_refused_rows = False
    """Whether `commit` raises `RefusedRowsError` (`refused_rows.py`) for rows that the target does not take."""
    dead_letters: str | None = None
    """The folder for rows that the target refuses; None: such a row stops the job."""

    def with_dead_letters(self, folder: str) -> Self:
        """This sink, but rows that its target refuses are written to files in `folder`, and the job goes on.

        `{commit}.jsonl` has a line for each row, with the reason; `{commit}-0.arrow` the same rows with their types.
        """
        if not self.tells_refused_rows:
            raise ProgramError(
                f"with_dead_letters: {type(self).__name__} cannot tell which rows its target refuses. Leave them out "
                "before the sink"
            )
        sink = copy(self)
        sink.dead_letters = open_store(folder).url  # absolute: the driver may have another working directory
        return sink

    @abstractmethod
    def writer(self, context: WriterContext) -> SinkWriter:
        """A writer for one task attempt of one epoch. Called in the task."""

    def plan_commit(self, staged: Sequence[Json], pending: Json, now_ms: int, final: bool) -> CommitPlan:
        """Decide, before the manifest is written, what this epoch publishes. Pure. Default: everything staged.

        `pending` is what the previous manifest kept back (None at first); `final` means that no epoch follows, so
        nothing may be kept.
        """
        return CommitPlan(tuple(staged))

    def plan_timed_commit(
        self, staged: Sequence[Json], pending: Json, now_ms: int, final: bool, watermark_ms: int
    ) -> CommitPlan:
        """As `plan_commit`, for a sink that goes by event time: `watermark_ms` is where that stands at this sink after
        the epoch (`records/watermarks`). Default: as `plan_commit`."""
        return self.plan_commit(staged, pending, now_ms, final)

    def merges(self, staged: Sequence[Json]) -> bool:
        """Whether all of this, staged by several epochs, the oldest first, may be published by one commit. Pure.

        Default: yes, for a commit publishes what is staged in its order. A sink that publishes staged values side by
        side, where their order matters, says no; then each epoch is committed by itself."""
        return True

    def due_ms(self, pending: Json) -> int | None:
        """When an epoch is wanted although no record comes, because of what is `pending`. Default: never."""
        return None

    @abstractmethod
    def commit(self, commit: CommitId, publish: Sequence[Json], store: Store) -> None:
        """Publish what the manifest of `commit.epoch` lists, on the driver, epoch after epoch.

        Harmless when repeated, also after half of it. Recognise what was done by `commit`, never by the epoch's number
        alone: another job that writes to the same place has epochs of the same numbers.
        """

    def staged_records(self, staged: Json, store: Store) -> Sequence[Any] | None:
        """The records in what a writer staged, for a replay to compare. Default: None, it cannot tell.

        A sink that can tell stages in the job's store and nowhere else: a replay runs its writer, on top of the store.
        """
        return None

    def opened(self, session: Any) -> Sink:
        """This sink, ready for the driver. Called once before the first epoch; `session` is the Spark session."""
        return self

    def after_restore(self, pending: Json, point: RestorePoint) -> tuple[Json, str]:
        """The job goes on from an epoch that had this `pending`: what of it is still to be published, and a sentence
        for the user on the output of later epochs, which is published already and comes again ("": nothing to say).

        Called before the job starts, again if that fails, and never on a sink that was opened."""
        return pending, "what it published after that epoch stays, and comes again in commits of its own"

    def close(self) -> None:
        """The driver is done with this sink."""

    def describe(self) -> str:
        """One line for the plan."""
        return type(self).__name__
