"""State with values upgraded by `upgrade=`: readers outside the job return what its tasks would, or raise with the
remedy.

Readers can apply a Python builtin; values that only a function of the program can read are rewritten by the job in
the following epochs.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from inputs.fresh_names import fresh_name

from millstream import query, state_reader
from millstream.cli.state import show_catalog, show_difference, show_rows
from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import (
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    ValueStateDescriptor,
)
from millstream.errors import StateSchemaError
from millstream.state.tables import state_table
from millstream.state_reader import SavepointBuilder
from millstream.state_reader.verifying import verify
from millstream.testing import EPOCH, Collect, Script, run

PAIR = Types.TUPLE([Types.STRING(), Types.LONG()])
KEYS = ["a", "b", "c"]


class Keeps(KeyedProcessFunction):
    """Stores the numbers of a key as a value, in a list, in a map, and the largest, all of one type."""

    def __init__(self, kind: Any, made: Callable[[int], Any], upgrade: Any = None) -> None:
        self.made = made
        self.descriptors: tuple[Any, ...] = (
            ValueStateDescriptor("last", kind, upgrade=upgrade),
            ListStateDescriptor("all", kind, upgrade=upgrade),
            MapStateDescriptor("named", Types.STRING(), kind, upgrade=upgrade),
            ReducingStateDescriptor("largest", max, kind, upgrade=upgrade),
        )
        for descriptor in self.descriptors:
            descriptor.set_queryable(descriptor.get_name())

    def open(self, runtime_context: Any) -> None:
        last, listed, named, largest = self.descriptors
        self.last = runtime_context.get_state(last)
        self.all = runtime_context.get_list_state(listed)
        self.named = runtime_context.get_map_state(named)
        self.largest = runtime_context.get_reducing_state(largest)

    def process_element(self, value: Any, ctx: Any) -> None:
        number = self.made(value[1])
        self.last.update(number)
        self.all.add(number)
        self.named.put("n", number)
        self.largest.add(number)


def upgraded_store(made: Callable[[int], Any], kind: Any, upgrade: Any, parallelism: int = 1) -> str:
    """A store whose newest epoch wrote only key c after the change; a and b were written before it."""
    store = fresh_name("upgraded")
    script = Script([("a", 1), ("b", 2), EPOCH, ("c", 3)], type_info=PAIR)
    for keeps, epochs in ((Keeps(Types.LONG(), int), 1), (Keeps(kind, made, upgrade), None)):

        def build(env: StreamExecutionEnvironment, keeps: Keeps = keeps) -> None:
            keyed = env.add_source(script).uid("in").key_by(lambda value: value[0], Types.STRING())
            keyed.process(keeps).uid("keep").sink_to(Collect()).uid("out")

        run(build, store=store, job_name="upgraded", parallelism=parallelism, epochs=epochs)
    return f"memory://{store}"


@pytest.fixture
def nothing_rewritten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job has not yet rewritten the values written before the change."""
    monkeypatch.setattr(state_table, "plan_rewriting", lambda refs, since: None)


def printed_json(show: Any, *args: Any, **options: Any) -> list[Any]:
    screen = io.StringIO()
    assert show(*args, **options, as_json=True, screen=screen) == 0
    return [json.loads(line) for line in screen.getvalue().splitlines()]


def half(number: int) -> float:
    return number / 2


def check_readers(address: str, one: Any, two: Any, three: Any) -> None:
    """All readers return these values for the keys a, b and c."""
    values = [one, two, three]
    view = query.open(address).newest()
    for name, held in {
        "last": values,
        "largest": values,
        "all": [[value] for value in values],
        "named": [{"n": value} for value in values],
    }.items():
        assert [view.get(name, key) for key in KEYS] == view.get_many(name, KEYS) == held, name
        values_read = view.get_columns(name, pa.array(KEYS)).column("value").to_pylist()
        assert values_read == ([list(each.items()) for each in held] if name == "named" else held)
        assert {type(value) for value in view.get_many("last", KEYS)} == {type(one)}
    scanned = view.scan("last").read_all()
    assert sorted(zip(scanned["key"].to_pylist(), scanned["value"].to_pylist(), strict=True)) == list(
        zip(KEYS, values, strict=True)
    )
    with state_reader.open(address).at() as snapshot:
        for state in ("last", "all", "named", "largest"):
            rows = snapshot.read("keep", state).to_arrow().read_all()
            assert sorted(zip(rows["key"].to_pylist(), rows["value"].to_pylist(), strict=True)) == list(
                zip(KEYS, values, strict=True)
            )
    shown = printed_json(show_rows, address, "keep", "last")
    assert {row["key"]: row["value"] for row in shown} == dict(zip(KEYS, map(_as_json, values), strict=True))
    [listed] = [row for row in printed_json(show_catalog, address) if row["name"] == "last"]
    assert str(rows.schema.field("value").type) in listed.values()
    assert verify(address).is_whole


def _as_json(value: Any) -> Any:
    return str(value) if isinstance(value, Decimal) else value


@pytest.mark.usefixtures("nothing_rewritten")
@pytest.mark.parametrize(
    ("upgrade", "kind"),
    [(float, Types.DOUBLE()), (str, Types.STRING()), ({Types.LONG(): float}, Types.DOUBLE()), (bool, Types.BOOLEAN())],
    ids=["float", "str", "by type", "bool"],
)
def test_readers_upgrade_untouched_keys_as_tasks_do_if_the_function_is_a_builtin(upgrade: Any, kind: Any) -> None:
    function = next(iter(upgrade.values())) if isinstance(upgrade, dict) else upgrade
    address = upgraded_store(function, kind, upgrade)
    check_readers(address, function(1), function(2), function(3))


@pytest.mark.parametrize("parallelism", [1, 3])
def test_readers_work_in_the_first_epoch_after_a_change_by_a_program_function(parallelism: int) -> None:
    address = upgraded_store(half, Types.DOUBLE(), half, parallelism)
    check_readers(address, 0.5, 1.0, 1.5)


@pytest.mark.usefixtures("nothing_rewritten")
def test_values_readable_only_by_a_program_function_are_rejected_until_the_job_has_rewritten_them() -> None:
    address = upgraded_store(half, Types.DOUBLE(), half)
    view = query.open(address).newest()
    message = "only the program's upgrade=half can read. The job rewrites some of them in every epoch"
    with pytest.raises(StateSchemaError, match=message):
        view.get("last", "a")
    with pytest.raises(StateSchemaError, match=message), state_reader.open(address).at() as snapshot:
        snapshot.read("keep", "last").to_arrow().read_all()
    assert verify(address).is_whole


@pytest.mark.usefixtures("nothing_rewritten")
def test_a_program_function_named_like_a_builtin_is_not_mistaken_for_it() -> None:
    def own(number: int) -> float:
        return -float(number)

    own.__qualname__ = "float"
    view = query.open(upgraded_store(own, Types.DOUBLE(), own)).newest()
    with pytest.raises(StateSchemaError, match="only the program's upgrade=float can read"):
        view.get("last", "a")


@pytest.mark.parametrize(
    ("upgrade", "rewrites", "changed"),
    [(float, False, {}), (float, True, {}), (half, True, {"a": (1, 0.5), "b": (2, 1.0)})],
    ids=["Python's", "Python's, rewritten", "the program's, rewritten"],
)
def test_epochs_before_and_after_a_change_can_be_compared(
    upgrade: Any, rewrites: bool, changed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not rewrites:
        monkeypatch.setattr(state_table, "plan_rewriting", lambda refs, since: None)
    address = upgraded_store(upgrade, Types.DOUBLE(), upgrade)
    rows = printed_json(show_difference, f"{address}@1", address, "keep", "last")
    assert {row["key"]: (row["before"], row["after"]) for row in rows if row["change"] == "changed"} == changed
    assert [(row["key"], row["after"]) for row in rows if row["change"] == "added"] == [("c", upgrade(3))]
    assert len(rows) == len(changed) + 1
    for state in ("all", "named", "largest"):
        assert len(printed_json(show_difference, f"{address}@1", address, "keep", state)) == len(changed) + 1


def test_a_fork_after_an_upgrade_is_read_like_the_job() -> None:
    address = upgraded_store(half, Types.DOUBLE(), half)
    folder = f"memory://{fresh_name('edited')}"
    with state_reader.open(address).at() as snapshot:
        SavepointBuilder.from_snapshot(snapshot).write(folder)
    with state_reader.open(folder).at() as copied:
        assert sorted(copied.read("keep", "last").to_arrow().read_all()["value"].to_pylist()) == [0.5, 1.0, 1.5]
