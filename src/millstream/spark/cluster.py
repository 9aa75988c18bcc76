"""A cluster made ready for a job: code is sent, executors are asked what they are like, what cannot work is refused.

In this order, all of it before the first epoch and none of it in local mode:

1. Our package and the user's modules are sent (`spark.shipping`), and the variables that lead to object stores.
2. A small Spark job asks every executor (`spark.executor_survey`).
3. What we need and executors lack is sent too, if they are of the driver's platform; then they are asked again.
4. Whatever is still wrong is one error that names the executor, both versions and what to do (`spark.executor_checks`).

Executors that come later get the same files from Spark, and hold their versions against the driver's at their first
task (`check_this_executor`): these stand in the environment of every Python worker.
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
    explained_survey_failure,
)
from millstream.spark.executor_survey import ExecutorReport, noted_failure, survey_executors
from millstream.spark.masters import ended_application
from millstream.spark.plan_modules import foreign_modules, named_modules
from millstream.spark.shipping.archives import ShippedArchive, make_archive
from millstream.spark.shipping.packages import SPARKS_PACKAGES, TASK_PACKAGES, our_package, package_files, task_packages
from millstream.spark.shipping.program_files import program_files
from millstream.spark.task_imports import include_always

__all__ = ["ready_cluster"]

_LOG = logging.getLogger("millstream")
_FIRST_EXECUTOR_S = 120.0
_TOLD_AFTER_S = 15.0
_POLL_S = 0.1
_STORE_VARIABLES = ("AWS_", "AZURE_", "GOOGLE_")


def ready_cluster(session: Any, plan: Any, store_url: str, *, has_packages: bool) -> None:
    """Send what a plan's tasks need, and refuse executors that it cannot run on. `has_packages`: the user sends
    packages of his own, so what his functions import need not be there yet."""
    context = session.sparkContext
    facts = _facts(session, store_url)
    _tell_environment(context, facts)
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
    reports = _surveyed(context, (*needed, *foreign), facts)
    missing = {name for report in reports for name in report.missing if name in needed}
    if missing and all(report.platform == facts.platform and report.python == facts.python for report in reports):
        _send(context, make_archive("packages", package_files([TASK_PACKAGES[name] for name in missing])))
        reports = _surveyed(context, (*needed, *foreign), facts)
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


def _surveyed(context: Any, modules: tuple[str, ...], facts: DriverFacts) -> Sequence[ExecutorReport]:
    try:
        return survey_executors(context, modules, facts.store_url)
    except Exception as error:
        raise explained_survey_failure(f"{error}\n{noted_failure(context)}", facts) from error


def _send(context: Any, archive: ShippedArchive) -> None:
    """Through Spark: unpacked beside the executor's other files, and looked for modules in."""
    if include_always(context, archive.name):
        context.addArchive(f"{archive.path}#{archive.name}")


def _tell_environment(context: Any, facts: DriverFacts) -> None:
    """What Python workers find in their environment: the way to object stores, as Spark gives it to its own client of
    S3; and what the driver is like. It is no setting of the application, so that no page shows it."""
    context.environment.update({name: value for name, value in os.environ.items() if name.startswith(_STORE_VARIABLES)})
    context.environment[VERSIONS_VARIABLE] = facts.encode()


def _wait_for_executor(context: Any, facts: DriverFacts) -> None:
    """Wait for the first executor, as long as a busy cluster may take, and not for ever as Spark would."""
    began = time.monotonic()
    is_told = False
    while context._jsc is not None and not context._jsc.sc().isStopped():
        if _has_executor(context):
            return
        waited_s = time.monotonic() - began
        if waited_s > _TOLD_AFTER_S and not is_told:
            is_told = True
            _LOG.warning("master %s has given no executor yet: waiting for the first one", facts.master)
        if waited_s > _FIRST_EXECUTOR_S:
            raise PlatformError(
                f"master {facts.master} has given no executor in {_FIRST_EXECUTOR_S:.0f} s. Look at its page: "
                "are its workers alive, and have they as many cores and as much memory free as spark.executor.cores "
                "and spark.executor.memory ask for?"
            )
        time.sleep(_POLL_S)
    raise ended_application(facts.master, is_registered=_is_registered(context))


def _is_registered(context: Any) -> bool:
    """Whether a standalone master has given the application its number: until then Spark makes one up."""
    try:
        return not str(context._jsc.sc().applicationId()).startswith("spark-application-")
    except Exception:
        return True  # it cannot be asked any more


def _has_executor(context: Any) -> bool:
    try:
        return int(context._jsc.sc().getExecutorMemoryStatus().size()) > 1  # the driver itself is counted
    except Exception:
        return False  # it has just been stopped, which is looked at next
