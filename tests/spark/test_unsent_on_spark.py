"""Files not yet uploaded by a Python worker: Spark ends idle workers, and the driver makes other executors upload
them.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from waits.patience import PATIENCE_S

from millstream.runtime.task.spec import JobFacts
from millstream.spark.unsent_files import UnsentFiles
from millstream.storage.local import LocalStore
from millstream.storage.patience import PatientStore
from millstream.storage.tier.local_tier import LocalTier
from millstream.storage.tier.tiered_store import TierSettings

NAME = "segments/count/total/7-a.arrow"


def test_executors_upload_files_of_dead_workers_on_request(spark: Any, tmp_path: Path) -> None:
    """The store is a folder wrapped with patience: to the tier it looks like a network store."""
    below = LocalStore(tmp_path / "store")
    dead = LocalTier(tmp_path / "tier", 1 << 20)
    dead.keep_unsent(below.url, NAME, b"abc")
    dead.close()
    facts = JobFacts("job", "id", "run", PatientStore(below), tier=TierSettings(str(tmp_path / "tier")))
    files = UnsentFiles(spark)
    files.send(JobFacts("job", "id", "run", PatientStore(below)))  # without a tier no executor is involved
    assert files._sender is None
    files.send(facts)
    deadline_s = time.monotonic() + PATIENCE_S
    while not below.exists(NAME) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    assert below.get(NAME) == b"abc"
