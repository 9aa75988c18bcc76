"""What a committed epoch read, worked out from its manifest and the one before. Pure, but for asking the sources.

No plan of an epoch is ever written down (`input_plan`): what was read is the difference of the positions of two
manifests. Which subtask read a split stands in the later one, as long as the split has not ended; for those that ended
the assignment is made again, from what the earlier one keeps, by the function that made it then (a recorded source
knows it). What the splits that were not read were waiting with stands in the later one too.

The start of the driver's run is in no manifest. It matters to idle inputs only: nobody is idle for the time the job was
down. Where the epoch was run by another driver than the one before, nobody counts as idle.
"""

from __future__ import annotations

from collections.abc import Mapping

from millstream.checkpoint.manifest import Manifest, SplitPosition
from millstream.connectors.contract_checks import is_complete, listed_splits
from millstream.connectors.contracts import SourceContext, Split
from millstream.errors import StoreError
from millstream.jobs.epochs.input_plan import InputPlan, PlannedSource, WaitingSplit, homes
from millstream.records.watermarks import MIN_WATERMARK
from millstream.runtime.task.recorded_input import RecordedSource
from millstream.runtime.task.spec import ReadRange
from millstream.state.stored.accounts import OperatorAccount, SplitAccount, accounts_of

__all__ = ["replayed_input"]


def replayed_input(
    sources: tuple[PlannedSource, ...], parent: Manifest | None, epoch: Manifest, now_ms: int
) -> InputPlan:
    """The input of `epoch`, which followed `parent` (None: it was the first), at processing time `now_ms`."""
    same_run = parent is not None and parent.run == epoch.run
    started_ms = 0 if same_run else now_ms
    reads: dict[str, tuple[ReadRange, ...]] = {}
    waiting: dict[str, tuple[WaitingSplit, ...]] = {}
    unread = {uid: account.unread for uid, account in accounts_of(epoch).items() if account.unread}
    ended: set[str] = set()
    for planned in sources:
        uid, context = planned.uid, SourceContext(now_ms, started_ms, planned.parallelism)
        splits = {split.name: split for split in listed_splits(planned.source, context)}
        reads[uid], waiting[uid] = _of_source(planned, splits, parent, epoch)
        if not reads[uid] and not waiting[uid] and uid not in unread and is_complete(planned.source, context):
            ended.add(uid)
    final = epoch.status == "DRAINED"
    return InputPlan(reads, waiting, frozenset(ended), any(reads.values()), final, now_ms, started_ms, unread=unread)


def _of_source(
    planned: PlannedSource, splits: Mapping[str, Split], parent: Manifest | None, epoch: Manifest
) -> tuple[tuple[ReadRange, ...], tuple[WaitingSplit, ...]]:
    was: Mapping[str, SplitPosition] = {} if parent is None else parent.sources.get(planned.uid, {})
    now = epoch.sources.get(planned.uid, {})
    kept_before, kept = _kept_splits(parent, planned.uid), _kept_splits(epoch, planned.uid)
    read = [name for name, at in now.items() if name not in was or was[name].offset != at.offset]
    for name in read:
        if name not in splits:
            raise StoreError(
                f"epoch {epoch.epoch} read split '{name}' of '{planned.uid}' ({planned.source.describe()}), which the "
                "source does not have any more, so the epoch cannot be replayed. Put back what was removed, or replay "
                "a newer epoch"
            )
    live = {*read, *kept}
    in_order = [*(name for name in splits if name in live), *(name for name in kept if name not in splits)]
    before = {name: split.subtask for name, split in kept_before.items() if split.subtask is not None}
    assigned = homes(in_order, before, planned.parallelism)
    recorded_subtasks = planned.source.subtasks if isinstance(planned.source, RecordedSource) else {}
    stored_subtasks = {name: split.subtask for name, split in kept.items() if split.subtask is not None}
    subtasks = {**assigned, **stored_subtasks, **recorded_subtasks}
    ranges = []
    for name in (name for name in in_order if name in read):
        start = was[name].offset if name in was else splits[name].start
        ranges.append(ReadRange(splits[name], start, now[name].offset, subtasks[name], _watermark(was.get(name))))
    waits = [
        WaitingSplit(name, kept[name].time(_watermark(was.get(name))), subtasks[name])
        for name in in_order
        if name not in read
    ]
    return tuple(ranges), tuple(waits)


def _kept_splits(manifest: Manifest | None, uid: str) -> Mapping[str, SplitAccount]:
    return accounts_of(manifest).get(uid, OperatorAccount()).splits


def _watermark(position: SplitPosition | None) -> int:
    return MIN_WATERMARK if position is None or position.watermark is None else position.watermark
