"""The meaning of an epoch's failure is reported whatever happens to the store concurrently."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.errors import StoreAwayError, UnsentFileError
from millstream.jobs.epochs.failures import judge
from millstream.runtime.operators.user_code import FailureReport, UserFailureError
from millstream.state.segments.version import SegmentRef
from millstream.state.stored.accounts import OperatorAccount, StoredTables, SubtaskAccount, to_json
from millstream.storage.local import LocalStore

REF = SegmentRef("segments/op/total/000000000001-00000-a.arrow", 1, 0, 128, 0, 128, 1, 10)
OTHER = "segments/op/total/000000000002-00000-b.arrow"


class StoreWithVanishingSegments(LocalStore):
    """Its segments vanish just after they were listed."""

    def exists(self, name: str) -> bool:
        return name.startswith("segments/") or super().exists(name)


def test_an_unreachable_store_is_distinguished_from_a_file_another_machine_has_not_uploaded(tmp_path: Path) -> None:
    """In the second case the store is reachable: the file is lost, unless an epoch less far ahead can read it."""
    log = ManifestLog(LocalStore(tmp_path))
    for error, excuse in ((StoreAwayError("no answer"), "away"), (UnsentFileError("not sent"), "lost")):
        report = FailureReport("op", "op", "", "state", type(error).__name__, error.message, "")
        for failure in (error, UserFailureError(report)):
            judged = judge(failure, log, LocalStore(tmp_path), None, ahead=True)
            assert (judged.retryable, judged.excuse) == (True, excuse)


def test_a_file_that_vanishes_while_the_damage_is_measured_does_not_hide_the_damage(tmp_path: Path) -> None:
    store = StoreWithVanishingSegments(tmp_path)
    account = OperatorAccount(subtasks={0: SubtaskAccount(tables=StoredTables({"total": (REF,)}))})
    first = Manifest(job="j", job_id="j1", epoch=1, parent=0, created_ms=0, run="a", states={"op": to_json(account)})
    log = ManifestLog(store)
    assert log.commit(first) and log.commit(replace(first, epoch=2, parent=1))
    report = FailureReport("op", "op", "", "function", "StoreDamagedError", f"{OTHER} is damaged", "")
    judged = judge(UserFailureError(report), log, store, log.newest())
    assert not judged.retryable and f"{OTHER} is damaged" in judged.reason
