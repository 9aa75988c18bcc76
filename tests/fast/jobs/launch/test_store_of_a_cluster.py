"""Where a job may have its store, by where its tasks run; and a store readable only by its owner. No JVM is started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from programs.running_totals import totals

from millstream.common import Configuration
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import ConfigurationError, PlatformError
from millstream.jobs.clock import SystemClock
from millstream.jobs.launch.launch import Launch
from millstream.jobs.snapshots.saving import save_epoch
from millstream.runtime.task.local import LocalRunner
from millstream.storage.store import open_store
from millstream.testing import Collect


def launch_job(store: str, runner: LocalRunner | None = None, **settings: str) -> None:
    """Runs to the end with a runner; on Spark, only the steps before a JVM is started."""
    env = StreamExecutionEnvironment.get_execution_environment()
    configuration = Configuration().set_string("millstream.store", store)
    for key, value in settings.items():
        configuration.set_string(f"millstream.{key.replace('_', '.')}", value)
    env.configure(configuration)
    totals(Collect(), end=20)(env)
    job = Launch(SystemClock(), runner).prepare(env._graph("job"), env._job_settings())
    job.start().result()


@pytest.fixture(autouse=True)
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A launch that gets as far as starting a JVM fails to locate one."""
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))


@pytest.mark.parametrize("master", ["spark://there:7077", "yarn", "k8s://https://there"])
def test_a_cluster_rejects_a_local_folder_unless_it_is_declared_as_shared(master: str, tmp_path: Path) -> None:
    store = tmp_path / "store"
    with pytest.raises(ConfigurationError, match=r"is a folder of this machine.*set millstream\.store\.shared to true"):
        launch_job(str(store), spark_master=master)
    assert not store.exists()
    with pytest.raises(PlatformError, match="no Java was found"):
        launch_job(str(store), spark_master=master, store_shared="true")


@pytest.mark.parametrize("master", ["spark://there:7077", "local-cluster[2,1,1024]", "local[2]"])
def test_spark_rejects_a_store_in_the_drivers_memory(master: str) -> None:
    with pytest.raises(ConfigurationError, match=r"is in this process's memory, but Spark's tasks .* other processes"):
        launch_job("memory://refused-on-spark", spark_master=master, store_shared="true")


@pytest.mark.parametrize("master", ["local[2]", "local", "local-cluster[2,1,1024]"])
def test_a_single_machine_accepts_a_local_folder(master: str, tmp_path: Path) -> None:
    with pytest.raises(PlatformError, match="no Java was found"):
        launch_job(str(tmp_path / "store"), spark_master=master)


def test_a_private_job_and_its_savepoints_are_readable_only_by_their_owner(tmp_path: Path) -> None:
    store = tmp_path / "store"
    before = os.umask(0o022)
    try:
        launch_job(str(store), LocalRunner(), store_private="true")
        saved = save_epoch(open_store(str(store)), 1, lambda: 0, to=str(tmp_path / "saved"), name="copy")
    finally:
        os.umask(before)
    for root in (store, Path(saved)):
        modes = {path: path.stat().st_mode & 0o777 for path in (root, *root.rglob("*"))}
        assert {mode for path, mode in modes.items() if path.is_dir()} == {0o700}
        assert {mode for path, mode in modes.items() if path.is_file()} == {0o600}, modes
