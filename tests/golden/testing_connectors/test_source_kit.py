"""The source kit detects faulty sources: for each contract a source that violates it, and the check that fails."""

from __future__ import annotations

import itertools
import threading
import time
from typing import Any

import pytest

from millstream.common.typeinfo import Types
from millstream.datastream.connectors.python import PythonSource, Split
from millstream.testing.connectors import Broken, ConnectorCheckError, check_source

_CALLS = itertools.count()


class Good(PythonSource):
    """Numbers below 24 in two splits."""

    bounded = True

    def splits(self, context: Any) -> Any:
        return [Split("a", 0, 0), Split("b", 0, 100)]

    def reach(self, split: Split, offset: Any, budget: int, context: Any) -> Any:
        return min(offset + budget, 12)

    def finished(self, split: Split, offset: Any) -> bool:
        return bool(offset >= 12)

    def read(self, split: Split, start: Any, stop: Any) -> Any:
        yield [split.info + n for n in range(start, stop)]


class NotReplayable(Good):
    """Every read returns new records, as a queue does."""

    def read(self, split: Split, start: Any, stop: Any) -> Any:
        yield [next(_CALLS) for _ in range(start, stop)]


class CountsByItself(Good):
    """Assumes that ranges are read in sequence."""

    def __init__(self) -> None:
        self.at: dict[str, int] = {}

    def read(self, split: Split, start: Any, stop: Any) -> Any:
        first = self.at.get(split.name, start)
        self.at[split.name] = first + stop - start
        yield [split.info + n for n in range(first, first + stop - start)]


class DropsTheLastOfARange(Good):
    def read(self, split: Split, start: Any, stop: Any) -> Any:
        yield [split.info + n for n in range(start, stop - (stop - start > 2))]


class ReadsOnePastTheEnd(Good):
    """Treats `stop` as inclusive."""

    def read(self, split: Split, start: Any, stop: Any) -> Any:
        yield [split.info + n for n in range(start, stop + 1)]


class SharesItsCursor(Good):
    def __init__(self) -> None:
        self.cursor = 0

    def read(self, split: Split, start: Any, stop: Any) -> Any:
        self.cursor = start
        while self.cursor < stop:
            yield [split.info + self.cursor]
            self.cursor += 1


class DeletesCommittedRecords(Good):
    committed_at: int = 0

    def committed(self, positions: Any) -> None:
        self.committed_at = min(positions.values())

    def read(self, split: Split, start: Any, stop: Any) -> Any:
        yield [split.info + n for n in range(max(start, self.committed_at), stop)]


class StartsOverAfterARestart(Good):
    lives = itertools.count(1)

    def opened(self, store: Any, session: Any) -> Any:
        self.shift = 0 if next(self.lives) == 1 else 1000
        return self

    def read(self, split: Split, start: Any, stop: Any) -> Any:
        yield [self.shift + split.info + n for n in range(start, stop)]


class NeverFinishes(Good):
    def finished(self, split: Split, offset: Any) -> bool:
        return False


class AdvancesOnReach(Good):
    def __init__(self) -> None:
        self.more = 0

    def reach(self, split: Split, offset: Any, budget: int, context: Any) -> Any:
        self.more += 1
        return min(offset + budget + self.more, 12)


class HoldsALock(Good):
    def __init__(self) -> None:
        self.lock = threading.Lock()


class DeclaresAnotherType(Good):
    type_info = Types.STRING()


class OffsetsOfTuples(Good):
    def reach(self, split: Split, offset: Any, budget: int, context: Any) -> Any:
        return (offset, budget)


class MakesNoProgress(Good):
    """Reads nothing if the byte budget is tiny."""

    def read_within(self, split: Split, start: Any, stop: Any, bytes_max: int) -> Any:
        stop = min(stop, start + bytes_max // 8)
        yield [split.info + n for n in range(start, stop)]
        return stop


class SkipsOversizedRecords(Good):
    """Reports the end of the range, although it left records out."""

    def read_within(self, split: Split, start: Any, stop: Any, bytes_max: int) -> Any:
        yield [split.info + start]


class Endless(Good):
    bounded = False

    def reach(self, split: Split, offset: Any, budget: int, context: Any) -> Any:
        return offset + budget

    def finished(self, split: Split, offset: Any) -> bool:
        return False


def failed(source: PythonSource, **settings: Any) -> set[str]:
    return {check.name for check in check_source(source, raises=False, **settings).failures}


def test_a_good_source_passes_everything_that_applies() -> None:
    report = check_source(Good(), expected=[*range(12), *range(100, 112)])
    assert not report.failures
    assert {check.name for check in report.checks if check.verdict == "left out"} == {"settled", "bytes"}
    assert "24 records" in str(report)


def test_an_unbounded_source_is_checked_as_far_as_it_is_read() -> None:
    report = check_source(Endless(), ranges_max=4)
    assert report.check("job").verdict == "passed" and report.check("end").verdict == "left out"


@pytest.mark.parametrize(
    ("source", "checks"),
    [
        (
            NotReplayable,
            {"replay", "order", "cuts", "whole", "torn", "twice-at-once", "restart", "going-back", "job"},
        ),
        (CountsByItself, {"replay", "order"}),
        (DropsTheLastOfARange, {"cuts", "whole"}),
        (ReadsOnePastTheEnd, {"cuts", "whole", "empty", "job"}),
        (SharesItsCursor, {"twice-at-once"}),
        (DeletesCommittedRecords, {"going-back"}),
        (StartsOverAfterARestart, {"restart", "going-back"}),
        (NeverFinishes, {"end"}),
        (AdvancesOnReach, {"reach"}),
        (MakesNoProgress, {"bytes"}),
        (SkipsOversizedRecords, {"bytes"}),
        (HoldsALock, {"travels"}),
        (DeclaresAnotherType, {"reads"}),
        (OffsetsOfTuples, {"reads"}),
    ],
)
def test_each_contract_violation_is_detected(source: type[PythonSource], checks: set[str]) -> None:
    left_out = {"job": "it would wait for its end"} if source is NeverFinishes else {}
    assert checks <= failed(source(), left_out=left_out)


def test_a_failure_is_raised_with_a_summary_first() -> None:
    with pytest.raises(ConnectorCheckError) as raised:
        check_source(SharesItsCursor())
    [headline, first, *_] = str(raised.value).splitlines()
    assert headline.startswith("SharesItsCursor (replayable): ") and "failed" in headline
    assert first.startswith("  ✗ two tasks may read the same range at the same time: split 'a' from 0 to 5: record ")
    assert raised.value.report.check("twice-at-once").verdict == "failed"


def test_wrong_expectations_list_missing_and_unexpected_records() -> None:
    report = check_source(Good(), expected=[*range(11), *range(100, 112), 7], raises=False)
    assert report.check("reads").detail == "lost: 7; never written: 11"


def test_a_source_declared_as_not_replayable_skips_replay_checks() -> None:
    class OnceOnly(NotReplayable):
        replayable = False

    report = check_source(OnceOnly(), left_out={"job": "its records differ each time"})
    assert report.check("replay").verdict == "left out" and "(not replayable)" in str(report)


class Reader(Good):
    def __init__(self, table: str, password: str, how: str) -> None:
        self.table, self.password, self.how = table, password, how

    def read(self, split: Split, start: Any, stop: Any) -> Any:
        if self.how == "accident":
            {}[self.table]
        elif self.how == "clear":
            raise RuntimeError(f"table {self.table!r} is not there: create it, or name another")
        elif self.how == "secret":
            raise RuntimeError(f"table {self.table!r} is not there for {self.password}: create it")
        elif self.how == "slow":
            time.sleep(5)
        yield []


@pytest.mark.parametrize(
    ("how", "verdict", "words"),
    [
        ("clear", "passed", "table 'ledger' is not there"),
        ("accident", "failed", "an accident"),
        ("secret", "failed", "shows a secret"),
        ("slow", "failed", "raises nothing within 0.2 s"),
        ("silent", "failed", "raises no error"),
    ],
)
def test_error_messages_are_checked_for_usefulness(how: str, verdict: str, words: str) -> None:
    missing = Broken(
        "a missing table", lambda: Reader("ledger", "hunter2", how), ["ledger"], 0.2 if how == "slow" else 30
    )
    check = check_source(Good(), broken=[missing], secrets=["hunter2"], raises=False).check("a-missing-table")
    assert check.verdict == verdict and words in check.detail


def test_a_secret_in_a_split_is_detected_because_splits_are_stored() -> None:
    class Careless(Good):
        def splits(self, context: Any) -> Any:
            return [Split("a", 0, 0), Split("b", 0, 100), Split("hunter2", 12, 0)]

    assert failed(Careless(), secrets=["hunter2"]) == {"secrets"}


def test_skipping_an_unknown_check_is_rejected() -> None:
    with pytest.raises(ValueError, match="there is no check 'rePlay' to leave out; there are travels, reads, reach"):
        check_source(Good(), left_out={"rePlay": "by mistake"})
