"""The sink kit detects faulty sinks: for each contract a sink that violates it, and the check that fails."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from inputs.fresh_names import fresh_name

from millstream.datastream.connectors.python import TwoPhaseSink
from millstream.testing.connectors import Broken, ConnectorCheckError, check_sink


class Pages(TwoPhaseSink):
    """One file per commit, renamed into place: a correct sink."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def open(self, context: Any) -> None:
        self.values: list[Any] = []

    def write(self, values: list[Any]) -> None:
        self.values.extend(values)

    def stage(self) -> Any:
        return self.values or None

    def put(self, name: str, values: list[Any]) -> None:
        self.folder.mkdir(exist_ok=True)
        unfinished = self.folder / fresh_name(".unfinished")
        unfinished.write_text(json.dumps(values))
        os.rename(unfinished, self.folder / name)

    def commit(self, commit: Any, staged: Any) -> None:
        self.put(str(commit), [value for values in staged for value in values])


class NamedByEpoch(Pages):
    """Another job, sink or incarnation has epochs of the same number."""

    def commit(self, commit: Any, staged: Any) -> None:
        self.put(f"{commit.epoch}", [value for values in staged for value in values])


class AddsEveryTime(Pages):
    def commit(self, commit: Any, staged: Any) -> None:
        self.put(fresh_name("page"), [value for values in staged for value in values])


class SeenAtOnce(Pages):
    def stage(self) -> Any:
        self.put(fresh_name("page"), self.values)
        return True

    def commit(self, commit: Any, staged: Any) -> None:
        """Everything has already been done."""


class HalfDone(Pages):
    """Records its completion before it is complete."""

    def commit(self, commit: Any, staged: Any) -> None:
        if (self.folder / f".done-{commit}").exists():
            return
        self.folder.mkdir(exist_ok=True)
        (self.folder / f".done-{commit}").touch()
        super().commit(commit, staged)


class OnePageForEachValue(Pages):
    """A new name each time: the half written before a crash is written again."""

    def commit(self, commit: Any, staged: Any) -> None:
        if (self.folder / f".done-{commit}").exists():
            return
        for values in staged:
            self.put(fresh_name("page"), values)
        (self.folder / f".done-{commit}").touch()


class IgnoresAttempts(Pages):
    """All attempts of a task stage under one name."""

    def open(self, context: Any) -> None:
        super().open(context)
        self.name = f".staged-{context.job}-{context.epoch}-{context.subtask}"

    def stage(self) -> Any:
        self.folder.mkdir(exist_ok=True)
        with (self.folder / self.name).open("a") as file:
            file.writelines(f"{value}\n" for value in self.values)
        return self.name

    def commit(self, commit: Any, staged: Any) -> None:
        self.put(str(commit), [int(line) for name in staged for line in (self.folder / name).read_text().split()])


class LastWriteWins(Pages):
    """One page per job: a late driver restores the old one."""

    def commit(self, commit: Any, staged: Any) -> None:
        pages = {}
        if (self.folder / commit.committer).exists():
            pages = json.loads((self.folder / commit.committer).read_text())[0]
        pages = {number: page for number, page in pages.items() if int(number) < commit.epoch}
        pages[str(commit.epoch)] = [value for values in staged for value in values]
        self.put(commit.committer, [pages])


class KnowsItsSubtasks(Pages):
    """Remembers which subtasks are done, and rejects the third."""

    def open(self, context: Any) -> None:
        super().open(context)
        self.subtask = context.subtask

    def stage(self) -> Any:
        return self.values if self.subtask < 2 else None


class InTasks(Pages):
    commit_in = "tasks"


def read(folder: Path) -> list[Any]:
    pages = [json.loads(path.read_text()) for path in sorted(folder.glob("[!.]*"))]
    values = []
    for item in (item for page in pages for item in page):
        values.extend([value for page in item.values() for value in page] if isinstance(item, dict) else [item])
    return values


def check(kind: type[Pages], folder: Path, **settings: Any) -> Any:
    return check_sink(
        lambda place: kind(folder / place), lambda place: read(folder / place), records=list(range(14)), **settings
    )


def test_a_good_sink_passes_everything(tmp_path: Path) -> None:
    report = check(Pages, tmp_path)
    assert {one.verdict for one in report.checks} == {"passed"} and len(report.checks) == 18


def test_a_sink_that_publishes_in_tasks_is_checked_without_spark(tmp_path: Path) -> None:
    assert {one.verdict for one in check(InTasks, tmp_path).checks} == {"passed"}


@pytest.mark.parametrize(
    ("kind", "checks"),
    [
        (NamedByEpoch, {"two-jobs", "two-sinks"}),
        (AddsEveryTime, {"repeat", "late-driver", "two-drivers"}),
        (SeenAtOnce, {"unseen", "task", "task-twice"}),
        (HalfDone, {"crash", "crash-process"}),
        (OnePageForEachValue, {"crash", "crash-process"}),
        (IgnoresAttempts, {"task", "task-twice"}),
        (LastWriteWins, {"late-driver"}),
        (KnowsItsSubtasks, {"rescale"}),
    ],
)
def test_each_contract_violation_of_a_sink_is_detected(kind: type[Pages], checks: set[str], tmp_path: Path) -> None:
    found = {one.name for one in check(kind, tmp_path, raises=False).failures}
    assert checks <= found, found


def test_a_crash_is_reported_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(ConnectorCheckError) as raised:
        check(HalfDone, tmp_path)
    assert "a crash at any line of commit() loses and doubles nothing: after a crash at test_sink_kit.py:" in str(
        raised.value
    )
    assert "lost: 7, 8, 9, 10, 11 and 2 more" in str(raised.value)


def test_a_failure_before_a_skipped_check_is_still_reported(tmp_path: Path) -> None:
    class Away(Pages):
        def commit(self, commit: Any, staged: Any) -> None:
            raise ConnectionError("nobody answers")

    with pytest.raises(ConnectorCheckError, match="nobody answers"):
        check(Away, tmp_path, left_out={"crash-process": "it does not survive a fork"})


def test_at_least_once_may_repeat_but_not_lose(tmp_path: Path) -> None:
    class Repeats(AddsEveryTime):
        guarantee = "at-least-once"

    class Loses(Repeats):
        def stage(self) -> Any:
            return self.values[1:] or None

    assert not check(Repeats, tmp_path).failures
    assert "plain" in {one.name for one in check(Loses, tmp_path, raises=False).failures}


def test_a_keyed_table_shows_the_last_row_of_each_key(tmp_path: Path) -> None:
    """The expectation is a function of the written rows, in their order."""
    report = check_sink(
        lambda place: Pages(tmp_path / place),
        lambda place: sorted({value % 3 for value in read(tmp_path / place)}),
        records=list(range(14)),
        expected=lambda written: sorted({value % 3 for value in written}),
    )
    assert not report.failures


def test_error_messages_of_sinks_are_checked_too(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    missing = Broken("a file in the way", lambda: Pages(tmp_path / "file" / "folder"), says=["file"])
    report = check(Pages, tmp_path, broken=[missing], secrets=["hunter2"])
    assert "Not a directory" in report.check("a-file-in-the-way").detail
    assert report.check("secrets").verdict == "passed"


def test_a_staged_secret_is_detected(tmp_path: Path) -> None:
    class Careless(Pages):
        def stage(self) -> Any:
            return [*self.values, "hunter2"] if self.values else None

        def commit(self, commit: Any, staged: Any) -> None:
            super().commit(commit, [values[:-1] for values in staged])

    assert {one.name for one in check(Careless, tmp_path, secrets=["hunter2"], raises=False).failures} == {"secrets"}
