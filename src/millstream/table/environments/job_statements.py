"""Statements about jobs: SHOW JOBS, DESCRIBE JOB, STOP JOB.

They cover the jobs that the environment started, in this process or in separate ones. In the SQL client they also cover
running jobs whose stores are in the same folder, so a user who reconnects finds them.
"""

from __future__ import annotations

import datetime

from millstream.errors import did_you_mean
from millstream.jobs.launch.job import Job
from millstream.planner.statement_result import OK, StatementResult, text_rows
from millstream.sql.places import problem
from millstream.sql.statements import Describe, StopJob
from millstream.sql.syntax import Node
from millstream.table.operations.detached_jobs import DetachedJob, jobs_running_below
from millstream.table.operations.query_runner import QueryRunner

__all__ = ["describe_job", "show_jobs", "stop_job"]

_COLUMNS = ["job id", "job name", "status", "start time"]


def show_jobs(runner: QueryRunner) -> StatementResult:
    """The jobs, the newest first."""
    listed = sorted(_jobs(runner), key=lambda each: each[1])
    return text_rows(_COLUMNS, [_row(job, started) for job, started in reversed(listed)])


def describe_job(runner: QueryRunner, statement: Describe) -> StatementResult:
    """Describes one job."""
    return text_rows(_COLUMNS, [_row(*_job(runner, statement.name[-1], statement))])


def stop_job(runner: QueryRunner, statement: StopJob) -> StatementResult:
    """Stops a job; with a savepoint, returns the savepoint's path."""
    job, _ = _job(runner, statement.job, statement)
    if isinstance(job, DetachedJob):
        return _stop_detached(job, statement)
    if job.status().is_terminal_state():
        raise problem(f"job '{statement.job}' has ended: it is {job.status().name}", statement)
    if not statement.with_savepoint:
        job.cancel()
        job.wait()
        return OK
    job.stop(statement.with_drain)
    job.wait()
    return text_rows(["savepoint path"], [[job.savepoint()]])


def _stop_detached(job: DetachedJob, statement: StopJob) -> StatementResult:
    if job.has_ended:
        raise problem(f"job '{statement.job}' has ended: it is {job.status()}", statement)
    if not statement.with_savepoint:
        job.cancel()
        return OK
    job.stop(statement.with_drain)
    return text_rows(["savepoint path"], [[job.savepoint()]])


def _row(job: Job | DetachedJob, started: datetime.datetime) -> list[str]:
    if isinstance(job, DetachedJob):
        name, status = job.name, job.status()
    else:
        name, status = job.board.now.job_name, job.status().name
    return [str(job.job_id), name, status, started.isoformat(" ", "seconds")]


def _jobs(runner: QueryRunner) -> list[tuple[Job | DetachedJob, datetime.datetime]]:
    jobs: list[tuple[Job | DetachedJob, datetime.datetime]] = [*runner.jobs, *runner.detached]
    if not runner.sees_others:
        return jobs
    known = {str(job.job_id) for job, _ in jobs}
    neighbours = (
        (DetachedJob(listed.id, listed.name, listed.store), started)
        for listed, started in jobs_running_below(runner.root())
        if listed.id not in known
    )
    return [*jobs, *neighbours]


def _job(runner: QueryRunner, name: str, node: Node) -> tuple[Job | DetachedJob, datetime.datetime]:
    jobs = _jobs(runner)
    for job, started in jobs:
        if str(job.job_id) == name:
            return job, started
    hint = did_you_mean(name, [str(job.job_id) for job, _ in jobs])
    raise problem(f"there is no job '{name}' of this session or next to it.{hint} SHOW JOBS lists them", node)
