"""Prints the physical plan: as text, stable enough for tests, and as Flink's JSON.

The text has stages, exchanges, types and uids. The JSON has the format of Flink's plan visualiser: nodes with
predecessors and ship strategies.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from millstream.compiler.passes import compile_graph
from millstream.graph.nodes import (
    AsyncCalls,
    BroadcastProcess,
    Graph,
    IntervalJoin,
    KeyedBatches,
    KeyedBroadcastProcess,
    KeyedCoFlatMap,
    KeyedCoMap,
    KeyedFilter,
    KeyedFlatMap,
    KeyedMap,
    KeyedProcess,
    LoopHead,
    LoopTail,
    Node,
    Process,
    Read,
    Reduce,
    Window,
    Write,
)
from millstream.plan.operations import PaneAggregate, PartialAggregate, Rolling, WindowJoin
from millstream.plan.stages import Channel, Plan, Stage
from millstream.records.batch import is_typed
from millstream.records.columns import stream_schema

__all__ = ["explain", "explain_plan", "plan_json"]


def explain(graph: Graph) -> str:
    """The text plan of a program."""
    return explain_plan(compile_graph(graph))


def explain_plan(plan: Plan) -> str:
    """One paragraph per stage, one line per operator, indented by its position in the chain."""
    stages = "1 stage" if len(plan.stages) == 1 else f"{len(plan.stages)} stages"
    lines = [f"job '{plan.job_name}': {stages}, max parallelism {plan.max_parallelism}"]
    for stage in plan.stages:
        lines += ["", f"stage {stage.index}  ×{stage.width}", *_stage(plan, stage)]
    return "\n".join(lines) + "\n"


def _stage(plan: Plan, stage: Stage) -> list[str]:
    return [line for chain in stage.chains for line in _chain(plan, stage, chain)]


def _chain(plan: Plan, stage: Stage, chain: Sequence[int]) -> list[str]:
    """The operators of a chain as a tree, each below its upstream operator."""
    by_id = {node.id: node for node in stage.operators}
    above = {id: next((c.source for c in plan.into(id) if c.local and c.source in chain), None) for id in chain}
    lines: list[str] = []

    def draw(id: int, depth: int) -> None:
        if not depth:
            lines.extend(f"  ⇐ {_incoming(plan, channel)}" for channel in plan.into(id))
        lines.append("  " + "   " * depth + ("└─ " if depth else "") + _operator(by_id[id]))
        for below in (other for other in chain if above[other] == id):
            draw(below, depth + 1)

    for first in (id for id in chain if above[id] is None):
        draw(first, 0)
    return lines


def _incoming(plan: Plan, channel: Channel) -> str:
    source = next(node for node in plan.nodes() if node.id == channel.source)
    how = channel.edge.partitioning.value
    tag = f" side output '{channel.edge.tag}'" if channel.edge.tag is not None else ""
    which = "" if channel.edge.input == 1 else f" as input {channel.edge.input}"
    return f"{how} from '{source.name}'{tag} ({channel.senders} → {channel.receivers}){which}"


def _operator(node: Node) -> str:
    text = f"[{node.id}] {node.name}  ×{node.parallelism}  uid={node.uid}"
    if isinstance(node.operation, Read):
        text += f"  reads {node.operation.source.describe()}"
    if isinstance(node.operation, Write):
        return text + f"  writes {node.operation.sink.describe()}, {node.operation.sink.guarantee}"
    if isinstance(node.operation, AsyncCalls):
        text += _calls(node.operation)
    if isinstance(node.operation, LoopTail):
        return text + "  stores the records fed back to the head of its loop"
    if isinstance(node.operation, LoopHead):
        text += f"  reads the records fed back by uid={node.operation.tail}"
    text += _keyed(node)
    if isinstance(node.operation, (Process, Read)) and node.operation.tags:
        text += "  side outputs " + ", ".join(tag for tag, _ in node.operation.tags)
    if node.queryable is not None:
        text += f"  queryable as '{node.queryable}'"
    return f"{text}  → {_layout(node)}"


def _calls(operation: AsyncCalls) -> str:
    """The call settings of an asynchronous function."""
    order = "in order" if operation.ordered else "unordered"
    retry = type(operation.retry).__name__
    return f"  calls up to {operation.capacity} at once, {operation.timeout_ms} ms each, {order}, {retry}"


def _keyed(node: Node) -> str:
    """The keyed state of an operator, and whether it is stored as columns."""
    operation = node.operation
    if isinstance(operation, Rolling):
        return f"  keeps per key: {operation.kind} of field {operation.position}, in columns"
    if isinstance(operation, Reduce):
        return "  keeps per key: its reduced record"
    if isinstance(operation, KeyedBatches):
        states = ", ".join(f"{name}: {type_info}" for name, type_info in operation.states)
        return f"  keeps per key: {states or 'nothing'}, in columns"
    if isinstance(operation, Window):
        return f"  keeps per key and window: {_contents(operation)}"
    if isinstance(operation, IntervalJoin):
        return _interval(operation)
    if isinstance(operation, WindowJoin):
        return f"  keeps per key: records of both sides, joined in columns, for {operation.windows.describe()}"
    if isinstance(operation, PartialAggregate):
        return f"  adds up by key and pane of {operation.windows.pane_ms} ms: {_aggregate_kinds(operation)}, in columns"
    if isinstance(operation, PaneAggregate):
        return (
            f"  keeps per key and pane: {_aggregate_kinds(operation)}, in columns, for {operation.windows.describe()}"
        )
    shared = ""
    if isinstance(operation, (BroadcastProcess, KeyedBroadcastProcess)):
        shared = "  broadcasts: " + ", ".join(state.get_name() for state in operation.states)
    if isinstance(operation, (KeyedProcess, KeyedMap, KeyedFlatMap, KeyedFilter, KeyedCoMap, KeyedCoFlatMap)):
        return "  keeps per key: the states of its function" + shared
    return shared


def _interval(operation: IntervalJoin) -> str:
    """The interval of an interval join, and whether pairs are built vectorised."""
    how = "" if operation.fields is None else ", joined in columns"
    between = f"{operation.lower_ms} ms to {operation.upper_ms} ms"
    return f"  keeps per key: records that match when right is {between} after left{how}"


def _aggregate_kinds(operation: PartialAggregate | PaneAggregate) -> str:
    return ", ".join(aggregate.kind for aggregate in operation.measures)


def _contents(operation: Window) -> str:
    """The contents of a window, and settings that differ from the assigner's defaults."""
    if operation.evictor is not None:
        contents = f"its records, evicted by {type(operation.evictor).__name__}"
    elif operation.reduce is not None:
        contents = "its reduced record"
    elif operation.aggregate is not None:
        contents = f"the accumulator of {type(operation.aggregate).__name__}"
    else:
        contents = "its records"
    lateness = f", late by up to {operation.allowed_lateness_ms} ms" if operation.allowed_lateness_ms else ""
    return f"{contents}, fired by {type(operation.trigger).__name__}{lateness}"


def _layout(node: Node) -> str:
    """The format of the operator's output: Arrow columns, or pickled Python values."""
    if node.output_type is None or not is_typed(node.output_type):
        return "pickled values"
    schema = stream_schema(node.output_type)
    assert schema is not None
    return "columns(" + ", ".join(f"{field.name}: {field.type}" for field in schema) + ")"


def plan_json(graph: Graph) -> str:
    """The result of `StreamExecutionEnvironment.get_execution_plan()`."""
    plan = compile_graph(graph)
    nodes = sorted(plan.nodes(), key=lambda node: node.id)
    return json.dumps({"nodes": [_node(node) for node in nodes]}, indent=2)


def _node(node: Node) -> dict[str, Any]:
    pact = "Operator"
    if isinstance(node.operation, Read):
        pact = "Data Source"
    elif isinstance(node.operation, Write):
        pact = "Data Sink"
    entry: dict[str, Any] = {
        "id": node.id,
        "type": node.name,
        "pact": pact,
        "contents": node.description or node.name,
        "parallelism": node.parallelism,
        "uid": node.uid,
    }
    if node.inputs:
        entry["predecessors"] = [
            {"id": edge.source, "ship_strategy": edge.partitioning.name, "side": "second"} for edge in node.inputs
        ]
    return entry
