"""`millstream remove`: confirmation, what is removed, and what is never removed."""

from __future__ import annotations

import io
from pathlib import Path

import pytest

from millstream.checkpoint.job_record import claim
from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.checkpoint.pins import Pin, pin_epoch
from millstream.cli.removal import remove_stores
from millstream.jobs.launch.job_log import attach_log
from millstream.jobs.launch.launch import new_folder
from millstream.storage.store import open_store


@pytest.fixture
def working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def create_store(folder: str, name: str = "clicks", status: str = "FINISHED") -> Path:
    store = open_store(folder)
    claim(store, name, job_id=f"id-of-{name}", now_ms=0)
    manifest = Manifest(
        job=name, job_id=f"id-of-{name}", epoch=1, parent=0, created_ms=1, run="a1", status=status,  # type: ignore[arg-type]
    )  # fmt: skip
    assert ManifestLog(store).commit(manifest)
    return Path(folder)


def remove(*names: str, unnamed: bool = False, answer: str | None = None) -> tuple[int, str]:
    screen = io.StringIO()
    code = remove_stores(
        names, None, unnamed=unnamed, confirms=answer is not None, screen=screen, answer=lambda: answer or ""
    )
    return code, screen.getvalue()


def test_removal_lists_the_stores_and_requires_confirmation(working_folder: Path) -> None:
    folder = create_store("jobs/clicks")
    code, output = remove("jobs/clicks", answer="n")
    assert (code, folder.exists()) == (1, True) and "nothing was removed" in output
    code, output = remove("jobs/clicks", answer="y")
    assert (code, folder.exists()) == (0, False)
    assert output.startswith("jobs/clicks  clicks, FINISHED, ") and output.endswith("removed 1 store\n")
    assert folder.parent.exists()


def test_unnamed_stores_are_those_of_ended_runs_without_a_configured_store(working_folder: Path) -> None:
    unnamed_store, running = (
        create_store(new_folder("Word Count!")),
        create_store(new_folder("clicks"), status="RUNNING"),
    )
    named = create_store(".millstream/impressions")
    log = attach_log(open_store(str(running)), "a1")
    assert remove(unnamed=True)[0] == 0
    assert (unnamed_store.exists(), running.exists(), named.exists()) == (False, True, True)
    log.close()
    assert remove(unnamed=True)[0] == 0 and not running.exists()
    assert remove(unnamed=True) == (0, "no unnamed stores below .millstream of jobs that are not running\n")


def test_a_job_may_be_named_by_its_name_and_is_removed_with_its_store(working_folder: Path) -> None:
    folder = create_store(".millstream/a", "orders")
    assert remove("orders")[0] == 0 and not folder.exists()


def test_the_store_of_a_running_job_is_retained_and_so_are_all_others(
    working_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, running = create_store("jobs/a"), create_store("jobs/b", status="RUNNING")
    log = attach_log(open_store(str(running)), "a1")
    assert remove("jobs/a", "jobs/b")[0] == 2
    assert "job 'clicks' runs. Stop it first: millstream stop jobs/b" in capsys.readouterr().err
    assert ended.exists() and running.exists()
    log.close()


def test_a_store_whose_files_a_fork_uses_is_retained(working_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = create_store("jobs/a")
    pin_epoch(open_store("jobs/a"), Pin("fork-b", 1, "fork", created_ms=0, by="file:///jobs/b"))
    assert remove("jobs/a")[0] == 2 and folder.exists()
    assert "the fork in file:///jobs/b uses its files" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("names", "unnamed", "expected"),
    [
        ((), False, "found no job"),
        (("a",), True, "found both jobs and --unnamed"),
        (("s3://bucket/clicks",), False, "Remove it with the tools of its object store"),
        (("nobody",), False, "'nobody' is neither the store of a job nor a job below .millstream"),
    ],
)
def test_names_that_denote_no_removable_store_are_rejected(
    working_folder: Path, capsys: pytest.CaptureFixture[str], names: tuple[str, ...], unnamed: bool, expected: str
) -> None:
    (working_folder / "a").mkdir()
    assert remove(*names, unnamed=unnamed)[0] == 2
    assert expected in capsys.readouterr().err and (working_folder / "a").exists()
