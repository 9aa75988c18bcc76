"""Reconstructs a committed epoch: its input, its plan, and the part of it that a replay needs. Pure, except for
querying the sources.

The plan of an epoch is never stored (`input_plan`): its input is the difference of the positions of two manifests. The
later manifest holds the subtask of each split that has not ended; for ended splits the assignment is computed again,
from the earlier manifest, by the function that computed it then (a recorded source knows it). The later manifest also
holds the times of splits that were not read, except for times that the source knew in advance (`reading_order`), which
are queried again.

No manifest holds the start of the driver's run. It affects idle inputs only: the time the job was down does not count
as idle. If the epoch was run by another driver than the previous one, no input counts as idle.

A manifest lists the operators of its program by uid, with their parallelism. The job may have been rescaled since, or
the program may now be started at another parallelism, so the program is compiled at the parallelism that matches. An
operator that was changed, inserted or removed upstream of the replayed one would change its input; a changed program is
rejected.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from millstream.checkpoint.manifest import Manifest, SplitPosition
from millstream.checkpoint.program import ProgramOperator, program_of
from millstream.common.watermark_strategy import WatermarkStrategy
from millstream.compiler.passes import compile_graph
from millstream.connectors.contract_checks import is_complete, listed_splits
from millstream.connectors.contracts import SourceContext, Split
from millstream.connectors.direct_sinks import DiscardingSink
from millstream.errors import ProgramError, StoreError
from millstream.graph.nodes import Graph, Node, Write
from millstream.graph.stored_table import KeptTable
from millstream.jobs.epochs.input_plan import InputPlan, PlannedSource, WaitingSplit, homes
from millstream.jobs.epochs.reading_order import outlooks_of, watermark_from
from millstream.jobs.epochs.rounds import has_loops
from millstream.jobs.replay.replay_comparison import lists_records
from millstream.plan.stages import Plan
from millstream.records.watermarks import MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.task.recorded_input import RecordedSource
from millstream.runtime.task.spec import ReadRange
from millstream.state.stored.accounts import OperatorAccount, SplitAccount, accounts_of

__all__ = ["ReplayedPart", "plan_as_committed", "replayed_input", "replayed_part"]


def replayed_input(
    sources: tuple[PlannedSource, ...],
    parent: Manifest | None,
    epoch: Manifest,
    now_ms: int,
    strategies: Mapping[str, WatermarkStrategy],
) -> InputPlan:
    """The input of `epoch`, which followed `parent` (None: it was the first), at processing time `now_ms`."""
    same_run = parent is not None and parent.run == epoch.run
    started_ms = 0 if same_run else now_ms
    reads: dict[str, tuple[ReadRange, ...]] = {}
    waiting: dict[str, tuple[WaitingSplit, ...]] = {}
    unread = {uid: account.unread for uid, account in accounts_of(epoch).items() if account.unread}
    ended: set[str] = set()
    for planned in sources:
        uid = planned.uid
        context = SourceContext(now_ms, started_ms, planned.parallelism, uid=uid)
        splits = {split.name: split for split in listed_splits(planned.source, context)}
        reads[uid], waiting[uid] = _of_source(planned, splits, parent, epoch, strategies.get(uid))
        if not reads[uid] and not waiting[uid] and uid not in unread and is_complete(planned.source, context):
            ended.add(uid)
    final = epoch.status == "DRAINED"
    return InputPlan(reads, waiting, frozenset(ended), any(reads.values()), final, now_ms, started_ms, unread=unread)


def _of_source(
    planned: PlannedSource,
    splits: Mapping[str, Split],
    parent: Manifest | None,
    epoch: Manifest,
    strategy: WatermarkStrategy | None,
) -> tuple[tuple[ReadRange, ...], tuple[WaitingSplit, ...]]:
    was: Mapping[str, SplitPosition] = {} if parent is None else parent.sources.get(planned.uid, {})
    now = epoch.sources.get(planned.uid, {})
    splits_before, stored = _splits_of(parent, planned.uid), _splits_of(epoch, planned.uid)
    # A split with a position but no time was not read: only its beginning is known.
    read = [
        name for name, at in now.items() if (was[name].offset != at.offset if name in was else at.watermark is not None)
    ]
    for name in read:
        if name not in splits:
            raise StoreError(
                f"epoch {epoch.epoch} read split '{name}' of '{planned.uid}' ({planned.source.describe()}), which the "
                "source does not have any more, so the epoch cannot be replayed. Put back what was removed, or replay "
                "a newer epoch"
            )
    live = {*read, *stored}
    in_order = [*(name for name in splits if name in live), *(name for name in stored if name not in splits)]
    before = {name: split.subtask for name, split in splits_before.items() if split.subtask is not None}
    assigned = homes(in_order, before, planned.parallelism)
    recorded_subtasks = planned.source.subtasks if isinstance(planned.source, RecordedSource) else {}
    stored_subtasks = {name: split.subtask for name, split in stored.items() if split.subtask is not None}
    subtasks = {**assigned, **stored_subtasks, **recorded_subtasks}
    account = accounts_of(epoch).get(planned.uid, OperatorAccount())
    starts = {name: was[name].offset if name in was else splits[name].start for name in in_order if name in splits}
    known = outlooks_of(planned.source, strategy, ((splits[name], at) for name, at in starts.items()))
    stood = {
        name: watermark_from(_watermark(was.get(name)), known.get(name) if account.by_time else None)
        for name in in_order
    }
    # The epoch reached the end of its input although it was not planned as the last one.
    is_last = account.event_time == MAX_WATERMARK and epoch.status != "DRAINED"
    ranges = tuple(
        ReadRange(splits[name], starts[name], now[name].offset, subtasks[name], stood[name], is_last=is_last)
        for name in in_order
        if name in read
    )
    waits = [
        WaitingSplit(name, stored[name].time(stood[name]), subtasks[name]) for name in in_order if name not in read
    ]
    return ranges, tuple(waits)


def _splits_of(manifest: Manifest | None, uid: str) -> Mapping[str, SplitAccount]:
    return accounts_of(manifest).get(uid, OperatorAccount()).splits


def _watermark(position: SplitPosition | None) -> int:
    return MIN_WATERMARK if position is None or position.watermark is None else position.watermark


@dataclass(frozen=True)
class ReplayedPart:
    """The part to run: `compared` is the operator and its downstream, `stubs` the replaced sinks."""

    plan: Plan
    compared: tuple[Node, ...]
    stubs: tuple[Node, ...]


def plan_as_committed(graph: Graph, manifest: Manifest, name: str) -> Plan:
    """The plan at the parallelism that the epoch ran with.

    A manifest records the parallelism of each operator, not the environment's default for operators without their own:
    all recorded values are tried, and the one that matches most operators is used.
    """
    program = program_of(manifest)
    parallelisms = {operator.parallelism for operator in program.values() if operator.parallelism}
    plans = [
        compile_graph(replace(graph, parallelism=parallelism))
        for parallelism in dict.fromkeys([graph.parallelism, *sorted(parallelisms)])
        if parallelism <= graph.max_parallelism
    ]
    best = max(plans, key=lambda plan: sum(_is_unchanged(node, program) for node in plan.nodes()))
    uids = {node.uid for node in best.nodes()}
    removed = {uid: operator.name for uid, operator in program.items() if uid not in uids}
    if removed:
        raise ProgramError(
            f"{name} was run by a program that had {_operators_text(removed.items())}; this one does not have. Replay "
            "it with the original program"
        )
    return best


def _is_unchanged(node: Node, program: Mapping[str, ProgramOperator]) -> bool:
    was = program.get(node.uid or "", ProgramOperator(""))
    return (was.parallelism, was.max_parallelism) == (node.parallelism, node.max_parallelism)


def replayed_part(plan: Plan, node: Node, manifest: Manifest, *, downstream: bool, name: str) -> ReplayedPart:
    """The upstream of `node`, the node itself, and, with `downstream`, the operators it feeds."""
    sources = {other.id: [channel.source for channel in plan.into(other.id)] for other in plan.nodes()}
    targets = {other.id: [channel.target for channel in plan.out_of(other.id)] for other in plan.nodes()}
    upstream = _closure([node.id], sources)
    changed = {id for id in _ids(plan) if not _is_unchanged(_node(plan, id), program_of(manifest))}
    if upstream & changed:
        changed_nodes = [_node(plan, id) for id in sorted(upstream & changed)]
        operators = _operators_text((other.uid or "", other.name) for other in changed_nodes)
        verb = "is" if len(changed_nodes) == 1 else "are"
        raise ProgramError(
            f"{name} was run by another program: {operators} {verb} new or had another parallelism, and '{node.name}' "
            "gets its input from there. Replay it with the original program, at its original parallelism"
        )
    new_input = _closure(changed, targets)
    compared = _closure([node.id], targets) - new_input if downstream else {node.id}
    # Loops close through state, not through edges: a record in a loop may come from any operator.
    needed = _ids(plan) - new_input if has_loops(plan) else _closure(compared, sources)
    return _part(plan, needed, compared)


def _part(plan: Plan, needed: set[int], compared_ids: set[int]) -> ReplayedPart:
    stubs = tuple(
        node
        for node in plan.nodes()
        if node.id in needed and isinstance(node.operation, Write) and not lists_records(node.operation.sink)
    )
    stubbed = {node.id for node in stubs}
    stages = tuple(
        replace(
            stage,
            operators=tuple(_stubbed(node, node.id in stubbed) for node in stage.operators if node.id in needed),
            chains=tuple(chain for chain in stage.chains if needed.issuperset(chain)),
        )
        for stage in plan.stages
    )
    channels = tuple(channel for channel in plan.channels if {channel.source, channel.target} <= needed)
    part = replace(plan, stages=tuple(stage for stage in stages if stage.operators), channels=channels)
    compared = tuple(node for node in part.nodes() if node.id in compared_ids)
    return ReplayedPart(part, compared, stubs)


def _stubbed(node: Node, is_stub: bool) -> Node:
    """The node as it is replayed: it writes nothing outside the store."""
    operation = node.operation
    if is_stub and isinstance(operation, Write):
        return replace(node, operation=replace(operation, sink=DiscardingSink()))
    if isinstance(operation, KeptTable) and operation.archive is not None:
        return replace(node, operation=replace(operation, archive=operation.archive.discarding()))
    return node


def _ids(plan: Plan) -> set[int]:
    return {node.id for node in plan.nodes()}


def _node(plan: Plan, id: int) -> Node:
    return next(node for node in plan.nodes() if node.id == id)


def _closure(first: Iterable[int], then: Mapping[int, Iterable[int]]) -> set[int]:
    """`first` and everything reachable from it."""
    closure, pending = set(first), list(first)
    while pending:
        for id in then.get(pending.pop(), ()):
            if id not in closure:
                closure.add(id)
                pending.append(id)
    return closure


def _operators_text(operators: Iterable[tuple[str, str]]) -> str:
    return ", ".join(f"'{name}' (uid {uid})" for uid, name in operators)
