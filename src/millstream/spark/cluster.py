"""Prepares a cluster for a job: sends code, surveys the executors, and rejects unsuitable ones.

The steps, all before the first epoch and none in local mode:

1. Send our package and the user's modules (`spark.shipping`), and the environment variables for object stores.
2. Survey every executor by a small Spark job (`spark.executor_survey`).
3. Send packages that executors lack, if they have the driver's platform, and survey again.
4. Report any remaining problem as one error with the executor, both versions and the remedy (`spark.executor_checks`).

Executors that join later get the same files from Spark, and compare their versions with the driver's at their first
task (`check_this_executor`): the environment of every Python worker contains the driver's.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from typing import Any

from millstream.compiler.passes.check_functions import packed
from millstream.errors import PlatformError
from millstream.spark.executor_checks import (
    VERSIONS_VARIABLE,
    DriverFacts,
    check_executors,
    clock_warnings,
    survey_error,
)
from millstream.spark.executor_survey import ExecutorReport, last_task_failure, survey_executors
from millstream.spark.masters import application_ended_error
from millstream.spark.plan_modules import foreign_modules, named_modules
from millstream.spark.shipping.archives import ShippedArchive, make_archive
from millstream.spark.shipping.packages import SPARKS_PACKAGES, TASK_PACKAGES, our_package, package_files, task_packages
from millstream.spark.shipping.program_files import program_files
from millstream.spark.task_imports import include_always

__all__ = ["ready_cluster"]

_LOG = logging.getLogger("millstream")
_FIRST_EXECUTOR_S = 120.0
_WARN_AFTER_S = 15.0
_POLL_S = 0.1
_STORE_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_")


def ready_cluster(session: Any, plan: Any, store_url: str, *, has_packages: bool) -> None:
    """Sends the code that a plan's tasks need, and rejects executors that cannot run it. `has_packages`: the user sends
    packages, so the imports of user functions need not be installed."""
    context = session.sparkContext
    facts = _facts(session, store_url)
    _set_worker_environment(context, facts)
    _send(context, our_package())
    files = program_files()
    if files:
        _send(context, make_archive("program", files))
    names = named_modules(packed(plan))
    own = {"millstream", *(name.partition("/")[0].removesuffix(".py") for name in files)}
    tops = {name.partition(".")[0] for name in TASK_PACKAGES}
    needed = task_packages(names, is_object_store=not store_url.startswith("file:"))
    foreign = [] if has_packages else foreign_modules(names, own | tops | set(SPARKS_PACKAGES))
    _wait_for_executor(context, facts)
    reports = _survey(context, (*needed, *foreign), facts)
    missing = {name for report in reports for name in report.missing if name in needed}
    if missing and all(report.platform == facts.platform and report.python == facts.python for report in reports):
        _send(context, make_archive("packages", package_files([TASK_PACKAGES[name] for name in missing])))
        reports = _survey(context, (*needed, *foreign), facts)
    check_executors(reports, facts)
    for warning in clock_warnings(reports):
        _LOG.warning("%s", warning)


def _facts(session: Any, store_url: str) -> DriverFacts:
    context = session.sparkContext
    return DriverFacts.of_this_process(
        pyspark=session.version,
        millstream=our_package().name,
        master=context.master,
        interpreter=context.pythonExec,
        store_url=store_url,
    )


def _survey(context: Any, modules: tuple[str, ...], facts: DriverFacts) -> Sequence[ExecutorReport]:
    try:
        return survey_executors(context, modules, facts.store_url)
    except Exception as error:
        raise survey_error(f"{error}\n{last_task_failure(context)}", facts) from error


def _send(context: Any, archive: ShippedArchive) -> None:
    """Sends an archive through Spark, which unpacks it next to the executor's files; tasks import from it."""
    if include_always(context, archive.name):
        context.addArchive(f"{archive.path}#{archive.name}")


def _set_worker_environment(context: Any, facts: DriverFacts) -> None:
    """Sets the environment of Python workers: the variables of object stores, as Spark passes them to its own S3
    client, and the driver's versions. They are not application settings, so that no web page shows them."""
    context.environment.update({name: value for name, value in os.environ.items() if name.startswith(_STORE_VARIABLES)})
    context.environment[VERSIONS_VARIABLE] = facts.encode()


def _wait_for_executor(context: Any, facts: DriverFacts) -> None:
    """Waits for the first executor, as long as a busy cluster may need; Spark itself would wait forever."""
    began = time.monotonic()
    has_warned = False
    while context._jsc is not None and not context._jsc.sc().isStopped():
        if _has_executor(context):
            return
        waited_s = time.monotonic() - began
        if waited_s > _WARN_AFTER_S and not has_warned:
            has_warned = True
            _LOG.warning("master %s has not started an executor yet: waiting for the first one", facts.master)
        if waited_s > _FIRST_EXECUTOR_S:
            raise PlatformError(
                f"master {facts.master} has started no executor in {_FIRST_EXECUTOR_S:.0f} s. Check its page: "
                "are its workers alive, and do they have as many free cores and as much free memory as "
                "spark.executor.cores and spark.executor.memory require?"
            )
        time.sleep(_POLL_S)
    raise application_ended_error(facts.master, is_registered=_is_registered(context))


def _is_registered(context: Any) -> bool:
    """Whether a standalone master has assigned an application id; until then Spark generates one."""
    try:
        return not str(context._jsc.sc().applicationId()).startswith("spark-application-")
    except Exception:
        return True  # the application can no longer be queried


def _has_executor(context: Any) -> bool:
    try:
        return int(context._jsc.sc().getExecutorMemoryStatus().size()) > 1  # includes the driver
    except Exception:
        return False  # it has just stopped; the caller checks that next
