"""The small sinks: the driver publishes what tasks stage, exactly once per epoch where the target allows it."""

from __future__ import annotations

import json
import pickle
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import cloudpickle
import pytest

from millstream.common.typeinfo import TypeInformation, Types
from millstream.common.types import Row
from millstream.connectors import two_phase
from millstream.connectors.collect import CollectSink, drop_queue, open_queue
from millstream.connectors.contract_checks import planned_commit
from millstream.connectors.contracts import CommitId, CommitPlan, Json, Sink, WriterContext
from millstream.connectors.direct_sinks import DiscardingSink, ForeachSink
from millstream.connectors.print_sink import PrintSink
from millstream.connectors.staging import INLINE_BYTES_MAX, read_staged, stage_bytes
from millstream.connectors.two_phase import TwoPhaseSink
from millstream.errors import ConnectorAwayError, ProgramError, StoreDamagedError
from millstream.records.batch import Batch
from millstream.storage.store import Store, open_store
from millstream.testing import run


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Store:
    return open_store(f"memory://sinks-{request.node.name}")


def task(store: Store, subtask: int = 0, parallelism: int = 1, epoch: int = 1) -> WriterContext:
    return WriterContext("sink", epoch, subtask, parallelism, f"a{epoch}b{subtask}", store, 1_000, None, "a-job")


def commit_of(epoch: int) -> CommitId:
    return CommitId("a-job", "sink", epoch)


def staged(
    sink: Sink, context: WriterContext, values: list[Any], type_info: TypeInformation | None = None
) -> Sequence[Json]:
    writer = pickle.loads(pickle.dumps(sink)).writer(context)
    writer.write(Batch.of_values(values, type_info))
    return list(writer.stage())


def test_small_output_is_stored_in_the_manifest_and_large_output_in_a_file(store: Store) -> None:
    small = stage_bytes(task(store), b"x" * INLINE_BYTES_MAX, records=1)
    assert "inline" in small and store.list("") == []
    large = stage_bytes(task(store), b"x" * (INLINE_BYTES_MAX + 1), records=1)
    assert [large["file"]] == store.list("")
    assert read_staged(large, store) == b"x" * (INLINE_BYTES_MAX + 1)


def test_damaged_output_is_never_published(store: Store) -> None:
    payload = stage_bytes(task(store), b"x" * 100_000, records=1)
    store.put(payload["file"], b"x" * 99_999 + b"y")
    with pytest.raises(StoreDamagedError, match="truncated or changed"):
        read_staged(payload, store)
    store.put(payload["file"], b"x" * 10)
    with pytest.raises(StoreDamagedError, match="has 10 bytes"):
        read_staged(payload, store)
    with pytest.raises(StoreDamagedError):
        read_staged({**stage_bytes(task(store), b"ab", 1), "inline": "YWM="}, store)


def test_values_are_printed_as_pyflink_prints_them(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    sink = PrintSink()
    rows = staged(sink, task(store), [Row("a", 1)], Types.ROW([Types.STRING(), Types.INT()]))
    sink.commit(commit_of(1), rows, store)
    assert capsys.readouterr().out == "+I[a,1]\n"
    sink.commit(commit_of(2), staged(sink, task(store, 1, 2), ["x", "y"]), store)
    assert capsys.readouterr().out == "2> x\n2> y\n"
    named = PrintSink("id", to_stderr=True)
    named.commit(commit_of(3), [*staged(named, task(store, 0, 2), [1]), *staged(named, task(store, 1, 2), [2])], store)
    assert capsys.readouterr().err == "id:1> 1\nid:2> 2\n"
    named.commit(commit_of(4), staged(named, task(store), [None]), store)
    assert capsys.readouterr().err == "id> None\n"


def test_print_uses_the_stdout_at_publish_time(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    class Screen:
        text = ""

        def write(self, text: str) -> None:
            self.text += text

        def flush(self) -> None: ...

    sink, screen = PrintSink(), Screen()
    lines = staged(sink, task(store), ["late"])
    monkeypatch.setattr(sys, "stdout", screen)
    sink.commit(commit_of(1), lines, store)
    assert screen.text == "late\n"


def test_print_accepts_a_console_and_is_still_sent_to_tasks(store: Store) -> None:
    shown: list[str] = []
    sink = PrintSink("id").printing_to(shown.append)
    sink.commit(commit_of(1), staged(sink, task(store), ["a", "b"]), store)
    assert shown == ["id> a\nid> b\n"]


def test_many_lines_are_printed_completely_and_in_order(store: Store) -> None:
    shown: list[str] = []
    sink = PrintSink().printing_to(shown.append)
    payload = staged(sink, task(store), list(range(50_000)))
    assert "file" in payload[0]
    sink.commit(commit_of(1), payload, store)
    assert shown == ["".join(f"{n}\n" for n in range(50_000))]


def test_an_epoch_without_records_stages_and_prints_nothing(store: Store) -> None:
    shown: list[str] = []
    sink = PrintSink().printing_to(shown.append)
    assert sink.writer(task(store)).stage() == ()
    sink.commit(commit_of(1), (), store)
    assert shown == []


@pytest.mark.parametrize("type_info", [None, Types.ROW_NAMED(["name", "age"], [Types.STRING(), Types.LONG()])])
def test_collected_rows_arrive_once_although_the_epoch_is_published_twice(
    store: Store, type_info: TypeInformation | None
) -> None:
    sink = CollectSink(type_info)
    rows = [Row(name="a", age=1), Row(name="b", age=None)]
    first, second = staged(sink, task(store, 0, 2), rows, type_info), staged(sink, task(store, 1, 2), rows, type_info)
    for _ in range(2):
        sink.commit(commit_of(1), [*first, *second], store)
    sink.commit(commit_of(2), [], store)
    assert open_queue(sink.id).take(timeout_s=0) == rows + rows
    assert open_queue(sink.id).take(timeout_s=0) == []
    drop_queue(sink.id)


def test_a_closed_queue_neither_blocks_the_job_nor_retains_records() -> None:
    queue = open_queue("closed", capacity_records=1)
    queue.deliver(commit_of(1), [1, 2])
    drop_queue("closed")
    queue.deliver(commit_of(2), [3])
    assert queue.take(timeout_s=0) == [1, 2]


def test_the_discarding_sink_counts_rows_without_converting_columns_to_values(store: Store) -> None:
    sink = DiscardingSink()
    writer = sink.writer(task(store))
    batch = Batch.of_columns(Batch.of_values([1, 2, 3], Types.LONG()).columns(), Types.LONG())
    writer.write(batch)
    assert writer.stage() == ({"records": 3},)
    assert batch._values is None


class Ledger(TwoPhaseSink):
    """Stores pages per epoch; republishing an epoch writes the same page."""

    def __init__(self, book: Path) -> None:
        self.book = book

    def open(self, context: WriterContext) -> None:
        assert not hasattr(self, "values"), "fields of an earlier attempt are visible"
        self.values: list[Any] = []

    def write(self, values: list[Any]) -> None:
        self.values.extend(values)

    def stage(self) -> Json | None:
        return self.values or None

    def abort(self) -> None:
        (self.book / "aborted").touch()

    def commit(self, commit: CommitId, staged: Sequence[Json]) -> None:  # type: ignore[override]
        (self.book / str(commit)).write_text(json.dumps([value for values in staged for value in values]))


def test_a_two_phase_sink_publishes_staged_output_and_repeats_idempotently(store: Store, tmp_path: Path) -> None:
    sink = Ledger(tmp_path)
    ready = sink.opened(None)
    first, second = staged(sink, task(store, 0), [1, 2]), staged(ready, task(store, 1), [3])
    assert staged(sink, task(store, 2), []) == []
    for _ in range(2):
        ready.commit(commit_of(1), ready.plan_commit([*first, *second], None, 0, False).publish, store)
    ready.commit(commit_of(2), [], store)
    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("a-job.sink.000000000001", "[1, 2, 3]")]


def test_each_attempt_of_a_two_phase_sink_starts_with_its_own_fields(store: Store, tmp_path: Path) -> None:
    sink = Ledger(tmp_path)
    for epoch in (1, 2):
        writer = sink.writer(task(store, epoch=epoch))
        writer.write(Batch.of_values([epoch], None))
        assert writer.stage() == ([epoch],)
    sink.writer(task(store)).abort()
    assert (tmp_path / "aborted").exists()


def test_an_invalid_commit_in_of_a_two_phase_sink_is_rejected(tmp_path: Path) -> None:
    sink = Ledger(tmp_path)
    sink.commit_in = "executor"  # type: ignore[assignment]
    with pytest.raises(ProgramError, match=r"Ledger\.commit_in is 'executor'"):
        sink.opened(None)


def test_a_foreach_sink_calls_functions_and_objects_and_declares_its_guarantee(store: Store) -> None:
    calls: list[Any] = []

    class Invoked:
        def open(self, context: WriterContext) -> None:
            calls.append(f"open {context.subtask}")

        def invoke(self, value: Any) -> None:
            calls.append(value)

        def close(self) -> None:
            calls.append("close")

    writer = ForeachSink(Invoked()).writer(task(store))
    writer.write(Batch.of_values([1, 2], Types.INT()))
    assert writer.stage() == ({"records": 2},)
    assert calls == ["open 0", 1, 2, "close"]
    plain = ForeachSink(calls.append)
    plain.writer(task(store)).write(Batch.of_values(["x"], None))
    assert calls[-1] == "x" and "at-least-once" in plain.describe()


@pytest.mark.parametrize("nothing", [3, int, object()])
def test_a_foreach_sink_rejects_objects_that_are_not_callable(nothing: Any) -> None:
    with pytest.raises(ProgramError, match="can neither be called"):
        ForeachSink(nothing)


def test_an_exception_of_the_users_function_is_not_wrapped(store: Store) -> None:
    def broken(value: int) -> None:
        raise ZeroDivisionError(value)

    with pytest.raises(ZeroDivisionError):
        ForeachSink(broken).writer(task(store)).write(Batch.of_values([1], None))


class Patient(Ledger):
    """Publishes pending output once event time has reached 100."""

    def plan_timed_commit(
        self, staged: Sequence[Json], pending: Json, now_ms: int, final: bool, watermark_ms: int
    ) -> CommitPlan:
        pending_output = [*(pending or []), *staged]
        return CommitPlan(tuple(pending_output)) if final or watermark_ms >= 100 else CommitPlan((), pending_output)


def test_a_two_phase_sink_may_publish_by_event_time(tmp_path: Path) -> None:
    ready = Patient(tmp_path).opened(None)
    waiting = planned_commit(ready, [["a"]], None, 0, False, watermark_ms=99)
    assert waiting == CommitPlan((), [["a"]])
    assert planned_commit(ready, [["b"]], waiting.pending, 0, False, watermark_ms=100) == CommitPlan((["a"], ["b"]))


def test_the_driver_delegates_every_decision_to_the_two_phase_sink(tmp_path: Path) -> None:
    called_before_opening = {"opened", "after_restore", "staged_records", "with_dead_letters"}
    methods = {name for name, member in vars(Sink).items() if callable(member) and not name.startswith("_")}
    ready = type(Ledger(tmp_path).opened(None))
    assert {name for name in methods if getattr(ready, name) is getattr(Sink, name)} == called_before_opening


# --- publishing from tasks --------------------------------------------------------------------------------------


class _Parts(TwoPhaseSink):
    """Publishes each staged value separately."""

    commit_in = "tasks"
    published: ClassVar[list[tuple[int | None, Any]]] = []

    def open(self, context: WriterContext) -> None:
        self._values: list[Any] = []

    def write(self, values: list[Any]) -> None:
        self._values.extend(values)

    def stage(self) -> Json | None:
        return self._values or None

    def commit(self, commit: CommitId, staged: Sequence[Json]) -> None:  # type: ignore[override]
        _Parts.published.extend((commit.part, value) for part in staged for value in part)


def test_a_sink_that_commits_in_tasks_commits_on_the_driver_without_spark() -> None:
    _Parts.published.clear()
    run(lambda env: env.from_collection([3, 1, 2], Types.LONG()).rebalance().sink_to(_Parts()), parallelism=3)
    assert sorted(value for _, value in _Parts.published) == [1, 2, 3]
    assert {part for part, _ in _Parts.published} == {0, 1, 2}


def test_a_task_returns_external_failures_and_raises_bugs() -> None:
    def publish(part: Exception | None) -> None:
        if part is not None:
            raise part

    parts = [None, ConnectorAwayError("no broker"), ConnectionError("cut"), StoreDamagedError("no file")]
    failures = list(two_phase._publish_rows(cloudpickle.dumps(publish), iter(parts)))
    assert failures == [
        ("ConnectorAwayError", "no broker"),
        ("ConnectionError", "cut"),
        ("StoreDamagedError", "no file"),
    ]
    again = [two_phase._error_of(*failure) for failure in failures]
    assert [(type(error), str(error)) for error in again] == [(type(error), str(error)) for error in parts[1:]]
    with pytest.raises(KeyError):
        list(two_phase._publish_rows(cloudpickle.dumps(publish), iter([KeyError("a bug")])))
