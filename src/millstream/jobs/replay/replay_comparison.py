"""Compares an epoch that was run again with the committed one.

Everything that a manifest stores of an operator can be compared: the number of records it read and emitted, its event
time at the end, the live rows of its states, how far a source was read, and the output that a sink has staged in the
job's store. Files may differ: two runs may cut and merge their segments differently, as long as the rows are the same.

Pickled values are unpickled, as in the replay's own tasks, and compared as Python values: equal sets need not have
equal pickles. Records of a sink are compared regardless of order, because records of different senders are unordered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

from millstream.checkpoint.manifest import Manifest
from millstream.connectors.contracts import Sink
from millstream.connectors.direct_sinks import DiscardingSink
from millstream.errors import StoreDamagedError
from millstream.graph.nodes import Node, Read, Write
from millstream.jobs.epochs.outcome import EpochOutcome
from millstream.records.unpickling import unpickled
from millstream.records.watermarks import IDLE_WATERMARK, MIN_WATERMARK
from millstream.runtime.task.recorded_input import RecordedSource
from millstream.state.stored.accounts import OperatorAccount, accounts_of, to_json
from millstream.state.stored.table_names import ARCHIVED_FILES
from millstream.state_reader.difference import state_diff
from millstream.state_reader.snapshot import Snapshot
from millstream.storage.store import Store

__all__ = ["ABSENT", "COUNTS", "Comparison", "Difference", "compare_operator", "lists_records", "replayed_manifest"]

COUNTS = "records of"
_SIDES = ("before", "after")


class _Absent:
    """The side of a difference that does not have the row."""

    def __repr__(self) -> str:
        return "nothing"


ABSENT = _Absent()


@dataclass(frozen=True)
class Difference:
    """One difference. `place` names the row of a state (its key, for example); empty otherwise."""

    uid: str
    operator: str
    what: str
    committed: Any
    replayed: Any
    place: Mapping[str, Any] = field(default_factory=dict)

    def text(self) -> str:
        """One line of text.

        >>> Difference("c1", "count", "state 'total'", 4, 5, {"key": "a"}).text()
        "'count' (uid c1), state 'total', key 'a': committed 4, replayed 5"
        """
        place = "".join(f", {name} {_shown(value)}" for name, value in self.place.items())
        return (
            f"'{self.operator}' (uid {self.uid}), {self.what}{place}: "
            f"committed {_shown(self.committed)}, replayed {_shown(self.replayed)}"
        )


@dataclass
class Comparison:
    """The compared parts, the number of differences, and the first `listed_max` of them."""

    listed_max: int
    compared: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)
    count: int = 0
    notes: list[str] = field(default_factory=list)

    def add(self, differences: Iterable[Difference]) -> None:
        """Count these differences, and retain the first ones."""
        for difference in differences:
            self.count += 1
            if len(self.differences) < self.listed_max:
                self.differences.append(difference)


def replayed_manifest(parent: Manifest | None, committed: Manifest, outcome: EpochOutcome) -> Manifest:
    """The manifest that the replay would have committed, with its states and event times. It is never committed."""
    before, states = accounts_of(parent), dict(committed.states)
    for uid, watermark in outcome.watermarks.items():
        reached = MIN_WATERMARK if watermark == IDLE_WATERMARK else watermark
        account = OperatorAccount(
            watermark=max(reached, before.get(uid, OperatorAccount()).event_time),
            subtasks=outcome.states.get(uid, {}),
            functions=outcome.operator_states.get(uid, {}),
        )
        states[uid] = to_json(account)
    return replace(committed, states=states, staged={}, published_through=committed.epoch)


def lists_records(sink: Sink) -> bool:
    """Whether the sink can list the records it staged, and so stages only in the job's store."""
    return type(sink).staged_records is not Sink.staged_records


def compare_operator(
    node: Node,
    into: Comparison,
    parent: Manifest | None,
    committed: Snapshot,
    replayed: Snapshot,
    outcome: EpochOutcome,
) -> None:
    """Compare everything that manifests store about one operator."""
    uid, name = node.uid or "", node.name
    counts = _counts(parent, committed.manifest, uid)
    if counts is not None:
        into.compared.append(f"{COUNTS} '{name}'")
        into.add(
            Difference(uid, name, f"records {side}", counts[side], outcome.operators[uid][side])
            for side in ("in", "out")
            if counts[side] != outcome.operators[uid][side]
        )
    both = (accounts_of(snapshot.manifest).get(uid, OperatorAccount()) for snapshot in (committed, replayed))
    was_ms, is_ms = (account.watermark for account in both)
    if was_ms != is_ms:
        into.add([Difference(uid, name, "event time", was_ms, is_ms)])
    into.add(_of_splits(node, committed.manifest, outcome))
    if _is_replacement(node):
        return
    for state in _states_of(uid, (committed, replayed)):
        if state == ARCHIVED_FILES:
            continue  # names of files, which are unique to each attempt
        into.compared.append(f"state '{state}' of '{name}'")
        into.add(_of_state(node, state, committed, replayed))
    if isinstance(node.operation, Write) and lists_records(node.operation.sink):
        _compare_output(node, node.operation.sink, into, committed, replayed.store, outcome)


def _is_replacement(node: Node) -> bool:
    """Whether the node replaces the user's own source or sink, which may have state."""
    if isinstance(node.operation, Write):
        return isinstance(node.operation.sink, DiscardingSink)
    return isinstance(node.operation, Read) and isinstance(node.operation.source, RecordedSource)


def _of_splits(node: Node, committed: Manifest, outcome: EpochOutcome) -> Iterator[Difference]:
    """The positions of a source's splits, and the event time they reached."""
    uid = node.uid or ""
    for split, read in sorted(outcome.sources.get(uid, {}).items()):
        was = committed.sources[uid][split]
        for what, before, now in (("offset", was.offset, read.offset), ("time", was.watermark, read.time.watermark)):
            if before != now:
                yield Difference(uid, node.name, f"{what} of split '{split}'", before, now)


def _counts(parent: Manifest | None, committed: Manifest, uid: str) -> dict[str, int] | None:
    """The records in and out of the epoch; the counters of manifests count from the job's beginning."""
    totals: Any = committed.counters.get("operators", {})
    before: Any = {} if parent is None else parent.counters.get("operators", {})
    if uid not in totals:
        return None
    return {side: totals[uid][side] - before.get(uid, {}).get(side, 0) for side in ("in", "out")}


def _states_of(uid: str, snapshots: Sequence[Snapshot]) -> list[str]:
    states = (operator.states for snapshot in snapshots for operator in snapshot.operators if operator.uid == uid)
    return sorted({state for states in states for state in states})


def _of_state(node: Node, state: str, committed: Snapshot, replayed: Snapshot) -> Iterator[Difference]:
    uid = node.uid or ""
    for row in state_diff(committed, replayed, uid, state, unpickle=unpickled):
        change = row.pop("change")
        values = {side: _value(row, side) for side in _SIDES}
        if change == "changed" and _is_same(values["before"], values["after"]):
            continue
        place = {name: value for name, value in row.items() if not name.startswith(_SIDES)}
        if not any(name.startswith(_SIDES) for name in row):
            values = dict.fromkeys(_SIDES, "there")  # a timer has no value: it either exists or not
        yield Difference(
            uid,
            node.name,
            f"state '{state}'",
            ABSENT if change == "added" else values["before"],
            ABSENT if change == "removed" else values["after"],
            place,
        )


def _value(row: Mapping[str, Any], side: str) -> Any:
    if side in row:
        return row[side]
    return {name.removeprefix(f"{side}_"): value for name, value in row.items() if name.startswith(f"{side}_")}


def _is_same(left: Any, right: Any) -> bool:
    try:
        return bool(left == right) or (left != left and right != right)
    except Exception:
        return False  # values without a boolean comparison, such as arrays, are compared by their bytes


# --- output -----------------------------------------------------------------------------------------------------


def _compare_output(
    node: Node, sink: Sink, into: Comparison, committed: Snapshot, store: Store, outcome: EpochOutcome
) -> None:
    uid = node.uid or ""
    try:
        staged = committed.manifest.staged.get(uid, ())
        were = [record for part in staged for record in sink.staged_records(part.payload, committed.store) or ()]
    except StoreDamagedError as error:
        into.notes.append(f"the output of '{node.name}' could not be compared: {error.message}")
        return
    payloads = [payload for _, payload in outcome.staged.get(uid, [])]
    are = [record for payload in payloads for record in sink.staged_records(payload, store) or ()]
    into.compared.append(f"output of '{node.name}'")
    if not _is_same(were, are):
        pairs = zip_longest(_without(were, are), _without(are, were), fillvalue=ABSENT)
        into.add(Difference(uid, node.name, "output", was, is_) for was, is_ in pairs)


def _without(records: Sequence[Any], others: Iterable[Any]) -> list[Any]:
    """The records that the others do not have; duplicates must occur equally often in both."""
    others_left = Counter(map(repr, others))
    missing = []
    for record in records:
        if others_left[repr(record)]:
            others_left[repr(record)] -= 1
        else:
            missing.append(record)
    return missing


_CHARACTERS_MAX = 200


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _CHARACTERS_MAX else f"{text[:_CHARACTERS_MAX]}…"
