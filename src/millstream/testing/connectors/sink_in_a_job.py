"""Tests a sink in a real job that crashes and restarts, with the real engine in this process."""

from __future__ import annotations

import secrets

from millstream.connectors.contracts import Sink
from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment
from millstream.testing.connectors.records import bag_difference
from millstream.testing.connectors.report import Checklist, Skipped
from millstream.testing.connectors.sink_scene import SinkTrial
from millstream.testing.in_memory import run
from millstream.testing.script import CRASH, EPOCH, Script

__all__ = ["check_in_a_job"]


def check_in_a_job(checks: Checklist, trial: SinkTrial) -> None:
    checks.run("job", "a job that crashes and is started again writes every record once", lambda: _in_a_job(trial))


def _in_a_job(trial: SinkTrial) -> str:
    if trial.session is not None:
        raise Skipped("it needs a Spark session")
    place, store = f"place{secrets.token_hex(6)}", f"kit-{secrets.token_hex(8)}"
    third = max(1, len(trial.records) // 3)
    items = [
        *trial.records[:third],
        EPOCH,
        *trial.records[third : 2 * third],
        CRASH,
        EPOCH,
        *trial.records[2 * third :],
    ]
    script = Script(items, type_info=trial.type_info)

    def build(env: StreamExecutionEnvironment) -> None:
        sink: Sink = trial.make(place)
        env.add_source(script, "records").uid("records").rebalance().sink_to(sink).uid("sink")

    for epochs, parallelism in ((1, 2), (None, 3)):
        run(build, store=store, epochs=epochs, parallelism=parallelism, job_name="kit", timeout_s=120)
    published = list(trial.read(place))
    difference = bag_difference(published, trial.expected(trial.records), repeats_allowed=not trial.is_exact)
    assert not difference, difference
    return "at parallelism 2, then 3"
