"""What a program says of its job besides the graph: where it keeps its epochs, how it runs, how it restarts.

The environment makes it (`datastream/environment`): what has a method of its own stands in a field, the rest in
`configuration`, as text under Flink's and our option names. What that text means is read in `driver_settings.py`.
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
