"""Executors with relevant differences from the driver are rejected, by name, with both versions and advice."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from importlib import resources
from types import SimpleNamespace
from typing import Any

import pyarrow
import pytest

from millstream.errors import ConfigurationError, PlatformError
from millstream.spark import executor_checks
from millstream.spark.executor_checks import (
    VERSIONS_VARIABLE,
    DriverFacts,
    check_executors,
    check_this_executor,
    clock_warnings,
    survey_error,
)
from millstream.spark.executor_probe import probe
from millstream.spark.executor_survey import ExecutorReport, last_task_failure

FACTS = DriverFacts("3.11", "4.3.0", "26.0.1", "millstream-abc", "linux-x86_64 glibc", "spark://m:1", "py", "s3://b/a")
GOOD = ExecutorReport(
    place="executor 2 on 10.0.0.7",
    python="3.11",
    interpreter="/usr/bin/python3.11",
    platform="linux-x86_64 glibc",
    pyspark="4.3.0",
    pyarrow="26.0.1",
    millstream="/app/2/millstream-abc/millstream/__init__.py",
    missing=(),
    clock_ahead_ms=0,
    store_refusal="",
    disk_refusal="",
)


def test_executors_like_the_driver_are_accepted() -> None:
    check_executors([GOOD, replace(GOOD, pyarrow="26.4.0")], FACTS)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"python": "3.12"},
            r"executor 2 on 10\.0\.0\.7 runs Python 3\.12 .*the driver 3\.11\. Set spark\.pyspark\.py",
        ),
        (
            {"pyarrow": ""},
            r"has no pyarrow .*the driver has 26\.0\.1\. .*pip install pyarrow==26\.0\.1.*millstream pack",
        ),
        ({"pyarrow": "18.1.0"}, r"has pyarrow 18\.1\.0, the driver 26\.0\.1"),
        ({"pyspark": "4.1.0"}, r"runs Spark 4\.1\.0, the driver PySpark 4\.3\.0"),
        ({"millstream": ""}, r"was sent the driver's millstream, and cannot import it"),
        ({"millstream": "/opt/millstream/__init__.py"}, r"imports another one, from /opt/millstream/__init__\.py"),
        ({"missing": ("confluent_kafka", "redis")}, r"no package confluent-kafka \(nor redis\).*millstream pack"),
        ({"disk_refusal": "OSError: No space left on device"}, r"temporary folder \(OSError: No space"),
    ],
)
def test_an_unfit_executor_is_reported_with_actual_and_expected_values(change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(PlatformError, match=sentence):
        check_executors([GOOD, replace(GOOD, **change)], FACTS)


def test_a_store_unreachable_from_an_executor_is_reported_with_the_executor() -> None:
    with pytest.raises(
        ConfigurationError, match=r"store s3://b/a is reachable from the driver, but not from executor 2"
    ):
        check_executors([replace(GOOD, store_refusal="StoreAwayError: nobody answers")], FACTS)


def test_a_store_that_rejects_an_executor_for_its_clock_is_reported_with_the_clock() -> None:
    refused = replace(GOOD, store_refusal="StoreError: RequestTimeTooSkewed", clock_ahead_ms=-3 * 3_600_000)
    with pytest.raises(ConfigurationError, match=r"RequestTimeTooSkewed\. Its clock is 3 h 0 min behind the driver's"):
        check_executors([refused], FACTS)


@pytest.mark.parametrize(
    ("ahead_ms", "words"), [(2 * 3_600_000 + 60_000, "2 h 1 min ahead of"), (-300_000, "5 min behind")]
)
def test_a_large_clock_difference_is_reported_with_its_size(ahead_ms: int, words: str) -> None:
    [warning] = clock_warnings([GOOD, replace(GOOD, clock_ahead_ms=ahead_ms)])
    assert f"the clock of executor 2 on 10.0.0.7 is {words} the driver's" in warning


def test_a_failure_before_the_survey_function_is_reported_with_advice() -> None:
    conditions = json.loads(resources.files("pyspark.errors").joinpath("error-conditions.json").read_text())
    text = "".join(conditions["PYTHON_VERSION_MISMATCH"]["message"])
    text = text.replace("<worker_version>", "3.12").replace("<driver_version>", "3.11")
    error = survey_error(f"Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 2): {text}", FACTS)
    assert "executor 2 on 10.0.0.7 runs Python 3.12" in str(error)
    stopped = survey_error("Job 0 cancelled because SparkContext was shut down", FACTS)
    assert "master spark://m:1 has ended the application" in str(stopped)
    lost = "Task 1 failed 4 times, most recent failure: Lost task 1.3 in stage 0.0 (TID 8) (10.0.0.7 executor 2): "
    unable = (
        f"{lost}org.apache.spark.SparkException: \nError from python worker:\n  Traceback (most recent call last):\n"
    )
    unable += (
        "    File 'pyspark/__init__.py', line 58\n  SyntaxError: invalid syntax\nPYTHONPATH was:\n  /spark\n\tat x\n"
    )
    error = survey_error(unable, FACTS)
    assert "executor 2 on 10.0.0.7 cannot start its Python (py): SyntaxError: invalid syntax. Set spark.pysp" in str(
        error
    )
    error = survey_error(f"{lost}java.io.IOException: No space left on device\n\nDriver stacktrace:", FACTS)
    assert "executor 2): java.io.IOException: No space left on device. See their logs" in str(error)
    assert "surveyed: something else. See their logs" in str(survey_error("something else", FACTS))


class Notes:
    """Spark's task list: at first empty, then with a killed task, then with a failed one."""

    def __init__(self, message: str) -> None:
        killed, failed = (self.task(status, message) for status in ("KILLED", "FAILED"))
        self.answers = [[], [killed], [killed, failed]]

    def task(self, status: str, message: str) -> Any:
        error = SimpleNamespace(isDefined=lambda: True, get=lambda: message)
        return SimpleNamespace(
            status=lambda: status, host=lambda: "10.0.0.7", executorId=lambda: "2", errorMessage=lambda: error
        )

    def taskList(self, stage: int, attempt: int, most: int) -> Any:  # noqa: N802
        left = self.answers.pop(0)
        return SimpleNamespace(
            iterator=lambda: SimpleNamespace(hasNext=lambda: bool(left), next=lambda: left.pop(0)),
        )


def noting(message: str) -> Any:
    """A Spark context whose newest job failed with this message."""
    notes = Notes(message)
    tracker = SimpleNamespace(
        getJobIdsForGroup=lambda group: [3, 5], getJobInfo=lambda job: SimpleNamespace(stageIds=[job])
    )
    application = SimpleNamespace(statusStore=lambda: notes)
    return SimpleNamespace(statusTracker=lambda: tracker, _jsc=SimpleNamespace(sc=lambda: application))


def test_the_executor_with_another_python_is_read_from_sparks_delayed_task_list() -> None:
    raised = "PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in "
    raised += "driver: 3.11, PySpark cannot run with different minor versions."
    assert str(survey_error(raised, FACTS)).startswith("an executor runs Python 3.12")
    noted = last_task_failure(noting(raised))
    assert str(survey_error(f"{raised}\n{noted}", FACTS)).startswith("executor 2 on 10.0.0.7 runs Python 3.12")
    assert last_task_failure(SimpleNamespace(statusTracker=lambda: None)) == "", "an application that has ended"


def test_an_executor_reports_its_facts() -> None:
    facts = probe(("json", "no_such_module", "google.nothing"), None)
    assert facts["python"] == f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert facts["pyarrow"] == pyarrow.__version__
    assert facts["missing"] == ("no_such_module", "google.nothing")
    assert facts["store_refusal"] == facts["disk_refusal"] == ""


def test_a_missing_folder_is_not_a_store() -> None:
    assert probe((), "file:///no/such/folder")["store_refusal"] == "there is no such folder"


@pytest.mark.parametrize(("version", "is_refused"), [(pyarrow.__version__, False), ("1.0.0", True)])
def test_a_late_executor_is_compared_with_the_driver_at_its_first_task(
    version: str, is_refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor_checks, "_CHECKED", [])
    monkeypatch.setattr(executor_checks, "own_place", lambda: "3@10.0.0.7")
    monkeypatch.setenv(VERSIONS_VARIABLE, replace(FACTS, pyarrow=version).encode())
    if is_refused:
        with pytest.raises(
            PlatformError, match=r"^executor 3 on 10\.0\.0\.7 joined later, and has pyarrow .* the driver has 1\.0\.0"
        ):
            check_this_executor("4.3.0")
    else:
        check_this_executor("4.3.0")
        assert executor_checks._CHECKED


def test_on_a_local_master_no_facts_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VERSIONS_VARIABLE, raising=False)
    check_this_executor("another")
