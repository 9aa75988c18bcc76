"""Which master and which Python a session gets: on one machine the program's own, on a cluster the executors'."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from millstream.errors import PlatformError
from millstream.spark import session
from millstream.spark.session import chosen_master

THIS_VERSION = f"python{sys.version_info[0]}.{sys.version_info[1]}"


@pytest.fixture(autouse=True)
def _not_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)
    monkeypatch.setattr(session, "_USERS_PYTHON", None)


def test_sparks_own_name_for_the_master_wins() -> None:
    assert chosen_master("local[*]", {}) == "local[*]"
    assert chosen_master("local[*]", {"spark.master": "spark://a:7077"}) == "spark://a:7077"


def test_on_a_cluster_a_task_that_fails_is_tried_elsewhere_unless_somebody_says_something_of_that() -> None:
    chosen = session._failure_settings("spark://a:7077", {"spark.network.timeout": "9s"})
    assert chosen == session.EXCLUSION_SETTINGS
    for said in ("spark.excludeOnFailure.enabled", "spark.task.maxFailures"):
        assert session._failure_settings("spark://a:7077", {said: "1"}) == session.SILENCE_SETTINGS
    assert session._failure_settings("local[2]", {}) == {}


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,512]"])
def test_on_one_machine_tasks_run_in_the_programs_python_whatever_is_set(
    master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_USERS_PYTHON", "/opt/other/python")
    assert session._interpreter_of_tasks(master, {"spark.pyspark.python": "elsewhere"}) == sys.executable


def test_on_a_cluster_it_is_the_one_that_is_named_and_never_the_drivers_path(monkeypatch: pytest.MonkeyPatch) -> None:
    assert session._interpreter_of_tasks("spark://a:7077", {}) == THIS_VERSION
    monkeypatch.setattr(session, "_USERS_PYTHON", "/opt/python")
    assert session._interpreter_of_tasks("yarn", {}) == "/opt/python"
    named = {"spark.pyspark.python": "./environment/bin/python"}
    assert session._interpreter_of_tasks("yarn", named) == "./environment/bin/python"


def gives_up() -> Any:
    raise RuntimeError("Cannot call methods on a stopped SparkContext.")


@pytest.mark.parametrize(
    ("log_text", "sentence"),
    [
        (
            "Application has been killed. Reason: All masters are unresponsive! Giving up.",
            "the process listening at master",
        ),
        ("Application has been killed. Reason: Master removed our application: FAILED", "could not be started"),
    ],
)
def test_a_master_that_is_none_is_told_from_one_that_gives_the_application_up(
    tmp_path: Path, log_text: str, sentence: str
) -> None:
    log = tmp_path / "spark.log"
    log.write_text(log_text)
    with pytest.raises(PlatformError, match=sentence):
        session._start(SimpleNamespace(getOrCreate=gives_up), "spark://a:7077", log)


def test_workers_are_told_how_to_keep_memory_unless_the_user_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in session.WORKER_ENVIRONMENT:
        monkeypatch.delenv(key, raising=False)
    assert session._worker_environment()["spark.executorEnv.MIMALLOC_ALLOW_THP"] == "0"
    monkeypatch.setenv("MIMALLOC_ALLOW_THP", "1")
    assert session._worker_environment()["spark.executorEnv.MIMALLOC_ALLOW_THP"] == "1"
