"""The plan of a program: passes, stages, uids, and its golden text."""

from __future__ import annotations

import json

import pytest

from millstream.common import Types
from millstream.compiler.explain import explain, plan_json
from millstream.compiler.passes import PASSES, compile_graph
from millstream.connectors.direct_sinks import DiscardingSink
from millstream.connectors.program_sources import CollectionSource, NumberSequenceSource
from millstream.errors import ProgramError
from millstream.graph.builder import GraphBuilder
from millstream.graph.nodes import Edge, Filter, Map, Node, Partitioning, Read, Write

REBALANCE = Partitioning.REBALANCE


def numbers(builder: GraphBuilder) -> Node:
    return builder.add(Read(NumberSequenceSource(1, 10)), "numbers", output_type=Types.LONG())


def sink(builder: GraphBuilder, node: Node, name: str = "out", **edge: object) -> Node:
    return builder.add(Write(DiscardingSink()), name, inputs=(Edge(node.id, **edge),))  # type: ignore[arg-type]


def diamond() -> GraphBuilder:
    builder = GraphBuilder()
    source = numbers(builder)
    left = builder.add(Map(abs), "left", inputs=(Edge(source.id),), output_type=Types.LONG())
    right = builder.add(Filter(bool), "right", inputs=(Edge(source.id, REBALANCE),), output_type=Types.LONG())
    joined = builder.add(Map(str), "joined", inputs=(Edge(left.id), Edge(right.id)))
    sink(builder, joined)
    return builder


def test_a_diamond_has_two_stages_and_its_short_branch_waits_for_the_long_one() -> None:
    assert explain(diamond().graph("diamond", 2, 128)) == GOLDEN_DIAMOND


GOLDEN_DIAMOND = """\
job 'diamond': 2 stages, max parallelism 128

stage 0  ×2
  [1] numbers  ×2  uid=numbers-35162135  reads numbers 1 to 10  → columns(value: int64)
     └─ [2] left  ×2  uid=left-35df6f51  → columns(value: int64)

stage 1  ×2
  ⇐ rebalance from 'numbers' (2 → 2)
  [3] right  ×2  uid=right-76d2ad67  → columns(value: int64)
  ⇐ forward from 'left' (2 → 2)
  ⇐ forward from 'right' (2 → 2)
  [4] joined  ×2  uid=joined-04ce44c3  → pickled values
     └─ [5] out  ×2  uid=out-f8f9f494  writes discard, exactly-once
"""


def enriched() -> tuple[GraphBuilder, Node]:
    """Items are mapped and connected with broadcast rules."""
    builder = GraphBuilder()
    items = builder.add(Read(NumberSequenceSource(1, 10)), "items", output_type=Types.LONG())
    rules = builder.add(Read(NumberSequenceSource(1, 2)), "rules", output_type=Types.LONG())
    mapped = builder.add(Map(abs), "mapped", inputs=(Edge(items.id),), output_type=Types.LONG())
    meeting = (Edge(mapped.id), Edge(rules.id, Partitioning.BROADCAST))
    sink(builder, builder.add(Map(str), "both", inputs=meeting))
    return builder, items


def stages_of(builder: GraphBuilder) -> list[list[str]]:
    plan = compile_graph(builder.graph("job", 2, 128))
    return [[node.name for node in stage.operators] for stage in plan.stages]


def test_a_source_is_read_in_the_stage_where_its_stream_joins_an_exchanged_one() -> None:
    builder, _ = enriched()
    assert stages_of(builder) == [["rules"], ["items", "mapped", "both", "out"]]


def test_a_source_with_an_early_reader_is_read_early() -> None:
    builder, items = enriched()
    sink(builder, items, "early")
    assert stages_of(builder) == [["items", "rules", "mapped", "early"], ["both", "out"]]


def test_a_source_without_an_exchange_is_read_in_the_stage_after_the_longest_path() -> None:
    builder, _ = enriched()
    both = builder.nodes[max(builder.nodes) - 1]
    late = builder.add(Read(NumberSequenceSource(1, 3)), "late", output_type=Types.LONG())
    further = builder.add(Map(abs), "further", inputs=(Edge(both.id, REBALANCE), Edge(late.id)))
    sink(builder, further, "end")
    assert stages_of(builder) == [["rules"], ["items", "mapped", "both", "out"], ["late", "further", "end"]]


def test_unequal_parallelism_redistributes_records_and_equal_parallelism_forwards_them() -> None:
    builder = GraphBuilder()
    source = builder.add(Read(CollectionSource([1])), "one")
    first = builder.add(Map(abs), "first", inputs=(Edge(source.id),))
    sink(builder, first)
    plan = compile_graph(builder.graph("job", 3, 128))
    assert [channel.edge.partitioning.value for channel in plan.channels] == ["rebalance", "forward"]
    assert [stage.width for stage in plan.stages] == [1, 3]


def test_forward_between_unequal_parallelisms_is_refused_at_the_line() -> None:
    builder = GraphBuilder()
    source = builder.add(Read(CollectionSource([1])), "one")
    sink(builder, source, partitioning=Partitioning.FORWARD)
    with pytest.raises(ProgramError, match="forward needs equal parallelism"):
        compile_graph(builder.graph("job", 2, 128))


@pytest.mark.parametrize("parallelism", [0, -1, 129])
def test_parallelism_outside_one_to_maximum_is_refused(parallelism: int) -> None:
    builder = GraphBuilder()
    node = numbers(builder)
    builder.amend(node.id, parallelism=parallelism or None)
    sink(builder, node)
    with pytest.raises(ProgramError, match="parallelism"):
        compile_graph(builder.graph("job", parallelism if parallelism < 1 else 1, 128))


def test_derived_uids_do_not_change_when_an_unrelated_branch_is_added() -> None:
    more = GraphBuilder()
    other = numbers(more)
    sink(more, builder_map(more, other, "elsewhere"), "elsewhere-out")
    source = more.add(Read(NumberSequenceSource(1, 10)), "numbers2", output_type=Types.LONG())
    sink(more, source, "out2")
    before = {node.uid for node in compile_graph(more.graph("job", 2, 128)).nodes()}
    sink(more, builder_map(more, other, "added"), "added-out")
    after = {node.uid for node in compile_graph(more.graph("job", 2, 128)).nodes()}
    assert before < after
    assert len(after) == len(before) + 2


def builder_map(builder: GraphBuilder, node: Node, name: str) -> Node:
    return builder.add(Map(abs), name, inputs=(Edge(node.id),), output_type=Types.LONG())


@pytest.mark.parametrize("partitioning", [Partitioning.UNSPECIFIED, Partitioning.FORWARD, REBALANCE])
def test_derived_uids_do_not_change_with_the_parallelism(partitioning: Partitioning) -> None:
    """Whether a record stays in its task or is redistributed does not affect a uid."""
    uids = set()
    for parallelism in (1, 2, 3):
        builder = GraphBuilder()
        narrow = builder.add(Map(abs), "narrow", inputs=(Edge(numbers(builder).id),))
        if partitioning is not Partitioning.FORWARD:
            builder.amend(narrow.id, parallelism=1)
        wide = builder.add(Map(str), "wide", inputs=(Edge(narrow.id, partitioning),))
        sink(builder, wide)
        uids.add(tuple(node.uid for node in compile_graph(builder.graph("job", parallelism, 128)).nodes()))
    assert len(uids) == 1, uids


def test_an_explicit_forward_does_not_change_a_uid() -> None:
    plans = []
    for partitioning in (Partitioning.UNSPECIFIED, Partitioning.FORWARD):
        builder = GraphBuilder()
        sink(builder, numbers(builder), partitioning=partitioning)
        plans.append([node.uid for node in compile_graph(builder.graph("job", 2, 128)).nodes()])
    assert plans[0] == plans[1]


def test_a_duplicate_uid_is_rejected_with_both_operators() -> None:
    builder = GraphBuilder()
    source = numbers(builder)
    a, b = builder_map(builder, source, "a"), builder_map(builder, source, "b")
    for node in (a, b):
        builder.amend(node.id, uid="same")
        sink(builder, node, f"out-{node.name}")
    with pytest.raises(ProgramError, match=r"'same' is set on both 'a'.*and 'b'"):
        compile_graph(builder.graph("job", 1, 128))


def test_a_stream_of_the_first_job_can_feed_the_second() -> None:
    builder = GraphBuilder()
    source = numbers(builder)
    sink(builder, source, "first")
    builder.take()
    sink(builder, source, "second")
    assert [node.name for node in builder.graph("job", 1, 128).nodes] == ["numbers", "second"]


def test_every_pass_leaves_a_lowered_graph_unchanged() -> None:
    graph = diamond().graph("job", 2, 128)
    for step in PASSES:
        graph = step(graph)
    again = graph
    for step in PASSES:
        again = step(again)
    assert again == graph


def test_the_json_plan_has_flinks_shape() -> None:
    nodes = json.loads(plan_json(diamond().graph("job", 2, 128)))["nodes"]
    assert [node["pact"] for node in nodes] == ["Data Source", "Operator", "Operator", "Operator", "Data Sink"]
    assert nodes[3]["predecessors"] == [
        {"id": 2, "ship_strategy": "FORWARD", "side": "second"},
        {"id": 3, "ship_strategy": "FORWARD", "side": "second"},
    ]


def test_two_downstream_operators_are_drawn_next_to_each_other() -> None:
    builder = GraphBuilder()
    source = numbers(builder)
    for name in ("left", "right"):
        sink(builder, builder.add(Map(str), name, inputs=(Edge(source.id),)))
    drawn = explain(builder.graph("branches", 1, 128)).splitlines()
    assert [line.split("]")[0] + "]" for line in drawn if "[" in line] == [
        "  [1]",
        "     └─ [2]",
        "        └─ [3]",
        "     └─ [4]",
        "        └─ [5]",
    ]


def test_sinks_of_one_name_are_distinguished_and_have_their_previous_uids() -> None:
    def names_and_uids(*names: str) -> tuple[list[str], list[str | None]]:
        builder = GraphBuilder()
        source = numbers(builder)
        for name in names:
            sink(builder, source, name)
        nodes = [
            node for node in compile_graph(builder.graph("job", 1, 128)).nodes() if isinstance(node.operation, Write)
        ]
        return [node.name for node in nodes], [node.uid for node in nodes]

    names, uids = names_and_uids("Sink: Writer", "Sink: Writer", "Sink: p", "Sink: p", "Sink: q")
    assert names == [
        "Sink: Writer to discard", "Sink: Writer to discard (2)", "Sink: p", "Sink: p (2)", "Sink: q",
    ]  # fmt: skip
    assert names_and_uids("Sink: Writer") == (["Sink: Writer"], uids[:1])
    assert len(set(uids)) == 5 and uids[1] is not None and uids[1].startswith("sink-writer-")
