"""Temporary files in shared folders: always new, private to this user, and only our own are removed."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from millstream.jobs.launch.job_log import attach_log
from millstream.spark import session
from millstream.spark.private_folders import PrivateFolder, fresh_shuffle_folder
from millstream.storage.memory import MemoryStore
from millstream.storage.temporary_logs import fresh_log

HOST = "here"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def new_folder(memory: Path, host: str = HOST) -> PrivateFolder:
    folder = fresh_shuffle_folder(memory, host, free_bytes_min=0)
    assert folder is not None
    return folder


def orphaned_folder(memory: Path, host: str = HOST) -> Path:
    """The folder of a killed process."""
    program = (
        "import os, pathlib, sys\n"
        "from millstream.spark.private_folders import fresh_shuffle_folder\n"
        "print(fresh_shuffle_folder(pathlib.Path(sys.argv[1]), sys.argv[2], free_bytes_min=0).path, flush=True)\n"
        "os._exit(9)\n"
    )
    printed = subprocess.run(
        [sys.executable, "-c", program, str(memory), host], capture_output=True, text=True, check=False
    )
    path = Path(printed.stdout.strip())
    assert path.is_dir(), printed.stderr
    return path


def test_the_shuffle_folder_is_new_for_every_process_and_private(tmp_path: Path) -> None:
    one, other = new_folder(tmp_path), new_folder(tmp_path)
    assert one.path != other.path and mode(one.path) == mode(other.path) == 0o700
    one.close()
    assert not one.path.exists() and other.path.is_dir()
    other.close()


def test_an_existing_folder_named_after_this_process_is_not_reused(tmp_path: Path) -> None:
    existing = tmp_path / f"millstream-spark-{os.getpid()}"
    existing.mkdir(mode=0o777)
    folder = new_folder(tmp_path)
    assert folder.path != existing and not list(existing.iterdir())
    folder.close()


def test_the_shuffle_folder_of_a_killed_process_is_removed_by_the_next(tmp_path: Path) -> None:
    left = orphaned_folder(tmp_path)
    folder = new_folder(tmp_path)
    assert not left.exists()
    folder.close()


def test_the_shuffle_folder_of_another_machine_is_untouched(tmp_path: Path) -> None:
    foreign_folder = orphaned_folder(tmp_path, "there")
    folder = new_folder(tmp_path)
    assert foreign_folder.is_dir()
    folder.close()


def test_a_folder_in_use_is_untouched_whatever_its_process_is_called(tmp_path: Path) -> None:
    used = new_folder(tmp_path)
    (used.path / "block").write_bytes(b"1")
    folder = new_folder(tmp_path)
    assert (used.path / "block").exists()
    folder.close()
    used.close()


def test_a_link_among_the_shuffle_folders_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir(mode=0o700)
    (precious / "file").write_text("stays")
    link = tmp_path / f"millstream-shuffle-{HOST}-link"
    link.symlink_to(precious)
    new_folder(tmp_path).close()
    assert (precious / "file").read_text() == "stays" and link.is_symlink()


def test_a_temporary_log_is_a_new_private_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    victim = tmp_path / "victim"
    for name in ("millstream-ab.log", f"millstream-spark-{os.getpid()}.log"):
        (tmp_path / name).symlink_to(victim)
    log = attach_log(MemoryStore("temporary-log"), "ab")
    log.close()
    assert "run ab" in log.path.read_text() and mode(log.path) == 0o600
    assert mode(fresh_log("spark")) == 0o600 and not victim.exists()


@pytest.mark.parametrize(
    ("master", "address"),
    [("local[2]", "127.0.0.1"), ("local-cluster[2,1,1024]", "127.0.0.1"), ("spark://there:7077", None), ("yarn", None)],
)
def test_only_a_driver_whose_tasks_are_all_local_binds_to_the_loopback_address(
    master: str, address: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("SPARK_LOCAL_IP", raising=False)
    with session._address_for(master):
        assert os.environ.get("SPARK_LOCAL_IP") == address
    assert "SPARK_LOCAL_IP" not in os.environ


def test_a_forked_process_does_not_remove_the_folder_of_its_parent(tmp_path: Path) -> None:
    folder = new_folder(tmp_path)
    child = os.fork()
    if child == 0:
        folder.close()
        os._exit(0)
    os.waitpid(child, 0)
    assert folder.path.is_dir()
    folder.close()
    assert not folder.path.exists()


def test_no_memory_folder_is_used_where_the_environment_sets_sparks_local_folders(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", "/elsewhere")
    assert session._shuffle_dir("local[2]", {}) == {}


def test_a_cluster_uses_its_own_shuffle_folders() -> None:
    assert session._shuffle_dir("spark://there:7077", {}) == {}
    assert session._shuffle_dir("local[2]", {"spark.local.dir": "/elsewhere"}) == {}
