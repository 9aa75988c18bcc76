"""Loops converge to the direct computation, whatever the rounds, epochs, crashes and parallelism."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from programs.loops import MESSAGE, Component

from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.testing import CRASH, EPOCH, Collect, Script, run


def components_of(edges: list[tuple[int, int]]) -> dict[int, int]:
    label = {vertex: vertex for edge in edges for vertex in edge}
    changed = True
    while changed:
        changed = False
        for a, b in edges:
            low = min(label[a], label[b])
            if label[a] != low or label[b] != low:
                label[a] = label[b] = low
                changed = True
    return label


@given(
    edges=st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12)), min_size=1, max_size=25),
    cuts=st.lists(st.sampled_from([EPOCH, CRASH]), max_size=4),
    rounds_max=st.integers(1, 5),
    parallelism=st.integers(1, 3),
    data=st.data(),
)
@settings(deadline=None)
def test_connected_components_match_the_direct_computation(
    edges: list[tuple[int, int]], cuts: list[Any], rounds_max: int, parallelism: int, data: Any
) -> None:
    script: list[Any] = list(edges)
    for cut in cuts:
        script.insert(data.draw(st.integers(0, len(script))), cut)
    out = Collect()

    def build(env: StreamExecutionEnvironment) -> None:
        messages = env.add_source(Script(script)).flat_map(
            lambda e: [(e[0], -1, e[0]), (e[1], -1, e[1]), (e[0], e[1], e[0]), (e[1], e[0], e[1])], MESSAGE
        )
        loop = messages.iterate(rounds_max=rounds_max)
        told = loop.key_by(lambda m: m[0], Types.LONG()).process(Component(), MESSAGE)
        loop.close_with(told.filter(lambda m: m[0] >= 0))
        told.filter(lambda m: m[0] < 0).map(lambda m: (m[1], m[2])).sink_to(out)

    result = run(build, parallelism=parallelism)
    assert sorted(result[out]) == sorted(components_of(edges).items())
