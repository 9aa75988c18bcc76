"""States that are first used while records are processed, and whose type changes between two runs of a program.

Each subtask registers a state when a record first uses it, so one subtask may have upgraded, rewritten and dropped
what another still has in the older type. Values read never depend on that, nor on the parallelism.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from programs.versions import Build, Story

from millstream import state_reader
from millstream.checkpoint.manifest import ManifestLog
from millstream.common import Duration, Types
from millstream.datastream import ProcessWindowFunction
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import StateSerializer, StateTtlConfig, ValueStateDescriptor
from millstream.datastream.window import CountTrigger, GlobalWindows
from millstream.errors import JobFailedError
from millstream.state.schemas.schema_history import History
from millstream.state.schemas.state_schemas import last_schemas
from millstream.state.stored.accounts import accounts_of, tables_of, to_json
from millstream.state_reader.verifying import verify
from millstream.storage.memory import MemoryStore
from millstream.testing import EPOCH

INT, LONG, STRING = Types.INT(), Types.LONG(), Types.STRING()
# At parallelism 2, the key "a" belongs to subtask 1 and "e" to subtask 0.


class LateState(KeyedProcessFunction):
    """Uses its state only on request of a record: `(key, item)` emits the stored value and stores `item`."""

    def __init__(self, descriptor: Any) -> None:
        self._descriptor = descriptor

    def open(self, runtime_context: Any) -> None:
        self._context = runtime_context

    def process_element(self, value: Any, ctx: Any) -> Any:
        key, item = value
        if item is None:
            return
        state = self._context.get_state(self._descriptor)
        yield key, state.value()
        state.update(item)


def late_state(descriptor: Any) -> Build:
    return lambda stream, out: (
        stream.key_by(lambda value: value[0], Types.STRING())
        .process(LateState(descriptor))
        .name("late")
        .uid("keep")
        .sink_to(out)
        .uid("out")
    )


def repeated(key: str, item: Any, epochs: int = 8) -> list[Any]:
    """A record in each of some epochs; after eight, a subtask has merged all its rows into one segment."""
    return [(key, item), EPOCH] * epochs


def stored_values(story: Story) -> dict[str, Any]:
    """The state as other processes read it."""
    with state_reader.open(f"memory://{story.store}").at() as snapshot:
        table = snapshot.read("keep", "total").to_arrow().read_all()
    return dict(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))


class Forward(StateSerializer[str]):
    """Encodes strings unchanged."""

    version = 1

    def serialize(self, value: str) -> bytes:
        return value.encode()

    def deserialize(self, data: bytes, version: int) -> str:
        return data.decode() if version == 1 else data[::-1].decode()


class Backward(Forward):
    """Encodes strings reversed."""

    version = 2

    def serialize(self, value: str) -> bytes:
        return value[::-1].encode()


def total(kind: Any, **more: Any) -> Build:
    return late_state(ValueStateDescriptor("total", kind, **more))


def expiring() -> Build:
    descriptor = ValueStateDescriptor("total", LONG)
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_millis(50)).build())
    return late_state(descriptor)


def serialized(serializer: Any) -> Build:
    return total(Types.PICKLED_BYTE_ARRAY(), serializer=serializer)


@pytest.mark.parametrize("first, second", [("a", "e"), ("e", "a")], ids=["subtask 1 first", "subtask 0 first"])
@pytest.mark.parametrize("epochs", [1, 8], ids=["not compacted", "compacted"])
def test_a_type_changed_by_one_subtask_is_read_by_all_after_a_rescale(first: str, second: str, epochs: int) -> None:
    story = Story([("a", 1), ("e", 2)], repeated(first, 3, epochs=epochs), [("a", 4), ("e", 5)])
    held = {"a": 1, "e": 2, first: 3}
    story.act(total(INT), 2)
    story.act(total(LONG), 2)
    assert stored_values(story) == held
    assert sorted(story.act(total(LONG), 1, is_last=True)) == sorted(held.items())


@pytest.mark.parametrize("first, second", [("a", "e"), ("e", "a")], ids=["subtask 1 first", "subtask 0 first"])
def test_values_of_each_serializer_version_are_read_by_that_version_after_a_rescale(first: str, second: str) -> None:
    story = Story(
        [("a", "one"), ("e", "one")], repeated(first, "two"), [(first, "two"), (second, "two")], [("a", ""), ("e", "")]
    )
    story.act(serialized(Forward()), 2)
    story.act(serialized(Backward()), 2)
    assert sorted(story.act(serialized(Backward()), 3)) == sorted([(first, "two"), (second, "one")])
    assert sorted(story.act(serialized(Backward()), 1, is_last=True)) == [("a", "two"), ("e", "two")]


def test_state_is_queryable_while_one_subtask_has_not_used_it() -> None:
    story = Story([("a", 1), ("e", 2)], repeated("a", 3))
    story.act(total(INT), 2)
    story.act(total(LONG), 2, is_last=True)
    assert stored_values(story) == {"a": 3, "e": 2}
    assert verify(f"memory://{story.store}").problems == ()


def test_a_ttl_begins_and_ends_for_all_subtasks_at_once() -> None:
    story = Story([("a", 1), ("e", 2)], [("a", 3)], [("a", 4), ("e", 5)], [("a", 6)], [("a", 7), ("e", 8)])
    story.act(total(LONG), 2)
    story.act(expiring(), 2)
    story.clock.advance(100)  # "e", whose subtask has not used the state, expires like "a"
    assert sorted(story.act(expiring(), 1)) == [("a", None), ("e", None)]
    story.clock.advance(100)
    assert story.act(total(LONG), 2) == [("a", None)]
    assert sorted(story.act(total(LONG), 1, is_last=True)) == [("a", 6), ("e", None)]


class Visits(ProcessWindowFunction[Any, Any, Any, Any]):
    """Counts the windows of a key; only a window with records uses the state."""

    def __init__(self, kind: Any) -> None:
        self._descriptor = ValueStateDescriptor("total", kind)

    def process(self, key: str, context: Any, elements: Any) -> Any:
        state = context.global_state().get_state(self._descriptor)
        yield key, state.value()
        state.update((state.value() or 0) + 1)


def visits(kind: Any) -> Build:
    return lambda stream, out: (
        stream.key_by(lambda value: value[0], STRING)
        .window(GlobalWindows.create())
        .trigger(CountTrigger.of(1))
        .process(Visits(kind), Types.PICKLED_BYTE_ARRAY())
        .uid("keep")
        .sink_to(out)
        .uid("out")
    )


def test_key_state_of_a_window_function_changes_its_type_before_a_rescale() -> None:
    story = Story([("a", 1), ("e", 2)], repeated("a", 3), [("a", 4), ("e", 5)])
    story.act(visits(INT), 2)
    story.act(visits(LONG), 2)
    assert sorted(story.act(visits(LONG), 1, is_last=True)) == [("a", 9), ("e", 1)]


# --- stores of older versions -----------------------------------------------------------------------------------


def with_histories(story: Story, damaged: Callable[[History], History]) -> None:
    """Commits the newest epoch again, with the history that an older version would have stored."""
    log = ManifestLog(MemoryStore(story.store))
    newest = log.newest()
    assert newest is not None
    account = accounts_of(newest)["keep"]
    subtasks = {}
    histories = last_schemas(tables_of(account.subtasks))
    for subtask, saved_subtask in account.subtasks.items():
        assert saved_subtask.tables is not None
        schemas = {name: damaged(histories[name]) for name in saved_subtask.tables.schemas}
        subtasks[subtask] = replace(saved_subtask, tables=replace(saved_subtask.tables, schemas=schemas))
    states = {**newest.states, "keep": to_json(replace(account, subtasks=subtasks))}
    assert log.commit(replace(newest, epoch=newest.epoch + 1, parent=newest.epoch, states=states))


@pytest.mark.parametrize(
    "programs, items",
    [((total(INT), total(LONG)), (1, 2)), ((serialized(Forward()), serialized(Backward())), ("one", "two"))],
    ids=["a type", "a serializer"],
)
@pytest.mark.parametrize("damage", ["older entries lost", "changed later than it was"])
def test_histories_joined_wrongly_by_an_older_version_are_repaired_from_the_files(
    programs: tuple[Build, Build], items: tuple[Any, Any], damage: str
) -> None:
    first, second = items
    story = Story([("a", first), ("e", first)], [("a", second), EPOCH, ("a", second)], [("a", first), ("e", first)])
    story.act(programs[0], 2)
    story.act(programs[1], 2)
    if damage == "older entries lost":
        with_histories(story, lambda history: history[1:])
    else:
        with_histories(story, lambda history: (history[0], replace(history[1], since=history[1].since + 10)))
    if isinstance(first, int):
        assert stored_values(story) == {"a": second, "e": first}
    assert sorted(story.act(programs[1], 1, is_last=True)) == [("a", second), ("e", first)]


def test_an_irreparable_history_is_reported_with_the_content_of_the_files() -> None:
    story = Story([("a", 1), ("e", 2)], [("a", "x")], [("a", "x"), ("e", "x")])
    story.act(total(INT), 2)
    story.act(total(STRING, upgrade={INT: str}), 2)
    with_histories(story, lambda history: (replace(history[-1], upgrade=None),))
    with pytest.raises(JobFailedError, match=r"state 'total' of 'late'.* was saved as int32, is now string"):
        story.act(total(STRING), 1, is_last=True)
