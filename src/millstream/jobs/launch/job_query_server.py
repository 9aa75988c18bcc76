"""The query server that a job runs itself. It answers from the job's start until its end, across restarts.

The configuration is checked and the ports are opened before anything of the job is touched. The server starts just
before the job does. Like any other query server it answers from the committed epochs in the store, so until the first
commit it answers that no epoch exists yet. It ends with the job, after the requests in progress.

The server never affects the job. If it cannot start, or fails, that is logged, and the job runs without it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from millstream.common import options
from millstream.common.options.option import Option
from millstream.errors import ConfigurationError
from millstream.jobs.clock import Clock
from millstream.jobs.epochs.progress import JobProgress
from millstream.jobs.launch.job import Job
from millstream.query.job_lookup import open_store_of_job
from millstream.query.server_request import ServerRequest, server_settings

if TYPE_CHECKING:
    from millstream.query.server import Ports, QueryServer, ServerSettings

__all__ = ["JobQueryServer", "server_request"]

_LOG = logging.getLogger("millstream.query.server")
_PREFIX = "millstream.query."


def server_request(configuration: Mapping[str, str]) -> ServerRequest | None:
    """The server that a configuration requests; None if it requests none.

    >>> server_request({"millstream.query.listen": "8787"}).listen
    '8787'
    """
    listen = options.read(options.QUERY_LISTEN, configuration)
    if listen is None:
        keys = sorted(key for key in configuration if key.startswith(_PREFIX))
        if keys:
            raise ConfigurationError(
                f"{keys[0]} is set, but the job answers no queries. Set {options.QUERY_LISTEN.key} too, such as "
                "127.0.0.1:8787, or remove it"
            )
        return None

    def path(option: Option) -> Path | None:
        text = options.read(option, configuration)
        return None if text is None else Path(text).expanduser()

    return ServerRequest(
        listen=listen,
        flight_port=options.read(options.QUERY_FLIGHT_PORT, configuration),
        tokens=path(options.QUERY_TOKENS),
        certificate=path(options.QUERY_CERTIFICATE),
        private_key=path(options.QUERY_PRIVATE_KEY),
        allow_anonymous=options.read(options.QUERY_ALLOW_ANONYMOUS, configuration),
        allow_undeclared=options.read(options.QUERY_ALLOW_UNDECLARED, configuration),
        allow_origins=tuple(options.read(options.QUERY_ALLOW_ORIGINS, configuration) or ()),
        allow_hosts=tuple(options.read(options.QUERY_ALLOW_HOSTS, configuration) or ()),
        trusted_proxies=tuple(options.read(options.QUERY_TRUSTED_PROXIES, configuration) or ()),
        page=path(options.QUERY_PAGE),
        option_prefix=_PREFIX,
    )


class JobQueryServer:
    """The server of a job, with open ports. Close it, or attach it to the job, which then starts and ends it."""

    def __init__(self, settings: ServerSettings, ports: Ports, clock: Clock, *, allow_undeclared: bool) -> None:
        self._settings, self._ports, self._clock = settings, ports, clock
        self._allow_undeclared = allow_undeclared
        self._server: QueryServer | None = None

    @classmethod
    def configured(cls, configuration: Mapping[str, str], clock: Clock, at: str) -> JobQueryServer | None:
        """The server that the configuration requests. Errors in it are raised at the user's line."""
        try:
            request = server_request(configuration)
            if request is None:
                return None
            settings = server_settings(request)
            from millstream.query.server import Ports

            ports = Ports.take(settings)
        except ConfigurationError as error:
            raise ConfigurationError(error.message, at=at) from error
        return cls(settings, ports, clock, allow_undeclared=request.allow_undeclared)

    def attach(self, job: Job, note: Callable[[str], None]) -> None:
        """Answer while the job runs; `note` writes to its log."""
        job.at_start(lambda: self._start(job, note))
        job.at_end(lambda: self._end(job))

    def close(self) -> None:
        """Complete the requests in progress, then end and close the ports."""
        if self._server is not None:
            self._server.stop()
        self._ports.close()

    def _start(self, job: Job, note: Callable[[str], None]) -> None:
        from millstream.query.server import QueryServer

        try:
            view = open_store_of_job(job.store, self._clock.now_ms, allow_undeclared=self._allow_undeclared)
            server = QueryServer(view, self._settings, job.store, self._clock.now_ms, self._ports)
            self._server = server.start()
        except Exception as error:
            self.close()
            _LOG.warning("the job runs without its query server, which could not start: %s", error)
            return
        seen = 0

        def on_progress(progress: JobProgress) -> None:
            nonlocal seen
            if progress.epoch != seen:
                seen = progress.epoch
                view.check_again()

        job.board.listen(on_progress)
        job.board.change(query_url=server.url)
        flight = "" if server.flight_url is None else f", in Arrow Flight at {server.flight_url}"
        note(f"queries of the job's state are answered at {server.url}{flight}")

    def _end(self, job: Job) -> None:
        try:
            self.close()
        except Exception as error:
            _LOG.warning("the job's query server did not end properly: %s", error)
        job.board.change(query_url="")
