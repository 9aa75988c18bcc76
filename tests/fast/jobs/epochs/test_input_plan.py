"""How far an epoch reads: a budget shared among splits by their backlog, and sources of very many splits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from programs.ten_records import TenRecords

from millstream.checkpoint import finished_splits
from millstream.checkpoint.manifest import Manifest, ManifestLog, SplitPosition, decode, encode
from millstream.checkpoint.savepoints import copy_savepoint, find_snapshot
from millstream.checkpoint.snapshot_names import parse_snapshot_name
from millstream.common import Configuration, Types, WatermarkStrategy
from millstream.connectors.contracts import Source, SourceContext
from millstream.connectors.files.lines import TextLines
from millstream.connectors.files.source import FileSource
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import StoreDamagedError
from millstream.jobs.epochs import input_planner
from millstream.jobs.epochs.input_plan import Cursor, InputPlan, PlannedSource, homes, share_out
from millstream.jobs.epochs.input_planner import plan_input
from millstream.storage import open_store
from millstream.storage.memory import MemoryStore
from millstream.testing import run

CONTEXT = SourceContext(now_ms=0, run_started_ms=0, parallelism=2)


# --- shares ---------------------------------------------------------------------------------------------------


def share_budget(stored: list[int], budget: int) -> list[tuple[int, int]]:
    return share_out([0] * len(stored), budget, lambda i, share: min(stored[i], share))


def test_one_busy_split_of_ten_thousand_gets_the_budget_unused_by_idle_ones() -> None:
    stored = [0] * 9_999 + [10**9]
    assert share_budget(stored, 500_000)[-1][0] == 500_000
    one_record_each = [1] * 9_999 + [10**9]
    assert share_budget(one_record_each, 500_000)[-1][0] >= 490_000


@given(st.lists(st.integers(0, 500) | st.integers(0, 100_000), max_size=40), st.integers(1, 50_000))
def test_shares_respect_the_budget_and_no_split_with_a_larger_backlog_gets_less(stored: list[int], budget: int) -> None:
    shares = share_budget(stored, budget)
    waiting = [amount for amount in stored if amount]
    assert sum(stop for stop, _ in shares) <= max(budget, len(waiting))
    largest = max((share for _, share in shares), default=0)
    for amount, (stop, share) in zip(stored, shares, strict=True):
        assert stop == min(amount, share)
        assert stop == amount or share == largest
    if budget >= 1_000 and sum(stored) > budget:
        # The estimated need may be eight times the real one: at least an eighth of a large budget is read.
        assert sum(stop for stop, _ in shares) >= budget // 8


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 8))
def test_splits_stay_on_their_subtask_and_counts_differ_by_at_most_one(before: list[int], parallelism: int) -> None:
    names = [f"split {number}" for number in range(len(before) + 3)]
    settled = homes(names, dict(zip(names, before, strict=False)), parallelism)
    counts = [list(settled.values()).count(subtask) for subtask in range(parallelism)]
    assert list(settled) == names and max(counts) - min(counts) <= 1
    assert homes(names, settled, parallelism) == settled


# --- splits that are no longer listed --------------------------------------------------------------------------


def plan_of(source: Source, positions: dict[str, SplitPosition], **options: Any) -> InputPlan:
    return plan_input((PlannedSource("in", source, 2),), {"in": positions}, 1_000_000, CONTEXT, **options)


@pytest.mark.parametrize("sequential", [False, True])
def test_splits_listed_as_finished_in_a_file_are_not_read_again(sequential: bool) -> None:
    plan = plan_of(TenRecords(["a", "b", "c"], sequential), {"b": SplitPosition(4)}, finished={"in": {"a"}})
    assert [(range_.split.name, range_.start) for range_ in plan.reads["in"]] == [("b", 4), ("c", 0)]


# --- sources of very many splits -------------------------------------------------------------------------------


def test_only_the_first_unfinished_splits_of_a_sequential_source_are_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_planner, "SPLITS_AT_ONCE", 3)
    source = TenRecords([f"{number:03d}" for number in range(100)], sequential=True)
    positions = {"000": SplitPosition(10, True), "001": SplitPosition(10, True), "003": SplitPosition(10, True)}
    plan = plan_of(source, positions)
    assert [range_.split.name for range_ in plan.reads["in"]] == ["002", "004", "005"]
    assert plan.unread == {"in": 94} and plan.cursors == {"in": Cursor(6, 100, (2, 4, 5))} and not plan.exhausted
    later = plan_of(source, positions | {"002": SplitPosition(10, True)}, cursors=plan.cursors)
    assert [range_.split.name for range_ in later.reads["in"]] == ["004", "005", "006"]
    assert later.cursors == {"in": Cursor(7, 100, (4, 5, 6))}


def test_a_slow_split_does_not_cause_finished_ones_to_be_checked_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(input_planner, "SPLITS_AT_ONCE", 3)
    source = TenRecords([f"{number:03d}" for number in range(100)], sequential=True)
    positions: dict[str, SplitPosition] = {}
    cursors: Mapping[str, Cursor] = {}
    checks = 0

    class Counted(dict[str, SplitPosition]):
        def get(self, name: str, default: Any = None) -> Any:
            nonlocal checks
            checks += 1
            return super().get(name, default)

    for _ in range(49):
        plan = plan_of(source, Counted(positions), cursors=cursors)
        cursors = plan.cursors
        names = [range_.split.name for range_ in plan.reads["in"]]
        assert names[0] == "000" and len(names) == 3, "the first split is never finished"
        positions |= {name: SplitPosition(10, True) for name in names[1:]}
    assert checks <= 49 * 6


def lines_of(tmp_path: Any, files: int) -> None:
    for number in range(files):
        (tmp_path / f"{number:04d}.txt").write_text(f"{number} first\n{number} second\n")


def read_files(env: StreamExecutionEnvironment, folder: Any) -> None:
    source = FileSource([str(folder)], TextLines())
    lines = env._read(source, WatermarkStrategy.no_watermarks(), "files").set_parallelism(1)
    lines.map(str.upper, Types.STRING()).print()


@pytest.fixture
def short_lists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(finished_splits, "LISTED_MAX", 5)
    monkeypatch.setattr(input_planner, "SPLITS_AT_ONCE", 4)


def test_a_job_that_reads_many_files_has_small_manifests_and_reads_each_once(
    tmp_path: Any, short_lists: None, capsys: pytest.CaptureFixture[str]
) -> None:
    lines_of(tmp_path, 40)
    result = run(lambda env: read_files(env, tmp_path), epoch_records=8, store="many-files")
    printed = capsys.readouterr().out.split("\n")[:-1]
    assert sorted(printed) == sorted(f"{n} {which}" for n in range(40) for which in ("FIRST", "SECOND"))
    newest = result.manifests[-1]
    [(uid, files)] = newest.finished.items()
    assert sum(file.splits for file in files) + len(newest.sources[uid]) == 40
    assert all(len(manifest.sources[uid]) <= 5 + 2 * 4 for manifest in result.manifests)
    again = run(lambda env: read_files(env, tmp_path), epoch_records=8, store="many-files")
    assert capsys.readouterr().out == "" and not again.manifests  # the job had ended


def test_a_replaced_list_of_finished_splits_is_detected(tmp_path: Any, short_lists: None) -> None:
    lines_of(tmp_path, 20)
    result = run(lambda env: read_files(env, tmp_path), epoch_records=8, store="exchanged-lists")
    store, [files] = open_store("memory://exchanged-lists"), result.manifests[-1].finished.values()
    store.put(files[0].file, store.get(files[-1].file))
    newest = ManifestLog(store).newest()
    with pytest.raises(StoreDamagedError, match=r"finished/.*list of finished input, does not match its checksum"):
        finished_splits.FinishedSplits(store).names(newest)


@pytest.mark.parametrize("copied", [False, True], ids=["a fork", "a savepoint in a folder of its own"])
def test_a_job_started_on_another_machine_reads_the_lists_of_finished_splits(
    tmp_path: Any, short_lists: None, capsys: pytest.CaptureFixture[str], copied: bool
) -> None:
    lines_of(tmp_path, 40)
    old, copy, new = (f"lists-{copied}-{place}" for place in ("old", "copy", "new"))
    result = run(lambda env: read_files(env, tmp_path), epoch_records=8, store=old)
    middle = next(m for m in result.manifests if any(len(lists) == 3 for lists in m.finished.values()))
    start = f"memory://{old}@{middle.epoch}"
    if copied:
        copy_savepoint(find_snapshot(parse_snapshot_name(start)), MemoryStore(copy))
        start = f"memory://{copy}"
        for name in MemoryStore(old).list(""):
            MemoryStore(old).delete(name)

    def build(env: StreamExecutionEnvironment) -> None:
        env.configure(Configuration().set_string("execution.state-recovery.path", start))
        read_files(env, tmp_path)

    capsys.readouterr()
    again = run(build, epoch_records=8, store=new)
    [(uid, positions)] = middle.sources.items()
    listed = sum(file.splits for file in middle.finished[uid])
    assert 2 * (40 - listed - len(positions)) <= capsys.readouterr().out.count("\n") <= 2 * (40 - listed)
    newest = again.manifests[-1]
    assert sum(file.splits for file in newest.finished[uid]) + len(newest.sources[uid]) == 40


def test_the_watermark_waits_for_unread_splits(tmp_path: Any, short_lists: None) -> None:
    lines_of(tmp_path, 12)

    def build(env: StreamExecutionEnvironment) -> None:
        ascending = WatermarkStrategy.for_monotonous_timestamps()
        times = ascending.with_timestamp_assigner(lambda line, _: int(line.split()[0]))
        env._read(FileSource([str(tmp_path)], TextLines()), times, "files").print()

    watermarks = [m.watermark for m in run(build, epoch_records=4, store="waits").manifests]
    [uid] = run(build, epoch_records=4, store="waits-2").manifests[0].sources
    unread = [bool(m.states[uid].get("unread")) for m in run(build, epoch_records=4, store="waits-3").manifests]
    assert any(unread) and not unread[-1]
    assert all(at == min(watermarks) for at, behind in zip(watermarks, unread, strict=True) if behind)


def test_manifests_without_lists_still_have_the_first_format() -> None:
    plain = Manifest(job="j", job_id="j1", epoch=1, parent=0, created_ms=0, run="a")
    assert b'"millstream-manifest-1"' in encode(plain) and b"finished" not in encode(plain)
    assert decode(encode(plain), "manifests/000000000001.json") == plain


def test_a_split_that_vanished_unfinished_fails_the_job_without_skipping_records() -> None:
    logs = TenRecords(["a", "b"])
    with pytest.raises(Exception, match=r"no longer lists split 'b'.*not to its end"):
        plan_of(TenRecords(["a"]), {"a": SplitPosition(10, True), "b": SplitPosition(4)})
    plan = plan_of(logs, {"gone": SplitPosition(10, True)})
    assert plan.unlisted == {"in": {"gone"}}


def test_a_manifest_and_a_list_of_finished_splits_of_the_first_form_are_read() -> None:
    folder = Path(__file__).parents[3] / "compatibility"
    manifest = decode((folder / "manifest-2.json").read_bytes(), "manifests/000000000007.json")
    [file] = manifest.finished["files"]
    names = finished_splits.names_in(file, (folder / "finished-splits-1.json").read_bytes())
    assert names == {"in/0001.csv", "in/0002.csv", "in/ü.csv"} and file.splits == 3
    assert manifest.sources["files"]["in/0004.csv"] == SplitPosition({"byte": 7}, False, None)
    assert encode(manifest) == (folder / "manifest-2.json").read_bytes()
