"""Reading a store runs nothing that is in it: every pickle there is a bomb, and every way of reading leaves it whole.

The job itself opens its own pickles, in its tasks; that is its owner's code. All others here are readers: the library,
the commands, the query view, and the driver before a task of it has run. Servers are asked in
`tests/services/test_query_bombs.py`.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from inputs.bombs import STATES, WINDOWS, Bomb, Name, armed, laid_out
from typer.testing import CliRunner

from millstream import query, state_reader
from millstream.checkpoint.manifest import ManifestLog, encode
from millstream.cli.main import app
from millstream.common import Configuration, Row, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ListStateDescriptor, MapStateDescriptor, ValueStateDescriptor
from millstream.errors import MillstreamError, PickledValueError, StoreDamagedError
from millstream.jobs.launch.launch import Launch
from millstream.runtime.exchange.key_classes import decode_key
from millstream.runtime.task.local import LocalRunner
from millstream.state.keys.canonical import canonical_bytes
from millstream.state.keys.canonical_decoding import ClassKey, decode
from millstream.state_reader.verifying import verify
from millstream.storage.local import LocalStore
from millstream.storage.names import manifest_name
from millstream.testing import EPOCH, Collect, ManualClock, Script, run

READ = 2


class Bombs:
    """A store that is full of bombs, and the marker that any of them leaves."""

    def __init__(self, folder: Path) -> None:
        self.marker, self.store = folder / "marker", folder / "store"
        laid_out(self.store, self.marker)

    @property
    def name(self) -> str:
        return f"{self.store}@{READ}"


@pytest.fixture(scope="module")
def bombs(tmp_path_factory: pytest.TempPathFactory) -> Bombs:
    return Bombs(tmp_path_factory.mktemp("bombs"))


@pytest.fixture(autouse=True)
def no_marker(bombs: Bombs) -> Any:
    yield
    if bombs.marker.exists():
        bombs.marker.unlink()  # each test answers for itself
        pytest.fail("a reader ran code from the store")


def outcome_of(act: Callable[[], Any]) -> Any:
    """What an act gives, or the refusal it comes to."""
    try:
        return act()
    except MillstreamError as error:
        return error


# --- the library ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_state_reader_gives_bytes_or_refuses(bombs: Bombs) -> None:
    with state_reader.open(bombs.name).at() as new, state_reader.open(f"{bombs.store}@1").at() as old:
        states = new.states()
        assert {"keeper", "lists", "ruled", "windows", "by name"} <= {state.uid for state in states}
        for state in states:
            assert new.read(state.uid, state.name, raw=True).to_pylist(), state
            rows = new.read(state.uid, state.name)
            for read in (rows.to_pylist, rows.to_pandas, lambda rows=rows: rows.to_arrow().read_all()):
                outcome_of(read)
            assert sum(batch.num_rows for batch in rows.batches())
            outcome_of(old.diff(new, state.uid, state.name).to_pylist)
            assert old.diff(new, state.uid, state.name).counts()


def test_pickled_values_are_refused_with_what_to_do(bombs: Bombs) -> None:
    with state_reader.open(bombs.name).at() as snapshot:
        with pytest.raises(PickledValueError, match=r"'value' of .*raw=True for the bytes.*unpickle=pickle"):
            snapshot.read("keeper", "value").to_pylist()
        row = snapshot.read("keeper", "row", key="a").to_pylist()[0]["value"]
        assert row["n"] == 3 and isinstance(row["inside"], bytes)
        seen: list[bytes] = []
        snapshot.read("keeper", "value", unpickle=seen.append).to_pylist()
        assert all(data.startswith(b"\x80") for data in seen) and len(seen) == 2


def test_verification_and_a_savepoint_of_a_snapshot_open_nothing(bombs: Bombs, tmp_path: Path) -> None:
    assert verify(str(bombs.store)).is_whole
    with state_reader.open(bombs.name).at() as snapshot:
        copy = state_reader.SavepointBuilder.from_snapshot(snapshot).write(str(tmp_path / "copy"))
    with state_reader.open(copy).at() as saved:
        assert saved.states()


def test_a_query_view_refuses_and_says_why(bombs: Bombs) -> None:
    job = query.open(str(bombs.store), allow_undeclared=True)
    pickled = {state.name or state.state: state.is_pickled for state in job.states() if state.operator == "keeper"}
    assert pickled == {name: name != "typed" for name in STATES}
    with job.at(epoch=READ) as view:
        for state in [*STATES, *(("keeper", name) for name in STATES)]:
            view.get_columns(state, pa.array(["a", "x"]))
            view.scan(state).read_all()
            if state not in ("typed", ("keeper", "typed")):
                with pytest.raises(PickledValueError, match="a pickle"):
                    view.get(state, "a")
                with pytest.raises(PickledValueError, match="a pickle"):
                    view.get_many(state, ["a", "b"])
        assert view.get("typed", "a") == 3
        with pytest.raises(PickledValueError, match="queryable state 'sessions'"):
            view.windows(WINDOWS, "a")
        view.scan(WINDOWS).read_all()
    for state in STATES:
        outcome_of(lambda state=state: job.series(state, "a"))


# --- commands -------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "arguments",
    [
        ("verify", "STORE"),
        ("verify", "STORE", "--json"),
        ("checkpoints", "STORE"),
        ("list", "FOLDER"),
        ("state", "ls", "STORE@2"),
        ("state", "ls", "STORE@2", "--json"),
        ("state", "show", "STORE@2", "keeper", "value"),
        ("state", "show", "STORE@2", "keeper", "value", "--key", "a", "--json"),
        ("state", "show", "STORE@2", "keeper", "map", "--csv"),
        ("state", "show", "STORE@2", "by name", "result"),
        ("state", "show", "STORE@2", "lists", "buffer"),
        ("state", "diff", "STORE@1", "STORE@2"),
        ("state", "diff", "STORE@1", "STORE@2", "keeper", "value"),
        ("savepoint", "STORE", "--to", "FOLDER/saved"),
        ("fork", "STORE@2", "--as", "other", "--store", "FOLDER/fork"),
    ],
    ids=" ".join,
)
def test_commands_open_nothing(arguments: tuple[str, ...], bombs: Bombs, tmp_path: Path) -> None:
    given = [part.replace("STORE", str(bombs.store)).replace("FOLDER", str(tmp_path)) for part in arguments]
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 0, result.output
    if arguments[:2] == ("state", "show") and "by name" not in arguments:
        assert "pickle of" in result.output and "not shown" in result.output


def test_keys_of_the_programs_classes_are_shown_and_not_imported(bombs: Bombs) -> None:
    with state_reader.open(bombs.name).at() as snapshot:
        keys = [row["key"] for row in snapshot.read("by name", "result", unpickle=len)]
        assert {str(key) for key in keys} == {"Name('a')", "Name('b')", "a"}
        for key in (Name("a"), ClassKey("inputs.bombs:Name", ("a",))):
            assert snapshot.read("by name", "result", key=key).to_pylist()[0]["value"] == {"f0": "a", "f1": 1}


def test_a_stored_name_of_a_class_imports_nothing(bombs: Bombs, tmp_path: Path, monkeypatch: Any) -> None:
    (tmp_path / "trap.py").write_text(
        "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass Key:\n    text: str\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    import trap  # type: ignore[import-not-found]

    data = canonical_bytes((trap.Key("x"), 1))
    del sys.modules["trap"]
    (tmp_path / "trap.py").write_text(f"open({str(bombs.marker)!r}, 'w').close()")
    assert decode(data) == (ClassKey("trap:Key", ("x",)), 1)
    assert canonical_bytes(decode(data)) == data, "a key that was shown can be asked for"
    assert "trap" not in sys.modules


def test_a_task_makes_keys_of_their_own_class_again() -> None:
    assert decode_key(canonical_bytes((Name("a"), 1))) == (Name("a"), 1)


class ReadsBack(KeyedProcessFunction):
    """Tells what it holds, then holds what comes, with a part without a type in every place."""

    def open(self, runtime_context: Any) -> None:
        self.row = runtime_context.get_state(ValueStateDescriptor("row", ROW))
        self.list = runtime_context.get_list_state(ListStateDescriptor("list", Types.LIST(ANY)))
        self.map = runtime_context.get_map_state(MapStateDescriptor("map", Types.TUPLE([Types.LONG(), ANY]), ROW))

    def process_element(self, value: Any, ctx: Any) -> Any:
        yield repr((ctx.get_current_key(), self.row.value(), list(self.list), sorted(self.map.items(), key=repr)))
        self.row.update(value)
        self.list.add([value[1]])
        self.map.put((value[0], frozenset([1])), value)
        ctx.timer_service().register_event_time_timer(7)

    def on_timer(self, timestamp: int, ctx: Any) -> Any:
        yield repr(("timer", ctx.get_current_key()))


ANY = Types.PICKLED_BYTE_ARRAY()
ROW = Types.ROW_NAMED(["n", "any"], [Types.LONG(), ANY])


def test_tasks_read_back_what_they_stored_without_a_type() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        rows = env.add_source(Script([(1, {"a"}), EPOCH, (1, {"b"}), EPOCH], type_info=ROW))
        keyed = rows.map(lambda row: row, ROW).key_by(lambda row: Name(str(row[0])))
        keyed.process(ReadsBack(), Types.STRING()).sink_to(out)

    out = Collect()
    run(build, parallelism=2)
    one = Row(n=1, any={"a"})
    assert out.values == [
        repr((Name("1"), None, [], [])),
        repr((Name("1"), one, [[{"a"}]], [((1, frozenset([1])), one)])),
        repr(("timer", Name("1"))),
    ]


# --- the driver, before a task runs -----------------------------------------------------------------------------------


@pytest.mark.parametrize("drops", [False, True])
def test_planning_a_restore_opens_nothing(drops: bool, bombs: Bombs, tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    settings = Configuration().set_string("execution.state-recovery.path", bombs.name)
    settings.set_boolean("execution.state-recovery.ignore-unclaimed-state", drops)
    env.configure(settings)
    if drops:
        keyed = env.from_collection([("a", 1)]).key_by(lambda pair: pair[0])
        keyed.reduce(lambda a, b: b).uid("by name").sink_to(Collect())
    else:
        armed(bombs.marker)(env)
    launch = Launch(ManualClock(), LocalRunner(), LocalStore(tmp_path / "restored", fsync=False))
    launch.prepare(env._graph("bombs"), env._job_settings())
    assert ManifestLog(LocalStore(tmp_path / "restored", fsync=False)).epochs() or drops


# --- what Arrow itself would do ---------------------------------------------------------------------------------------


def test_arrow_opens_no_pickle_that_a_schema_carries(bombs: Bombs) -> None:
    # Once upon a time Arrow kept types that were defined in Python as pickles in the metadata of a field.
    bomb = pickle.dumps(Bomb(bombs.marker, 1))
    name = b"arrow.py_extension_type"
    marked = pa.field("value", pa.int64(), metadata={"ARROW:extension:name": name, "ARROW:extension:metadata": bomb})
    batch = pa.RecordBatch.from_arrays([pa.array([1])], schema=pa.schema([marked]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, batch.schema) as writer:
        writer.write_batch(batch)
    assert pa.ipc.open_file(sink.getvalue()).read_all().column("value").to_pylist() == [1]


# --- types ------------------------------------------------------------------------------------------------------------


def test_a_segment_that_is_not_of_the_type_that_the_manifest_tells_is_damaged(bombs: Bombs, tmp_path: Path) -> None:
    def claims(written: str) -> Path:
        folder = tmp_path / written
        store = LocalStore(laid_out(folder, bombs.marker, epochs=1), fsync=False)
        manifest = ManifestLog(store).read(1)
        states: Any = manifest.states
        states["keeper"]["subtasks"]["0"]["schemas"]["value"][0]["type"] = written
        states["keeper"]["subtasks"]["0"]["queryable"]["value"]["value"] = written
        store.put(manifest_name(1), encode(replace(manifest, states=states)))
        return folder

    for written in ("LONG", "BYTES"):  # a pickle is bytes too, but not those that were declared
        name = f"{claims(written)}@1"
        with pytest.raises(StoreDamagedError, match="a segment whose values are pickles, where the manifest has"):
            state_reader.open(name).at().read("keeper", "value").to_pylist()
        with query.open(name.removesuffix("@1")).at(epoch=1) as view:
            assert view.get("typed", "a") == 1
            with pytest.raises(StoreDamagedError, match="whose values are pickles"):
                view.get("value", "a")
        assert "where the manifest has" in verify(name).text()
