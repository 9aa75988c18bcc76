"""The state reader against a dictionary: random changes, epochs and parallelism; every retained epoch, and every
difference.

The model applies the program's logic one record at a time, without segments, versions or compaction.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from itertools import count, pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from millstream import state_reader
from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from millstream.state_reader.verifying import verify
from millstream.testing import EPOCH, Collect, Script, run

STORES = count()
STATES = ("value", "list", "map")
EPOCHS_MAX = 8  # as many as are retained, with some to spare

Change = tuple[int, str, int]


class Applies(KeyedProcessFunction):
    def open(self, runtime_context: Any) -> None:
        self.value = runtime_context.get_state(ValueStateDescriptor("value", Types.LONG()))
        self.list = runtime_context.get_list_state(ListStateDescriptor("list", Types.LONG()))
        self.map = runtime_context.get_map_state(MapStateDescriptor("map", Types.LONG(), Types.LONG()))

    def process_element(self, change: Change, ctx: Any) -> None:
        _, what, number = change
        if what == "set":
            self.value.update(number)
            self.list.add(number)
            self.map.put(number % 3, number)
        elif what == "remove":
            self.map.remove(number % 3)
        elif what == "replace":
            self.list.update([number, number + 1])
        else:
            for state in (self.value, self.list, self.map):
                state.clear()


def applied(model: dict[str, dict[Any, Any]], change: Change) -> None:
    key, what, number = change
    values, lists, maps = (model[name] for name in STATES)
    if what == "set":
        values[key] = number
        lists.setdefault(key, []).append(number)
        maps[key, number % 3] = number
    elif what == "remove":
        maps.pop((key, number % 3), None)
    elif what == "replace":
        lists[key] = [number, number + 1]
    else:
        values.pop(key, None)
        lists.pop(key, None)
        for place in [place for place in maps if place[0] == key]:
            del maps[place]


CHANGES = st.tuples(
    st.integers(0, 40), st.sampled_from(["set", "set", "set", "remove", "replace", "clear"]), st.integers(0, 9)
)
STORY = st.lists(st.lists(CHANGES, min_size=1, max_size=25), min_size=1, max_size=EPOCHS_MAX)


@settings(deadline=None)
@given(epochs=STORY, parallelism=st.integers(1, 3), typed=st.booleans())
def test_every_epoch_and_every_difference_match_the_model(
    epochs: list[list[Change]], parallelism: int, typed: bool
) -> None:
    store = f"test-reader-model-{next(STORES)}"

    def build(env: StreamExecutionEnvironment) -> None:
        items = [item for epoch in epochs for item in (*epoch, EPOCH)]
        keyed = env.add_source(Script(items)).key_by(lambda change: change[0], Types.LONG() if typed else None)
        keyed.process(Applies()).uid("op").sink_to(Collect())

    run(build, store=store, parallelism=parallelism)
    reader = state_reader.open(f"memory://{store}")
    expected = list(models(epochs))
    for number, model in enumerate(expected, start=1):
        with reader.at(epoch=number) as snapshot:
            assert {name: shown(snapshot, name) for name in STATES} == {
                name: model_rows(model, name) for name in STATES
            }
    for number, (before, after) in enumerate(pairwise(expected), start=1):
        with reader.at(epoch=number) as then, reader.at(epoch=number + 1) as now:
            assert difference(then, now, "value") == changed(before["value"], after["value"])
            assert difference(then, now, "map") == changed(before["map"], after["map"])
    assert verify(f"memory://{store}").is_whole


def models(epochs: list[list[Change]]) -> Iterator[dict[str, dict[Any, Any]]]:
    model: dict[str, dict[Any, Any]] = {name: {} for name in STATES}
    for epoch in epochs:
        for change in epoch:
            applied(model, change)
        yield copy.deepcopy(model)


def model_rows(model: dict[str, dict[Any, Any]], name: str) -> dict[Any, Any]:
    if name != "list":
        return model[name]
    return {(key, index): value for key, values in model[name].items() for index, value in enumerate(values)}


def has_state(snapshot: state_reader.Snapshot, name: str) -> bool:
    return any(name in operator.states for operator in snapshot.operators)


def shown(snapshot: state_reader.Snapshot, name: str) -> dict[Any, Any]:
    rows = [tuple(row.values()) for row in snapshot.read("op", name)] if has_state(snapshot, name) else []
    return {(row[0] if len(row) == 2 else row[:2]): row[-1] for row in rows}


def changed(before: dict[Any, Any], after: dict[Any, Any]) -> dict[Any, Any]:
    places = before.keys() | after.keys()
    return {place: (before.get(place), after.get(place)) for place in places if before.get(place) != after.get(place)}


def difference(then: state_reader.Snapshot, now: state_reader.Snapshot, name: str) -> dict[Any, Any]:
    if not has_state(then, name) and not has_state(now, name):
        return {}
    rows = [tuple(row.values()) for row in then.diff(now, "op", name)]
    return {(row[1] if len(row) == 4 else row[1:3]): row[-2:] for row in rows}
