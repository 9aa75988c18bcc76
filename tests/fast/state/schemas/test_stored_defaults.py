"""Stored defaults of new fields: typed data, readable by every process. Defaults pickled by an older version are
unpickled by tasks only, and stored as data from then on.
"""

from __future__ import annotations

import base64
import pickle
import zipfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from inputs.bombs import Bomb
from typer.testing import CliRunner

from millstream import query, state_reader
from millstream.checkpoint.manifest import ManifestLog, encode
from millstream.cli.main import app
from millstream.errors import PickledValueError, StoreDamagedError
from millstream.state.schemas.schema_history import history_from_json, history_to_json
from millstream.state.schemas.stored_defaults import StoredDefault, defaults_to_json
from millstream.state_reader.verifying import verify
from millstream.storage.local import LocalStore
from millstream.storage.memory import MemoryStore
from millstream.storage.names import manifest_name
from millstream.testing import Collect, run

COMPATIBILITY = Path(__file__).resolve().parents[3] / "compatibility"


def old_store(folder: Path) -> Path:
    """A store whose defaults were pickled by an older version."""
    with zipfile.ZipFile(COMPATIBILITY / "defaults-1.zip") as archive:
        archive.extractall(folder)
    return folder


def with_defaults(folder: Path, defaults: Any) -> None:
    """Replaces the defaults of the newest manifest."""
    store = LocalStore(folder, fsync=False)
    manifest = ManifestLog(store).newest()
    assert manifest is not None
    states: Any = manifest.states
    states["visits"]["subtasks"]["0"]["schemas"]["visit"][1]["defaults"] = defaults
    store.put(manifest_name(manifest.epoch), encode(replace(manifest, states=states)))


def test_pickled_defaults_of_an_older_version_are_not_opened_by_readers(tmp_path: Path) -> None:
    store, marker = old_store(tmp_path / "old"), tmp_path / "marker"
    bomb = pickle.dumps({"count": Bomb(marker, 7), "notes": Bomb(marker, 8)})
    with_defaults(store, base64.b64encode(bomb).decode())
    assert verify(str(store)).is_whole
    for arguments in (["state", "ls", str(store)], ["checkpoints", str(store)], ["list", str(tmp_path)]):
        assert CliRunner().invoke(app, arguments).exit_code == 0
    shown = CliRunner().invoke(app, ["state", "show", str(store), "visits", "visit"])
    assert shown.exit_code == 2 and "Default not shown" in shown.output
    with state_reader.open(str(store)).at() as snapshot:
        with pytest.raises(PickledValueError, match="'visit' of 'count visits' has values from before epoch 4"):
            snapshot.read("visits", "visit").to_pylist()
        with pytest.raises(PickledValueError, match="Default not shown"):
            snapshot.read("visits", "visit", raw=True).to_pylist()
    job = query.open(str(store), allow_undeclared=True)
    with pytest.raises(PickledValueError, match="Default not shown"):
        job.newest().get_columns(("visits", "visit"), pa.array(["b"]))
    assert not marker.exists()


def test_a_task_opens_pickled_defaults_and_stores_them_as_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(COMPATIBILITY))
    import defaults_program  # type: ignore[import-not-found, unused-ignore]

    old, store, out = old_store(tmp_path / "old"), MemoryStore("test-old-defaults"), Collect()
    for file in filter(Path.is_file, old.rglob("*")):
        store.put(str(file.relative_to(old)), file.read_bytes())
    run(lambda env: defaults_program.build(env, out, 2), store="test-old-defaults", epochs=6, job_name="defaults")
    assert out.values == ["('b', (2, 7, {'from': 'before'}))", "('c', (3, 7, {'from': 'before'}))"]
    with state_reader.open(store.url).at() as snapshot:
        rows = {row["key"]: row["value"] for row in snapshot.read("visits", "visit")}
    assert (rows["d"]["last"], rows["d"]["count"]) == (4, 7)
    assert pickle.loads(rows["d"]["notes"]) == {"from": "before"}  # without a type, a reader sees bytes
    manifest = ManifestLog(store).newest()
    assert manifest is not None
    states: Any = manifest.states
    [last] = states["visits"]["subtasks"]["0"]["schemas"]["visit"]
    assert set(last["defaults"]) == {"count", "notes"}
    history = history_from_json([last], "state")
    assert history_to_json(history) == [last]


def test_readers_show_defaults_stored_as_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(COMPATIBILITY))
    import defaults_program

    for version, epochs in ((1, 2), (2, 4)):
        build = partial(defaults_program.build, out=Collect(), version=version)
        run(build, store="test-data-defaults", epochs=epochs, job_name="defaults")
    with state_reader.open("memory://test-data-defaults").at() as snapshot:
        rows = {row["key"]: row["value"] for row in snapshot.read("visits", "visit")}
    assert {key: (row["last"], row["count"]) for key, row in rows.items()} == {
        "a": (5, 1),
        "b": (2, 7),
        "c": (3, 7),
        "d": (4, 7),
        "e": (6, 1),
    }
    assert pickle.loads(rows["b"]["notes"]) == {"from": "before"}
    view = query.open("memory://test-data-defaults", allow_undeclared=True).newest()
    assert view.get_columns(("visits", "visit"), pa.array(["c"])).column("value").to_pylist()[0]["count"] == 7


def ipc(rows: list[int]) -> str:
    sink = pa.BufferOutputStream()
    batch = pa.RecordBatch.from_pydict({"default": pa.array(rows, pa.int64())})
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        if rows:
            writer.write_batch(batch)
    return base64.b64encode(sink.getvalue().to_pybytes()).decode()


@pytest.mark.parametrize(
    "defaults",
    [
        *({"count": default} for default in ("AAAA", "", 7, ipc([]), ipc([1, 2]))),
        ["x"],
        "no base64!",
        5,
    ],
)
def test_invalid_defaults_are_reported_as_damage(defaults: Any, tmp_path: Path) -> None:
    store = old_store(tmp_path / "old")
    with_defaults(store, defaults)
    with pytest.raises(StoreDamagedError, match="'visit' of 'count visits' lists its types as"):
        state_reader.open(str(store)).at().states()


def test_a_default_whose_type_differs_from_its_field_is_reported_as_damage(tmp_path: Path) -> None:
    store = old_store(tmp_path / "old")
    with_defaults(store, defaults_to_json({"count": StoredDefault.of(pa.array(["text"]))}))
    with pytest.raises(StoreDamagedError, match="default of field 'count' is stored as string, where the field is"):
        state_reader.open(str(store)).at().read("visits", "visit").to_pylist()
