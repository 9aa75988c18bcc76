"""The HTTP interface to a job's state: JSON, described by OpenAPI at /openapi.json.

    GET  /v1/jobs, /v1/jobs/{job}/servers          the servers and their key groups
    GET  /v1/jobs/{job}                            epoch, watermark, commit time, age
    GET  /v1/jobs/{job}/states                     the queryable states
    GET  /v1/jobs/{job}/states/{state}/keys/{key}  one value
    POST /v1/jobs/{job}/states/{state}/keys        many values
    POST /v1/jobs/{job}/read                       values of several states, of one epoch
    POST /v1/jobs/{job}/sql                        a SELECT over the job's tables (`statements.py`)
    GET  /v1/jobs/{job}/states/{state}/windows/{key}, …/series/{key}, …/watch/{key}, …/scan

An answer belongs to one epoch, which is its ETag: repeating a request with If-None-Match costs nothing until the next
epoch. `If-Min-Epoch` requests an epoch at least that new; the server waits for it briefly. `?epoch=` and `?time=`
request the past. Reads run on threads, a bounded number at once.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from typing import Annotated, Any, TypeVar

import anyio
import anyio.to_thread
from fastapi import APIRouter, Depends, FastAPI, Header, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, StreamingResponse
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware

from millstream.checkpoint.leases import system_ms
from millstream.query.errors import UnknownJobError
from millstream.query.job_view import JobView
from millstream.query.server import openapi
from millstream.query.server.answer_bytes import encoded
from millstream.query.server.guard import Guard, refusal_headers
from millstream.query.server.job_answers import JobAnswers, Moment
from millstream.query.server.openapi import (
    CACHED,
    EPOCH_MAX,
    REFUSALS,
    Caller,
    CurrentReader,
    EpochChoice,
    JobInPath,
    KeyFormat,
    KeyText,
    KnownTag,
    Limit,
    MinEpoch,
    Prefix,
    StateName,
    only_known,
)
from millstream.query.server.quick_path import QuickPath
from millstream.query.server.settings import ServerSettings
from millstream.query.server.statements import Statements, statement_routes
from millstream.query.server.watchers import EpochBell, WatchedAnswer, watch
from millstream.query.wire.refusals import BadQuestionError, RefusalAnswer, TooManyError, answer_to
from millstream.query.wire.servers import Registration

__all__ = ["Neighbourhood", "application"]

_POLL_S = 0.01
_ABANDONED_FACTOR = 4
_PAGE_HEADERS = {
    "cache-control": "no-cache",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_T = TypeVar("_T")


@dataclass(frozen=True)
class Neighbourhood:
    """The address of this server (`url`, `flight_url`), and the registrations of the job's other servers."""

    place: Callable[[], dict[str, str | None]] = lambda: {"url": None, "flight_url": None}
    servers: Callable[[], list[Registration]] = list


class _RunningReads:
    """Counts the running reads, including abandoned ones."""

    def __init__(self) -> None:
        self.count = 0
        self._lock = threading.Lock()

    def run(self, work: Callable[[], _T]) -> _T:
        with self._lock:
            self.count += 1
        try:
            return work()
        finally:
            with self._lock:
                self.count -= 1


class Endpoints:
    """The endpoints of all paths."""

    def __init__(
        self, job: JobView, settings: ServerSettings, now_ms: Callable[[], int], neighbourhood: Neighbourhood
    ) -> None:
        self._job, self._settings, self._neighbourhood = job, settings, neighbourhood
        self.answers = JobAnswers(job, settings.key_groups, settings.limits, now_ms)
        self._running = _RunningReads()
        self._threads = anyio.CapacityLimiter(settings.limits.reads_at_once_max)
        self.statements = Statements(job)
        self.bell = EpochBell(self.newest_epoch, settings.limits.watchers_max)

    async def health(self) -> Response:
        """Whether the server runs. It reveals nothing about the job."""
        return JSONResponse({"status": "ok"})

    async def page(self) -> Response:
        """The configured page."""
        return Response(self._settings.page, media_type="text/html; charset=utf-8", headers=_PAGE_HEADERS)

    async def jobs(self) -> Response:
        """The jobs of this server: one."""
        return _json({"jobs": [{"job": self._job.job, "job_id": self._job.job_id}]})

    async def servers(self, job: JobInPath) -> Response:
        """This server and the others of its job, with the key groups that each holds."""
        self.check_job(job)
        this = {"held": self._settings.held_span, **self._neighbourhood.place()}
        servers = await self._run(self._neighbourhood.servers)
        return _json({**this, "servers": [asdict(server) for server in servers]})

    async def job(self, job: JobInPath, min_epoch: MinEpoch = None, known: KnownTag = None) -> Response:
        """The job and its newest epoch."""
        self.check_job(job)
        moment = Moment(epoch_min=min_epoch)

        def read() -> dict[str, Any]:
            with self.answers.epoch(moment) as epoch:
                return {**self.answers.facts(epoch), "held": self._settings.held_span}

        return await self._answer(moment, known, read)

    async def states(self, reader: Caller, job: JobInPath) -> Response:
        """The states that this token may read."""
        self.check_job(job)

        def read() -> dict[str, Any]:
            states = [vars(state) for state in self.answers.states(reader)]
            return {**self.answers.facts(self._job.newest()), "states": states}

        return await self.read_json(read)

    async def value(
        self,
        reader: Caller,
        moment: EpochChoice,
        job: JobInPath,
        state: StateName,
        key: KeyText,
        key_format: KeyFormat = "text",
        known: KnownTag = None,
    ) -> Response:
        """The value of one key."""
        self.check_job(job)
        reader.check(state)
        return await self._answer(moment, known, lambda: self.answers.value(reader, state, key, key_format, moment))

    async def many(
        self, reader: Caller, moment: EpochChoice, job: JobInPath, state: StateName, question: openapi.KeysQuestion
    ) -> Response:
        """The values of many keys, all of one epoch."""
        self.check_job(job)

        def read() -> dict[str, Any]:
            facts, values = self.answers.values(reader, [(state, question.keys)], moment)
            return {**facts, **values[0]}

        return await self._answer(moment, None, read)

    async def read(
        self, reader: Caller, moment: EpochChoice, job: JobInPath, question: openapi.ReadQuestion
    ) -> Response:
        """The values of keys of several states, all of one epoch."""
        self.check_job(job)

        def read() -> dict[str, Any]:
            questions = [(read.state, read.keys) for read in question.reads]
            facts, values = self.answers.values(reader, questions, moment)
            return {**facts, "reads": values}

        return await self._answer(moment, None, read)

    async def windows(
        self,
        reader: Caller,
        moment: EpochChoice,
        job: JobInPath,
        state: StateName,
        key: KeyText,
        key_format: KeyFormat = "text",
        known: KnownTag = None,
    ) -> Response:
        """The windows that are still open for a key, with their results so far."""
        self.check_job(job)
        reader.check(state)
        return await self._answer(moment, known, lambda: self.answers.windows(reader, state, key, key_format, moment))

    async def scan(
        self,
        reader: Caller,
        moment: EpochChoice,
        job: JobInPath,
        state: StateName,
        prefix: Prefix = None,
        limit: Limit = 100,
        known: KnownTag = None,
    ) -> Response:
        """Rows of a state."""
        self.check_job(job)
        reader.check(state)
        return await self._answer(moment, known, lambda: self.answers.scan(reader, state, prefix, limit, moment))

    async def series(
        self, reader: Caller, job: JobInPath, state: StateName, key: KeyText, key_format: KeyFormat = "text"
    ) -> Response:
        """The value of a key at every retained epoch."""
        self.check_job(job)
        return await self.read_json(lambda: self.answers.series(reader, state, key, key_format))

    async def watch(
        self,
        reader: CurrentReader,
        job: JobInPath,
        state: StateName,
        key: KeyText,
        key_format: KeyFormat = "text",
        last_event_id: Annotated[int, Header(ge=0, le=EPOCH_MAX)] = 0,
    ) -> Response:
        """The value of a key, or its open windows, now and after every change: server-sent events."""
        self.check_job(job)

        async def read() -> WatchedAnswer:
            return await self._run(
                lambda: WatchedAnswer.of(self.answers.watched_value(reader(), state, key, key_format))
            )

        await read()  # before the stream begins, an invalid request can still be answered with a status
        self.bell.check()
        events = watch(self.bell, read, last_event_id)
        return StreamingResponse(events, media_type="text/event-stream", headers={"cache-control": "no-store"})

    def check_job(self, job: str) -> None:
        """Rejects any job other than the served one."""
        if job not in (self._job.job, self._job.job_id):
            raise UnknownJobError(
                f"job {job[:100]!r} is not served here. This server has {self._job.job!r} "
                f"(id {self._job.job_id}): query that, or the server of the other job."
            )

    async def newest_epoch(self) -> int:
        """The number of the newest epoch, checked on a thread."""
        return await self._run(lambda: self._job.newest().epoch)

    async def _run(self, work: Callable[[], _T], threads: anyio.CapacityLimiter | None = None) -> _T:
        """Run on a thread. Reads that take too long are abandoned but still run; their number is bounded."""
        if self._running.count >= _ABANDONED_FACTOR * self._settings.limits.reads_at_once_max:
            raise TooManyError("the store does not answer, and enough reads wait for it. Try again in a moment.")
        return await anyio.to_thread.run_sync(
            lambda: self._running.run(work), abandon_on_cancel=True, limiter=threads or self._threads
        )

    async def _answer(self, moment: Moment, known: str | None, read: Callable[[], dict[str, Any]]) -> Response:
        """Wait for the requested epoch; 304 if the client has its answer; otherwise read."""
        if moment.epoch_min is not None and not moment.is_past:
            await self._wait_for(moment.epoch_min)
        if known is not None and not moment.is_past:
            newest = await self.newest_epoch()
            if newest >= (moment.epoch_min or 0) and self.answers.tag(newest) in known:
                return Response(
                    status_code=304, headers={"etag": self.answers.tag(newest), "cache-control": "no-cache"}
                )
        return await self.read_json(read, is_tagged=True)

    async def read_json(
        self, read: Callable[[], dict[str, Any]], threads: anyio.CapacityLimiter | None = None, is_tagged: bool = False
    ) -> Response:
        """Read, and encode the result, both on a thread, so a large answer does not block the loop."""

        def answer() -> tuple[int, bytes]:
            content = read()
            return content["epoch"], encoded(content)

        epoch, body = await self._run(answer, threads)
        headers = {"etag": self.answers.tag(epoch), "cache-control": "no-cache"} if is_tagged else None
        return Response(body, media_type="application/json", headers=headers)

    async def _wait_for(self, epoch: int) -> None:
        until_s = time.monotonic() + self._settings.limits.min_epoch_wait_s
        while not await self._run(lambda: self.answers.has_reached(epoch)) and time.monotonic() < until_s:
            await asyncio.sleep(_POLL_S)


def application(
    job: JobView,
    settings: ServerSettings,
    now_ms: Callable[[], int] = system_ms,
    now_s: Callable[[], float] = time.monotonic,
    neighbourhood: Neighbourhood | None = None,
) -> FastAPI:
    """The ASGI application that answers queries of the job."""
    endpoints = Endpoints(job, settings, now_ms, neighbourhood or Neighbourhood())

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        endpoints.bell.close()
        endpoints.statements.close()

    app = FastAPI(
        title="State of a Millstream job",
        version="1",
        description="Answers belong to one committed epoch each, and never go backwards.",
        docs_url=None,  # the default documentation pages load scripts from other sites
        redoc_url=None,
        redirect_slashes=False,  # no redirects for trailing slashes: they would be built from the Host header
        telemetry={"tracing": False, "metrics": False, "logs": False},  # otherwise checked on every request
        lifespan=lifespan,
    )
    app.state.endpoints = endpoints
    app.include_router(_routes(endpoints))
    app.include_router(statement_routes(endpoints))
    if settings.page is not None:
        app.add_api_route("/", endpoints.page, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_exception_handler(RequestValidationError, _malformed)
    app.add_exception_handler(HTTPException, _unrouted)
    app.add_middleware(QuickPath, answers=endpoints.answers, check=endpoints.newest_epoch)
    app.add_middleware(Guard, settings=settings, now_s=now_s)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.allowed_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["authorization", "content-type", "if-min-epoch", "if-none-match"],
            expose_headers=["etag"],
        )
    return app


def _routes(endpoints: Endpoints) -> APIRouter:
    router = APIRouter(responses=REFUSALS, dependencies=[Depends(only_known)])
    state = "/v1/jobs/{job}/states/{state}"
    router.add_api_route("/healthz", endpoints.health, methods=["GET"], responses={})
    gets: list[tuple[str, Callable[..., Any], Any]] = [
        ("/v1/jobs", endpoints.jobs, openapi.JobsAnswer),
        ("/v1/jobs/{job}/servers", endpoints.servers, openapi.ServersAnswer),
        ("/v1/jobs/{job}", endpoints.job, openapi.JobAnswer),
        ("/v1/jobs/{job}/states", endpoints.states, openapi.StatesAnswer),
        (state + "/keys/{key:key}", endpoints.value, openapi.ValueAnswer),
        (state + "/windows/{key:key}", endpoints.windows, openapi.WindowsAnswer),
        (state + "/series/{key:key}", endpoints.series, openapi.SeriesAnswer),
        (state + "/scan", endpoints.scan, openapi.ScanAnswer),
    ]
    for path, endpoint, model in gets:
        router.add_api_route(path, endpoint, methods=["GET"], response_model=model, responses=CACHED)
    router.add_api_route(
        state + "/watch/{key:key}",
        endpoints.watch,
        methods=["GET"],
        response_class=StreamingResponse,
        responses={200: {"content": {"text/event-stream": {}}, "description": "Events: id is the epoch."}},
    )
    router.add_api_route(state + "/keys", endpoints.many, methods=["POST"], response_model=openapi.ManyAnswer)
    router.add_api_route("/v1/jobs/{job}/read", endpoints.read, methods=["POST"], response_model=openapi.ReadAnswer)
    return router


def _json(content: Any, headers: dict[str, str] | None = None) -> Response:
    return Response(encoded(content), media_type="application/json", headers=headers)


def _refused(answer: RefusalAnswer, headers: Mapping[str, str] | None = None) -> Response:
    response = _json(answer.body(), {**refusal_headers(answer), **(headers or {})})
    response.status_code = answer.status
    return response


async def _malformed(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = "; ".join(f"{'.'.join(map(str, wrong['loc']))}: {wrong['msg']}" for wrong in list(error.errors())[:5])
    return _refused(answer_to(BadQuestionError(f"the request is invalid: {errors}. See /openapi.json.")))


async def _unrouted(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    message = f"{error.detail}. The requests are described at /openapi.json."
    answer = RefusalAnswer(error.status_code, "not-a-path" if error.status_code == 404 else "malformed", message)
    return _refused(answer, error.headers)
