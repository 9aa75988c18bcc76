"""Creates the stored snapshots: a store, a self-contained savepoint of it, and the output after both.

    python tests/compatibility/make_snapshots.py 2

writes `store-2.zip`, `savepoint-2.zip` and `answer-2.json` in the format of the version that runs it. Existing
snapshots are never rewritten: older versions wrote them. Create new ones, under the next number, when a format changes.
"""

from __future__ import annotations

import json
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path

from saved_program import EPOCHS, SAVED, build

from millstream.checkpoint.manifest import ManifestLog
from millstream.checkpoint.retention import RetentionPolicy
from millstream.checkpoint.savepoints import copy_savepoint, find_snapshot
from millstream.checkpoint.snapshot_names import parse_snapshot_name
from millstream.jobs.epochs.sweeper import Sweeper
from millstream.storage.memory import MemoryStore
from millstream.testing import Collect, run

HERE = Path(__file__).resolve().parent
JOB = "saved"


def make(number: int) -> None:
    """Write the snapshots of this version under `number`."""
    store, copy = MemoryStore("saved"), MemoryStore("copied")
    run(lambda env: build(env, Collect()), store="saved", epochs=SAVED, job_name=JOB)
    Sweeper(store, lambda: 0, RetentionPolicy(keep_last=2)).sweep(ManifestLog(store).newest())
    copy_savepoint(find_snapshot(parse_snapshot_name(f"{store.url}@{SAVED}")), copy)
    _pack(store, [name for name in store.list("") if not name.startswith("logs/")], HERE / f"store-{number}.zip")
    _pack(copy, copy.list(""), HERE / f"savepoint-{number}.zip")
    (HERE / f"answer-{number}.json").write_text(json.dumps(_answer(), indent=1) + "\n")


def _answer() -> list[str]:
    """The output of an undisturbed run after the saved epoch."""
    out = Collect()
    result = run(lambda env: build(env, out), job_name=JOB)
    assert result.epochs == EPOCHS
    return sorted(record.value for record in out.records if record.epoch > SAVED)


def _pack(store: MemoryStore, names: Iterable[str], target: Path) -> None:
    """All files of a store, under their names; FileExistsError if snapshots of that number exist."""
    with zipfile.ZipFile(target, "x", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name in names:
            archive.writestr(zipfile.ZipInfo(name), store.get(name), zipfile.ZIP_DEFLATED)


if __name__ == "__main__":
    make(int(sys.argv[1]))
