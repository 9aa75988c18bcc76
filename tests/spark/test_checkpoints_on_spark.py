"""Checkpoint settings and statistics where Spark runs the tasks."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from millstream.checkpoint.manifest import ManifestLog
from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.jobs.epochs.epoch_history import history
from millstream.jobs.epochs.epoch_statistics import statistics_of
from millstream.storage import open_store
from millstream.testing import EPOCH, Collect, Script


def test_an_epoch_that_hangs_is_cancelled_in_time_and_run_again(
    env: StreamExecutionEnvironment, tmp_path: Path
) -> None:
    hung = tmp_path / "hung"

    def hangs_once(n: int) -> int:
        if n == 3 and not hung.exists():
            hung.touch()
            time.sleep(600)
        return n

    out, folder = Collect(), str(tmp_path / "store")
    env.set_store(folder).set_parallelism(2)
    config = env.get_checkpoint_config().set_checkpoint_timeout(15_000)
    config.set_tolerable_checkpoint_failure_number(1)
    numbers = env.add_source(Script([1, 2, EPOCH, 3, 4], type_info=Types.LONG()))
    numbers.rebalance().map(hangs_once, Types.LONG()).sink_to(out)
    env.execute()
    assert sorted(out.values) == [1, 2, 3, 4]
    log = ManifestLog(open_store(folder))
    manifests = [log.read(epoch) for epoch in log.epochs()]
    # The first epoch starts the workers, which may take long on a busy machine, even too long; and by how long it took
    # the next ones are sized: they may read the two records that are left together, or one after the other.
    failures = [entry.failures or 0 for entry in history(manifests)]
    assert sum(failures[1:]) == 1
    told: Any = statistics_of(manifests[failures.index(1, 1)])
    assert 1 <= told["in"] == told["out"] <= 2 and [stage["tasks"] for stage in told["stages"]] == [1, 2]
    assert all(stage["took_us"]["min"] > 0 for stage in told["stages"])
