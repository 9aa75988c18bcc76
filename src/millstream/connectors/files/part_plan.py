"""Plans the files that an epoch publishes: a pure function from staged and pending chunks to parts.

A **chunk** is the output of one task for one bucket in one epoch. A **part** is the file that readers see: the chunks
of one (bucket, subtask), gathered until the rolling policy completes it. The manifest lists pending chunks and every
decision made here, so a crash does not change which file holds which record.

A part is named after its subtask, the epoch of its last chunk, and a token from the job and the task attempt that wrote
its first chunk: names of two jobs that write to one folder, or of two runs of a job from the start, never collide.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

from millstream.connectors.contracts import CommitPlan, Json
from millstream.connectors.files.compaction import Compaction, gather
from millstream.connectors.files.part_rules import RollingPolicy

__all__ = [
    "Chunk",
    "Part",
    "PartRules",
    "PublishedPart",
    "epoch_of_part",
    "job_mark",
    "pending_json",
    "pending_parts",
    "plan_parts",
    "published_parts",
    "sweep_limit",
    "token_of",
]

_NAME = re.compile(r"-(?P<job>[0-9a-f]{8})?[0-9a-f]{8}-\d+-(?P<epoch>\d+)(-\d+)?")


@dataclass(frozen=True)
class Chunk:
    """One staged file: its name below the base path, its bucket and subtask, and its expected content.

    `mark` is the entity tag that an object store assigned to its content, "" elsewhere."""

    file: str
    bucket: str
    subtask: int
    epoch: int
    index: int
    token: str
    bytes: int
    crc32: int
    records: int
    mark: str = ""


@dataclass(frozen=True)
class Part:
    """Chunks that will become one file. If `epochs_gathered` is set, it is complete and waits for compaction."""

    chunks: tuple[Chunk, ...]
    since_ms: int
    touched_ms: int
    epochs_gathered: int | None = None

    @property
    def is_gathered(self) -> bool:
        """Whether it is complete and waits for compaction."""
        return self.epochs_gathered is not None

    @property
    def bytes(self) -> int:
        return sum(chunk.bytes for chunk in self.chunks)

    @property
    def destination(self) -> tuple[str, int]:
        return (self.chunks[0].bucket, self.chunks[0].subtask)

    @property
    def place(self) -> tuple[str, int, int, int]:
        """Identifies a part of a job, independent of the names of its chunks."""
        first = self.chunks[0]
        return (first.bucket, first.subtask, first.epoch, first.index)

    def file_name(self, prefix: str, suffix: str) -> str:
        """The published name, below the base path.

        >>> chunk = Chunk("c", "day=1", 2, 7, 0, "3f9a2c1b", 10, 0, 1)
        >>> Part((chunk,), 0, 0).file_name("part", ".txt")
        'day=1/part-3f9a2c1b-2-7.txt'
        """
        last = self.chunks[-1]
        index_suffix = f"-{last.index}" if last.index else ""
        name = f"{prefix}-{self.chunks[0].token}-{last.subtask}-{last.epoch}{index_suffix}{suffix}"
        return f"{last.bucket}/{name}" if last.bucket else name


def epoch_of_part(file: str, prefix: str, suffix: str, job: str) -> int | None:
    """The epoch in the name of a part, or None for any other file and for a part known to belong to another job.

    >>> [epoch_of_part(name, "part", ".txt", "j1") for name in ("day=1/part-3f9a2c1b-2-7.txt", "notes.txt")]
    [7, None]
    >>> name = f"part-{token_of('j1', 'a1')}-2-7.txt"
    >>> epoch_of_part(name, "part", ".txt", "j1"), epoch_of_part(name, "part", ".txt", "j2")
    (7, None)
    """
    name = file.rpartition("/")[2]
    if not (name.startswith(prefix) and name.endswith(suffix)):
        return None
    match = _NAME.fullmatch(name[len(prefix) : len(name) - len(suffix)])
    # A name in the older format, without a token, does not identify its job.
    return int(match["epoch"]) if match and match["job"] in (None, job_mark(job)) else None


@dataclass(frozen=True)
class PublishedPart:
    """A part under its final name, as the manifest lists it. `gathered`: the chunk counts of the parts it combines,
    with `delimiter` between them."""

    file: str
    chunks: tuple[Chunk, ...]
    gathered: tuple[int, ...] = ()
    delimiter: bytes = b""


def job_mark(job: str) -> str:
    """Eight letters and digits that identify a job."""
    return hashlib.sha256(job.encode()).hexdigest()[:8]


def token_of(job: str, attempt: str, sink: str = "") -> str:
    """Identifies a task attempt in the name of a part: eight letters and digits for its job, eight for the attempt and
    its `sink`. A task may have several sinks that share a folder: without the sink, the second part with the same name
    would be treated as published, although its rows differ.

    Eight in total, as in older versions, are too few: of a million parts written by two jobs, two names would collide
    once in some thousand runs, and the second part would be treated as published.
    """
    return job_mark(job) + hashlib.sha256(f"{attempt}{sink}".encode()).hexdigest()[:8]


@dataclass(frozen=True)
class PartRules:
    """A sink's rules for making parts of chunks. Every part of `due_buckets` is published, regardless of the policy."""

    policy: RollingPolicy
    prefix: str = "part"
    suffix: str = ""
    compaction: Compaction | None = None
    due_buckets: frozenset[str] = frozenset()


def plan_parts(staged: Sequence[Json], pending: Json, now_ms: int, final: bool, rules: PartRules) -> CommitPlan:
    """Add the epoch's chunks to their parts, and publish the parts that are complete, or gather them first.

    A pending part is first checked for being due, so that an old part does not absorb new records; then chunks are
    added one by one, so that one long epoch makes several parts. A chunk that is large enough becomes a part by itself,
    which requires only a link, not a rewrite: chunks pending before it are then published as they are. So there is at
    most one smaller part per large part, and part names sort in the order of their records.
    """
    rolled: list[Part] = []
    waiting: dict[tuple[str, int], Part] = {}
    parts_before = pending_parts(pending)
    for part in parts_before:
        if not part.is_gathered:
            _assign_part(part, rolled, waiting, rules.policy, now_ms)
    # Chunks of a task stay in staging order, which an index would not show: epochs that are committed together, and the
    # rounds of a loop, may share a number, and each counts its chunks from 0.
    chunks = sorted((Chunk(**entry) for entry in staged), key=lambda c: (c.epoch, c.subtask, c.bucket))
    for chunk in chunks:
        previous = waiting.pop((chunk.bucket, chunk.subtask), None)
        if previous is not None and rules.policy.rolls(chunk.bytes, now_ms, now_ms, now_ms):
            rolled.append(previous)
            previous = None
        part = Part(
            (*previous.chunks, chunk) if previous else (chunk,),
            previous.since_ms if previous else now_ms,
            touched_ms=now_ms,
        )
        _assign_part(part, rolled, waiting, rules.policy, now_ms)
    due = [at for at in waiting if final or at[0] in rules.due_buckets]
    rolled.extend([waiting.pop(at) for at in due])
    gathered_before = [part for part in parts_before if part.is_gathered]
    publish, gathered = gather(rolled, gathered_before, rules.compaction, final, rules.due_buckets)
    pending_all = [*waiting.values(), *gathered]
    sweep = _sweep_entry([*(part for parts in publish for part in parts), *pending_all], pending_all)
    return CommitPlan(tuple([_entry(parts, rules) for parts in publish] + sweep), pending_json(pending_all))


def _entry(parts: Sequence[Part], rules: PartRules) -> Json:
    """The manifest entry of one file, which consists of one or more parts."""
    chunks = tuple(chunk for part in parts for chunk in part.chunks)
    # Named after its newest chunk: after a restore, names identify the files with records of later epochs.
    newest = max(chunks, key=lambda chunk: (chunk.epoch, chunk.subtask, chunk.index))
    name = Part((chunks[0], newest), 0, 0).file_name(rules.prefix, rules.suffix)
    entry = {"part": name, "chunks": [asdict(chunk) for chunk in chunks]}
    if len(parts) == 1 or rules.compaction is None or not rules.compaction.delimiter:
        return entry
    return {
        **entry,
        "gathered": [len(part.chunks) for part in parts],
        "delimiter": rules.compaction.delimiter.hex(),
    }


def _assign_part(
    part: Part, publish: list[Part], waiting: dict[tuple[str, int], Part], policy: RollingPolicy, now_ms: int
) -> None:
    if policy.rolls(part.bytes, part.since_ms, part.touched_ms, now_ms):
        publish.append(part)
    else:
        waiting[part.destination] = part


def _sweep_entry(parts: Iterable[Part], waiting_parts: Iterable[Part]) -> list[Json]:
    """The epoch below which a staged file that no part lists is a leftover of a lost attempt.

    Files of the newest epoch are not removed: an attempt that lost its race may still be writing. Pending chunks were
    staged at or after the limit, so the committer needs no list of them.
    """
    chunks = [chunk for part in parts for chunk in part.chunks]
    if not chunks:
        return []
    waiting_epochs = [chunk.epoch for part in waiting_parts for chunk in part.chunks]
    folder = chunks[0].file.rpartition("/")[0]
    return [{"sweep": folder, "before": min(waiting_epochs, default=max(chunk.epoch for chunk in chunks))}]


def published_parts(publish: Sequence[Json]) -> list[PublishedPart]:
    """The parts that a manifest lists."""
    return [
        PublishedPart(
            entry["part"],
            tuple(Chunk(**chunk) for chunk in entry["chunks"]),
            tuple(entry.get("gathered", ())),
            bytes.fromhex(entry.get("delimiter", "")),
        )
        for entry in publish
        if "part" in entry
    ]


def sweep_limit(publish: Sequence[Json]) -> tuple[str, int] | None:
    """The staging folder, and the epoch below which its leftovers may be removed; None when the epoch lists none."""
    return next(((entry["sweep"], entry["before"]) for entry in publish if "sweep" in entry), None)


def pending_json(parts: Iterable[Part]) -> Json:
    """Pending parts as the manifest stores them; the inverse of `pending_parts`."""
    encoded = [_without_none(asdict(part)) for part in sorted(parts, key=lambda part: part.destination)]
    return encoded or None


def _without_none(entry: dict[str, Json]) -> dict[str, Json]:
    return {key: value for key, value in entry.items() if value is not None}


def pending_parts(pending: Json) -> list[Part]:
    """The pending parts of a manifest."""
    if isinstance(pending, dict):
        pending = pending["parts"]  # from a job that used to commit partitions
    return [
        Part(
            tuple(Chunk(**chunk) for chunk in entry["chunks"]),
            entry["since_ms"],
            entry["touched_ms"],
            entry.get("epochs_gathered"),
        )
        for entry in pending or ()
    ]
