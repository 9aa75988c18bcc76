"""Checks reports of executors: the error messages name the executor, both values and the remedy.

Python must have the same minor version (pickled functions contain its byte code), pyarrow the same major version;
PySpark and millstream must be identical. All functions here are pure; `spark.cluster` runs the survey.
"""

from __future__ import annotations

import json
import os
import platform
import re
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import pyarrow

from millstream.errors import ConfigurationError, PlatformError
from millstream.spark.executor_survey import ExecutorReport
from millstream.spark.executors import own_place
from millstream.spark.masters import application_ended_error
from millstream.spark.shipping.packages import TASK_PACKAGES

__all__ = [
    "VERSIONS_VARIABLE",
    "DriverFacts",
    "check_executors",
    "check_this_executor",
    "clock_warnings",
    "survey_error",
]

VERSIONS_VARIABLE = "MILLSTREAM_DRIVER_VERSIONS"
_CLOCK_MS_MAX = 60_000
_PACK = "`millstream pack` makes an archive of an environment for executors (docs/operate/cluster.md)"


@dataclass(frozen=True)
class DriverFacts:
    """Reference values for executors: the driver's versions, the name of our package's archive, and the interpreter
    that executors start."""

    python: str
    pyspark: str
    pyarrow: str
    millstream: str
    platform: str
    master: str
    interpreter: str
    store_url: str

    @classmethod
    def of_this_process(
        cls, pyspark: str, millstream: str, master: str, interpreter: str, store_url: str
    ) -> DriverFacts:
        """The facts of the driver's process."""
        return cls(
            python=f"{sys.version_info[0]}.{sys.version_info[1]}",
            pyspark=pyspark,
            pyarrow=pyarrow.__version__,
            millstream=millstream,
            platform=f"{sysconfig.get_platform()} {platform.libc_ver()[0]}".strip(),
            master=master,
            interpreter=interpreter,
            store_url=store_url,
        )

    def encode(self) -> str:
        """The facts as JSON, for an environment variable."""
        return json.dumps(asdict(self))


def check_executors(reports: Sequence[ExecutorReport], facts: DriverFacts) -> None:
    """Rejects executors with incompatible versions, missing packages, or no access to the disk or the store."""
    for report in reports:
        for problem in _version_problems(report, facts):
            raise PlatformError(problem)
    for report in reports:
        if report.missing:
            raise PlatformError(_missing(report))
        if report.disk_refusal:
            raise PlatformError(
                f"{report.place} cannot write to its temporary folder ({report.disk_refusal}). Free some space there, "
                "or set another folder: spark.executorEnv.TMPDIR"
            )
        if report.store_refusal:
            raise ConfigurationError(
                f"store {facts.store_url} is reachable from the driver, but not from {report.place}: "
                f"{report.store_refusal.rstrip('.')}. {_way_to_the_store(report)}"
            )


def _way_to_the_store(report: ExecutorReport) -> str:
    """The remedy. A service rejects requests signed with a wrong time, without naming the clock."""
    if abs(report.clock_ahead_ms) > _CLOCK_MS_MAX:
        return f"Its clock is {_clock_difference(report)} the driver's, and requests are signed with it: correct it"
    return "Use an address that every machine of the cluster can reach, and valid credentials"


def _version_problems(report: ExecutorReport, facts: DriverFacts) -> Iterator[str]:
    other = "or start the program with the executors' Python version"
    if report.python != facts.python:
        yield (
            f"{report.place} runs Python {report.python} ({report.interpreter}), the driver {facts.python}. Set "
            f"spark.pyspark.python to a Python {facts.python} of the executors, {other}"
        )
    if not report.pyarrow:
        yield (
            f"{report.place} has no pyarrow ({report.interpreter}), the driver has {facts.pyarrow}. Install it where "
            f"executors run: pip install pyarrow=={facts.pyarrow}; or {_PACK}"
        )
    if _major(report.pyarrow) != _major(facts.pyarrow):
        yield (
            f"{report.place} has pyarrow {report.pyarrow}, the driver {facts.pyarrow}. Install the same on both "
            f"(pip install pyarrow=={facts.pyarrow}); or {_PACK}"
        )
    if report.pyspark != facts.pyspark:
        yield (
            f"{report.place} runs Spark {report.pyspark or 'of no version'}, the driver PySpark {facts.pyspark}. "
            f"Install the cluster's version here: pip install pyspark=={report.pyspark or '…'}"
        )
    if f"/{facts.millstream}/" not in report.millstream:
        problem = f"imports another one, from {report.millstream}" if report.millstream else "cannot import it"
        yield (
            f"{report.place} was sent the driver's millstream, and {problem}. Remove the entry before it in the "
            "executors' environment (PYTHONPATH)"
        )


def _missing(report: ExecutorReport) -> str:
    name = report.missing[0]
    package = TASK_PACKAGES.get(name, name)
    also = f" (nor {', '.join(report.missing[1:])})" if len(report.missing) > 1 else ""
    return (
        f"{report.place} has no package {package}{also}, which the job's tasks import, and its platform is "
        f"{report.platform}. Install it where executors run, list it in python.requirements, or send a whole "
        f"environment: {_PACK}"
    )


def _major(version: str) -> str:
    return version.partition(".")[0]


def clock_warnings(reports: Sequence[ExecutorReport]) -> list[str]:
    """A warning for each executor whose clock differs by more than a minute."""
    return [
        f"the clock of {report.place} is {_clock_difference(report)} the driver's. Results are unaffected: processing "
        "time is the driver's. Credentials of object stores and times in logs are affected: correct it"
        for report in {report.place: report for report in reports}.values()
        if abs(report.clock_ahead_ms) > _CLOCK_MS_MAX
    ]


def _clock_difference(report: ExecutorReport) -> str:
    minutes = abs(report.clock_ahead_ms) // 60_000
    span = f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"
    return f"{span} {'ahead of' if report.clock_ahead_ms > 0 else 'behind'}"


_PLACE = re.compile(r"\((\S+) executor (\w+)\)")
_PYTHONS = re.compile(r"Python in worker has different version:? (\S+?) than that in driver:? (\S+?),")
_NO_PROGRAM = re.compile(r'Cannot run program "([^"]+)"')
_NO_START = re.compile(r"Error from python worker:(.*?)\n\s*(?:PYTHONPATH was:|\w[\w.]*Exception: )", re.DOTALL)


def survey_error(text: str, facts: DriverFacts) -> PlatformError:
    """Translates Spark's error for a survey whose function never ran.

    >>> facts = DriverFacts.of_this_process("4.3.0", "millstream-1", "spark://a:7077", "python3.11", "s3://jobs/a")
    >>> text = 'Lost task (10.0.0.7 executor 3): java.io.IOException: Cannot run program "python3.11": error=2'
    >>> print(str(survey_error(text, facts))[:70])
    executor 3 on 10.0.0.7 cannot start 'python3.11'. Set spark.pyspark.py
    """
    places = _PLACE.findall(text)
    place = f"executor {places[-1][1]} on {places[-1][0]}" if places else "an executor"
    if match := _PYTHONS.search(text):
        version = match.group(1)
        return PlatformError(
            f"{place} runs Python {version} ({facts.interpreter}), the driver {facts.python}. Set spark.pyspark.python "
            f"to a Python {facts.python} of the executors, or start the program with the executors' Python version"
        )
    if match := _NO_PROGRAM.search(text):
        return PlatformError(
            f"{place} cannot start {match.group(1)!r}. Set spark.pyspark.python to a Python {facts.python} of the "
            f"executors; or {_PACK}"
        )
    if "SparkContext was shut down" in text or "stopped SparkContext" in text:
        return application_ended_error(facts.master)
    if "No module named 'pyspark" in text:
        return PlatformError(f"{place} has no PySpark for its Python ({facts.interpreter}). Set SPARK_HOME there")
    if match := _NO_START.search(text):
        return PlatformError(
            f"{place} cannot start its Python ({facts.interpreter}): {_last_line(match.group(1))}. Set "
            f"spark.pyspark.python to a Python {facts.python} of the executors (PYTHONPATH applies too); or {_PACK}"
        )
    why = re.search(r"most recent failure: (.*)", text)
    return PlatformError(
        f"executors of master {facts.master} could not be surveyed: "
        f"{why.group(1).strip() if why else _last_line(text)}. See their logs on the workers"
    )


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no message")


def check_this_executor(pyspark: str) -> None:
    """Compares versions with the driver's in a Python worker at its first task, for executors that joined later."""
    text = os.environ.get(VERSIONS_VARIABLE)
    if text is None or _CHECKED:
        return
    facts = DriverFacts(**json.loads(text))
    if _major(pyarrow.__version__) != _major(facts.pyarrow) or pyspark != facts.pyspark:
        number, _, host = own_place().partition("@")
        place = f"executor {number} on {host}" if number else f"an executor on {platform.node()}"
        raise PlatformError(
            f"{place} joined later, and has pyarrow {pyarrow.__version__} and PySpark {pyspark}; the driver has "
            f"{facts.pyarrow} and {facts.pyspark}. Install the same on both"
        )
    _CHECKED.append(True)


_CHECKED: list[bool] = []
"""Not empty once this process has been checked."""
