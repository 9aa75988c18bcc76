"""The master and the Python of a session: on one machine the program's own, on a cluster the executors'."""

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


def test_sparks_own_setting_of_the_master_takes_precedence() -> None:
    assert chosen_master("local[*]", {}) == "local[*]"
    assert chosen_master("local[*]", {"spark.master": "spark://a:7077"}) == "spark://a:7077"


def test_on_a_cluster_a_failed_task_is_retried_elsewhere_unless_configured_otherwise() -> None:
    chosen = session._failure_settings("spark://a:7077", {"spark.network.timeout": "9s"})
    assert chosen == session.EXCLUSION_SETTINGS
    for setting in ("spark.excludeOnFailure.enabled", "spark.task.maxFailures"):
        assert session._failure_settings("spark://a:7077", {setting: "1"}) == session.SILENCE_SETTINGS
    assert session._failure_settings("local[2]", {}) == {}


@pytest.mark.parametrize("master", ["local[2]", "local-cluster[2,1,512]"])
def test_on_one_machine_tasks_run_in_the_programs_python_despite_settings(
    master: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_USERS_PYTHON", "/opt/other/python")
    assert session._interpreter_of_tasks(master, {"spark.pyspark.python": "elsewhere"}) == sys.executable


def test_on_a_cluster_tasks_run_in_the_configured_python_and_never_the_drivers_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert session._interpreter_of_tasks("spark://a:7077", {}) == THIS_VERSION
    monkeypatch.setattr(session, "_USERS_PYTHON", "/opt/python")
    assert session._interpreter_of_tasks("yarn", {}) == "/opt/python"
    named = {"spark.pyspark.python": "./environment/bin/python"}
    assert session._interpreter_of_tasks("yarn", named) == "./environment/bin/python"


def application_killed() -> Any:
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
def test_an_invalid_master_is_distinguished_from_one_that_removes_the_application(
    tmp_path: Path, log_text: str, sentence: str
) -> None:
    log = tmp_path / "spark.log"
    log.write_text(log_text)
    with pytest.raises(PlatformError, match=sentence):
        session._start(SimpleNamespace(getOrCreate=application_killed), "spark://a:7077", log)


def test_workers_get_memory_settings_unless_set_by_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    for key in session.WORKER_ENVIRONMENT:
        monkeypatch.delenv(key, raising=False)
    assert session._worker_environment()["spark.executorEnv.MIMALLOC_ALLOW_THP"] == "0"
    monkeypatch.setenv("MIMALLOC_ALLOW_THP", "1")
    assert session._worker_environment()["spark.executorEnv.MIMALLOC_ALLOW_THP"] == "1"
