"""Everything about a job that is not its graph: where it keeps its epochs, how it runs, how it restarts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from millstream.common.restart_strategy import RestartStrategyConfiguration
from millstream.graph.site import UNKNOWN_SITE, Site

__all__ = ["Clock", "JobSettings", "RuntimeMode"]

RuntimeMode = Literal["STREAMING", "BATCH", "AUTOMATIC"]


class Clock(Protocol):
    """Where the driver gets the time from. Tests bring their own."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC."""


@dataclass(frozen=True)
class JobSettings:
    """How to run a job.

    `store` None: a new folder below `./.millstream`, for this run only. `session` None: a Spark session is made.
    """

    store: str | None = None
    runtime_mode: RuntimeMode = "STREAMING"
    parallelism: int = 1
    max_parallelism: int = 128
    restart: RestartStrategyConfiguration | None = None
    checkpoint_interval_ms: int | None = None
    job_parameters: Mapping[str, str] = field(default_factory=dict)
    configuration: Mapping[str, str] = field(default_factory=dict)
    session: Any = None
    site: Site = UNKNOWN_SITE
