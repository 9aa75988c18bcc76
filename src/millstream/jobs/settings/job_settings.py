"""The settings of a job besides its graph: its store, its mode, its restart strategy.

The environment makes them (`datastream/environment`): settings with a method of their own have a field, the others are
in `configuration`, as strings under Flink's and our option names. `driver_settings.py` interprets that text.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from millstream.common.restart_strategy import RestartStrategyConfiguration
from millstream.graph.site import UNKNOWN_SITE, Site

__all__ = ["JobSettings", "RuntimeMode"]

RuntimeMode = Literal["STREAMING", "BATCH", "AUTOMATIC"]


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
