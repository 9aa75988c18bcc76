"""POST /v1/jobs/{job}/sql: a SELECT over the tables of the job, answered from one epoch.

The tables are stored results of the job's queries (docs/live-sql.md). Tables have access rights like states: a
statement that reads a table which the client may not read is rejected as a whole, before anything is read.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Annotated, Any

import anyio
from fastapi import APIRouter, Depends, Response
from pydantic import BaseModel, Field

from millstream.errors import ProgramError
from millstream.query.job_view import JobView
from millstream.query.server.answer_bytes import EncodedJson
from millstream.query.server.openapi import REFUSALS, Caller, JobInPath, only_known
from millstream.query.statement_answers import StatementExecutor, executor_of
from millstream.query.wire.refusals import BadQuestionError

if TYPE_CHECKING:
    from millstream.query.server.application import Endpoints

__all__ = ["Statements", "statement_routes"]

_CHARACTERS_MAX = 65_536
_AT_ONCE = 4


class StatementQuestion(BaseModel):
    """A statement."""

    model_config = {"extra": "forbid"}

    statement: Annotated[str, Field(max_length=_CHARACTERS_MAX, description="A SELECT over tables of the job.")]


class StatementColumn(BaseModel):
    """A column of an answer."""

    name: str
    type: Annotated[str, Field(description="In SQL notation.")]


class RowsAnswer(BaseModel):
    """The rows of a statement, all of one epoch."""

    job: str
    job_id: str
    epoch: int
    watermark: int | None
    committed_ms: int
    age_ms: int
    columns: list[StatementColumn]
    rows: Annotated[list[list[Any]], Field(description="In the order of the columns.")]


class Statements:
    """Holds one server's statement executor, created for the first statement because it may need a process."""

    def __init__(self, job: JobView) -> None:
        self._job, self._lock = job, threading.Lock()
        # Separate from the threads that read keys: many slow statements do not block other requests.
        self.threads = anyio.CapacityLimiter(_AT_ONCE)
        self._executor: StatementExecutor | None = None

    def executor(self) -> StatementExecutor:
        """The executor; raises BadQuestionError if there is none."""
        with self._lock:
            if self._executor is None:
                self._executor = executor_of(self._job)
        if self._executor is None:
            raise BadQuestionError(
                "this server answers no statements: it only reads the store. Use the job's own server "
                "(millstream.query.listen of a job of tables), the SQL client, or Python."
            )
        return self._executor

    def close(self) -> None:
        """The server ends."""
        with self._lock:
            if self._executor is not None:
                self._executor.close()


def statement_routes(endpoints: Endpoints) -> APIRouter:
    """The path of statements."""

    async def sql(reader: Caller, job: JobInPath, question: StatementQuestion) -> Response:
        """Answer a SELECT over tables of the job."""
        endpoints.check_job(job)
        abandoned = threading.Event()
        try:
            return await endpoints.read_json(
                lambda: _answered(endpoints, reader, question.statement, abandoned), endpoints.statements.threads
            )
        finally:
            abandoned.set()  # the request has timed out: stop computing the answer

    router = APIRouter(responses=REFUSALS, dependencies=[Depends(only_known)])
    router.add_api_route("/v1/jobs/{job}/sql", sql, methods=["POST"], response_model=RowsAnswer)
    return router


def _answered(endpoints: Endpoints, reader: Any, statement: str, abandoned: threading.Event) -> dict[str, Any]:
    answers = endpoints.answers
    try:
        answer = endpoints.statements.executor().answer(statement, reader.check, answers.bounds, abandoned)
    except ProgramError as error:
        raise BadQuestionError(error.message) from error  # without the line of the server's own program
    return {
        **answers.facts_of(answer.epoch, answer.watermark, answer.committed_ms),
        "columns": [{"name": name, "type": type_} for name, type_ in answer.columns],
        "rows": EncodedJson(answer.rows),
    }
