"""The specification of a task: facts about the job, the epoch, and the task's assignment.

`JobFacts` never change while a driver runs and are sent once, with the plan. An `EpochSpec` changes every epoch and
reaches the tasks as a Spark local property: the Spark plan itself is built once.

Every task receives the same string, and the cost of decoding it must not grow with the number of tasks. So the string
has one part per subtask, and a task decodes only its own. It decodes accounts of other subtasks only on access: after a
change of parallelism each task needs them, since state is redistributed. `own_accounts` selects the accounts that a
subtask needs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import Any, TypeAlias, TypeVar

from millstream.connectors.contracts import Split
from millstream.records.watermarks import MIN_WATERMARK
from millstream.runtime.task.event_time import restored_event_time
from millstream.state.stored.accounts import AccountReader, FunctionAccount, SubtaskAccount, to_json
from millstream.storage.store import Store
from millstream.storage.tier.tiered_store import TierSettings, tiered_store

__all__ = ["Assignment", "EpochSpec", "JobFacts", "ReadRange", "own_accounts"]

A = TypeVar("A")


@dataclass(frozen=True)
class JobFacts:
    """The job as its tasks know it. `run` is unique per driver start and restart: caches of other runs are void."""

    job_name: str
    job_id: str
    run: str
    store: Store
    parameters: Mapping[str, str] = field(default_factory=dict)
    batch_records_max: int = 65_536
    block_bytes_max: int = 4 << 20
    tier: TierSettings | None = None  # the tier that caches files of a remote store; None: in memory
    batch: bool = False  # bounded input in one epoch: aggregations emit only final results
    records_input: bool = False  # sources record their input for a replay

    def in_task(self) -> JobFacts:
        """The facts as seen by a task: the store is its machine's tier, if there is one."""
        store = tiered_store(self.store, self.tier)
        return self if store is self.store else replace(self, store=store)


@dataclass(frozen=True)
class Assignment:
    """Identifies a task. `nonce` is unique among all attempts of all tasks, past and future. `raises`: a failure of
    user code is raised at its origin instead of sent, for a debugger. `place`: the cluster process that runs the task;
    empty if there is only one. `block_folder`: where tasks share blocks (`shared_blocks`); empty: blocks go through the
    shuffle."""

    stage: int
    subtask: int
    attempt: int
    nonce: str
    capture: bool = True
    raises: bool = False
    place: str = ""
    block_folder: str = ""


@dataclass(frozen=True)
class ReadRange:
    """One split's part in an epoch: read `[start, stop)` in subtask `subtask`. `watermark` is the split's event time,
    `time` its other stored time details (`event_time.EventTimeState.details`). `bytes_max`: a source that supports it
    ends the range after this many bytes; None: the whole range is read. `is_last`: after the whole range, the source
    has no more input in this or any other split."""

    split: Split
    start: Any
    stop: Any
    subtask: int
    watermark: int
    time: Mapping[str, Any] = field(default_factory=dict)
    bytes_max: int | None = None
    is_last: bool = False


@dataclass(frozen=True)
class EpochSpec:
    """One epoch. `round` counts the executions of the plan by this driver, so that no two attempts share a name.

    The driver holds the complete spec. A task decodes only its own ranges in `reads`; `states` and `operator_states`
    are mappings that decode an account on access.

    Many fields: each is a part of a task's input.
    """

    epoch: int
    round: int
    now_ms: int
    final: bool
    reads: Mapping[str, tuple[ReadRange, ...]]
    # Event times of splits that are not read in this epoch; they hold back the source's watermark.
    floors: Mapping[str, int]
    watermarks: Mapping[str, int]
    states: Mapping[str, Mapping[int, SubtaskAccount]]  # by uid and subtask
    operator_states: Mapping[str, Mapping[int, FunctionAccount]] = field(default_factory=dict)  # by uid and subtask
    # Event times by subtask, for operators whose subtasks were not all at the watermark in the last epoch.
    event_times: Mapping[str, Sequence[int]] = field(default_factory=dict)
    # Tasks acknowledge before their files are uploaded: the committer waits for the uploads.
    deferred_uploads: bool = False
    # The epoch follows an acknowledged, uncommitted one, so files it needs may still be uploading.
    is_ahead: bool = False
    # A task that runs for longer stores a report (`stalled_tasks`); None: no limit.
    stalled_ms: int | None = None

    def event_time(self, uid: str, subtask: int, parallelism: int, max_parallelism: int | None) -> int:
        """The event time of an operator's subtask; `max_parallelism` is set only for keyed operators."""
        watermark, times = self.watermarks.get(uid, MIN_WATERMARK), self.event_times.get(uid)
        return max(watermark, restored_event_time(times, subtask, parallelism, max_parallelism)) if times else watermark

    def encode(self) -> str:
        """Encodes it as a string: a line of JSON for all tasks, then the parts of the subtasks, one after another."""
        parts = [json.dumps(part, separators=(",", ":")) if part else "" for part in _parts(self)]
        head = {name: value for name, value in vars(self).items() if name != "reads"}
        for kind in _ACCOUNTS:
            head[kind] = {uid: _subtasks(accounts) for uid, accounts in head[kind].items()}
        head["ends"] = list(accumulate(map(len, parts)))
        return "".join([json.dumps(head, separators=(",", ":")), "\n", *parts])

    @classmethod
    def decode(cls, text: str, subtask: int) -> EpochSpec:
        """Decodes the result of `encode` from the viewpoint of `subtask`."""
        end = text.index("\n")
        head = json.loads(text[:end])
        parts = _Parts(text, end + 1, head.pop("ends"))
        reads = {
            uid: tuple(ReadRange(**{**range_, "split": Split(**range_["split"])}) for range_ in ranges)
            for uid, ranges in parts.of(subtask).get("reads", {}).items()
        }
        for kind in _ACCOUNTS:
            head[kind] = {uid: _Accounts(parts, kind, uid, subtasks) for uid, subtasks in head[kind].items()}
        return cls(reads=reads, **head)


def own_accounts(accounts: Mapping[int, A], subtask: int, parallelism: int) -> Mapping[int, A]:
    """The accounts that one subtask needs: its own if the parallelism is unchanged, since its account then covers its
    key groups exactly; otherwise all of them.

    >>> own_accounts({0: "a", 1: "b"}, 1, 2), own_accounts({0: "a", 1: "b"}, 1, 3)
    ({1: 'b'}, {0: 'a', 1: 'b'})
    """
    return {subtask: accounts[subtask]} if len(accounts) == parallelism and subtask in accounts else accounts


# --- the parts of the subtasks ----------------------------------------------------------------------------------

_ACCOUNTS = ("states", "operator_states")
_Part: TypeAlias = dict[str, dict[str, Any]]
"""One subtask: ranges under "reads", accounts under "states" and "operator_states", each by uid."""


def _parts(spec: EpochSpec) -> list[_Part]:
    by_subtask: dict[int, _Part] = {}
    for uid, ranges in spec.reads.items():
        for range_ in ranges:
            reads = by_subtask.setdefault(range_.subtask, {}).setdefault("reads", {}).setdefault(uid, [])
            # Not `asdict`: it copies everything first, which takes milliseconds for a source of many splits.
            reads.append({**vars(range_), "split": vars(range_.split)})
    for kind in _ACCOUNTS:
        for uid, accounts in getattr(spec, kind).items():
            for subtask, account in accounts.items():
                by_subtask.setdefault(subtask, {}).setdefault(kind, {})[uid] = to_json(account)
    return [by_subtask.get(subtask, {}) for subtask in range(max(by_subtask, default=-1) + 1)]


def _subtasks(accounts: Mapping[int, Any]) -> int | list[int]:
    """The subtasks that have an account: a count if they are consecutive from 0, else a list."""
    numbers = sorted(accounts)
    return len(numbers) if numbers == list(range(len(numbers))) else numbers


class _Parts:
    """The encoded parts, each decoded on first access."""

    def __init__(self, text: str, begin: int, ends: Sequence[int]) -> None:
        self._text, self._begin, self._ends = text, begin, ends
        self._decoded: dict[int, _Part] = {}
        self.reader = AccountReader()

    def of(self, subtask: int) -> _Part:
        if subtask not in self._decoded:
            text = self._encoded(subtask)
            self._decoded[subtask] = json.loads(text) if text else {}
        return self._decoded[subtask]

    def _encoded(self, subtask: int) -> str:
        if subtask >= len(self._ends):
            return ""
        start = self._ends[subtask - 1] if subtask else 0
        return self._text[self._begin + start : self._begin + self._ends[subtask]]


class _Accounts(Mapping[int, Any]):
    """The last acknowledged accounts of one operator, by subtask; each is decoded once, on access."""

    def __init__(self, parts: _Parts, kind: str, uid: str, subtasks: int | list[int]) -> None:
        self._parts, self._kind, self._uid = parts, kind, uid
        self._subtasks: Sequence[int] = range(subtasks) if isinstance(subtasks, int) else subtasks
        self._accounts: dict[int, Any] = {}

    def __getitem__(self, subtask: int) -> Any:
        if subtask not in self._subtasks:
            raise KeyError(subtask)
        if subtask not in self._accounts:
            reader = self._parts.reader
            read = reader.subtask if self._kind == "states" else reader.function
            self._accounts[subtask] = read(self._parts.of(subtask)[self._kind][self._uid], self._uid)
        return self._accounts[subtask]

    def __iter__(self) -> Iterator[int]:
        return iter(self._subtasks)

    def __len__(self) -> int:
        return len(self._subtasks)
