"""Statements about the jobs that an environment started: SHOW JOBS, DESCRIBE JOB, STOP JOB."""

from __future__ import annotations

import datetime

from millstream.errors import did_you_mean
from millstream.jobs.launch.job import Job
from millstream.planner.statement_result import OK, StatementResult, text_rows
from millstream.sql.places import problem
from millstream.sql.statements import Describe, StopJob
from millstream.sql.syntax import Node
from millstream.table.operations.query_runner import QueryRunner

__all__ = ["describe_job", "show_jobs", "stop_job"]

_COLUMNS = ["job id", "job name", "status", "start time"]


def show_jobs(runner: QueryRunner) -> StatementResult:
    """All jobs that were started here, the newest first."""
    return text_rows(_COLUMNS, [_row(job, started) for job, started in reversed(runner.jobs)])


def describe_job(runner: QueryRunner, statement: Describe) -> StatementResult:
    """One job."""
    job = _job(runner, statement.name[-1], statement)
    return text_rows(_COLUMNS, [_row(each, started) for each, started in runner.jobs if each is job])


def stop_job(runner: QueryRunner, statement: StopJob) -> StatementResult:
    """End a job; with a savepoint, what to start again from is told."""
    job = _job(runner, statement.job, statement)
    if job.status().is_terminal_state():
        raise problem(f"job '{statement.job}' has ended: it is {job.status().name}", statement)
    if not statement.with_savepoint:
        job.cancel()
        job.wait()
        return OK
    job.stop(statement.with_drain)
    job.wait()
    return text_rows(["savepoint path"], [[job.savepoint()]])


def _row(job: Job, started: datetime.datetime) -> list[str]:
    now = job.board.now
    return [str(job.job_id), now.job_name, job.status().name, started.isoformat(" ", "seconds")]


def _job(runner: QueryRunner, name: str, node: Node) -> Job:
    for job, _ in runner.jobs:
        if str(job.job_id) == name:
            return job
    hint = did_you_mean(name, [str(job.job_id) for job, _ in runner.jobs])
    raise problem(f"there is no job '{name}' of this session.{hint} SHOW JOBS lists them", node)
