"""`millstream remove`: what goes, what is asked, and what is never removed."""

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
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def stored(folder: str, name: str = "clicks", status: str = "FINISHED") -> Path:
    store = open_store(folder)
    claim(store, name, job_id=f"id-of-{name}", now_ms=0)
    manifest = Manifest(
        job=name, job_id=f"id-of-{name}", epoch=1, parent=0, created_ms=1, run="a1", status=status,  # type: ignore[arg-type]
    )  # fmt: skip
    assert ManifestLog(store).commit(manifest)
    return Path(folder)


def removed(*names: str, unnamed: bool = False, answer: str | None = None) -> tuple[int, str]:
    screen = io.StringIO()
    code = remove_stores(
        names, None, unnamed=unnamed, confirms=answer is not None, screen=screen, answer=lambda: answer or ""
    )
    return code, screen.getvalue()


def test_a_person_is_shown_what_goes_and_asked(here: Path) -> None:
    folder = stored("jobs/clicks")
    code, shown = removed("jobs/clicks", answer="n")
    assert (code, folder.exists()) == (1, True) and "nothing was removed" in shown
    code, shown = removed("jobs/clicks", answer="y")
    assert (code, folder.exists()) == (0, False)
    assert shown.startswith("jobs/clicks  clicks, FINISHED, ") and shown.endswith("removed 1 store\n")
    assert folder.parent.exists()


def test_unnamed_ones_are_those_of_runs_without_a_store_that_nobody_runs(here: Path) -> None:
    left, running = stored(new_folder("Word Count!")), stored(new_folder("clicks"), status="RUNNING")
    named = stored(".millstream/impressions")
    log = attach_log(open_store(str(running)), "a1")
    assert removed(unnamed=True)[0] == 0
    assert (left.exists(), running.exists(), named.exists()) == (False, True, True)
    log.close()
    assert removed(unnamed=True)[0] == 0 and not running.exists()
    assert removed(unnamed=True) == (0, "no unnamed stores below .millstream of jobs that are not running\n")


def test_a_job_may_be_named_by_its_name_and_is_removed_with_its_store(here: Path) -> None:
    folder = stored(".millstream/a", "orders")
    assert removed("orders")[0] == 0 and not folder.exists()


def test_a_running_job_keeps_its_store_and_all_others_stay_too(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ended, running = stored("jobs/a"), stored("jobs/b", status="RUNNING")
    log = attach_log(open_store(str(running)), "a1")
    assert removed("jobs/a", "jobs/b")[0] == 2
    assert "job 'clicks' runs. Stop it first: millstream stop jobs/b" in capsys.readouterr().err
    assert ended.exists() and running.exists()
    log.close()


def test_a_store_whose_files_a_fork_uses_stays(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = stored("jobs/a")
    pin_epoch(open_store("jobs/a"), Pin("fork-b", 1, "fork", created_ms=0, by="file:///jobs/b"))
    assert removed("jobs/a")[0] == 2 and folder.exists()
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
def test_what_names_no_store_of_ours_is_refused(
    here: Path, capsys: pytest.CaptureFixture[str], names: tuple[str, ...], unnamed: bool, expected: str
) -> None:
    (here / "a").mkdir()
    assert removed(*names, unnamed=unnamed)[0] == 2
    assert expected in capsys.readouterr().err and (here / "a").exists()
