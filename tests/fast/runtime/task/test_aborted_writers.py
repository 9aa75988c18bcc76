"""After any failure, a writer that was opened either stages its epoch or is aborted; errors raised by abort hide
nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from millstream.common import Types
from millstream.connectors.contracts import CommitId, Sink, SinkWriter
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import MapFunction
from millstream.errors import JobFailedError
from millstream.testing import EPOCH, Script, run

CALLS: list[tuple[str, str]] = []


@pytest.fixture(autouse=True)
def _fresh_calls() -> Iterator[None]:
    CALLS.clear()
    yield


class Watched(Sink):
    """Records the lifecycle of its writers. `fails_in`: the method that fails."""

    def __init__(self, name: str, fails_in: str = "") -> None:
        self.name, self.fails_in = name, fails_in

    def writer(self, context: Any) -> SinkWriter:
        return WatchedWriter(self)

    def commit(self, commit: CommitId, publish: Any, store: Any) -> None:
        CALLS.append(("commit", self.name))


class WatchedWriter(SinkWriter):
    def __init__(self, sink: Watched) -> None:
        self._sink = sink
        self._called("open")

    def _called(self, method: str) -> None:
        CALLS.append((method, self._sink.name))
        if method == self._sink.fails_in:
            raise OSError(f"{self._sink.name} cannot {method}")

    def write(self, batch: Any) -> None:
        self._called("write")

    def stage(self) -> Any:
        self._called("stage")
        return ()

    def abort(self) -> None:
        self._called("abort")


class StatefulWriter(WatchedWriter):
    def initialize_state(self, context: Any) -> None:
        self._called("initialize_state")

    def snapshot_state(self, context: Any) -> None:
        self._called("snapshot_state")


class Stateful(Watched):
    def writer(self, context: Any) -> SinkWriter:
        return StatefulWriter(self)


class FailsOnce(MapFunction):
    def map(self, value: int) -> int:
        if value < 0:
            raise ValueError("a bad record")
        return value


def aborted() -> list[str]:
    return [name for call, name in CALLS if call == "abort"]


def test_an_error_in_abort_neither_skips_other_writers_nor_hides_the_failure(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        numbers = env.add_source(Script([1]))
        numbers.sink_to(Watched("first", "abort")).name("first")
        numbers.sink_to(Watched("second"))
        numbers.sink_to(Watched("third", "stage")).name("the third")

    with (
        caplog.at_level(logging.ERROR),
        pytest.raises(JobFailedError, match="'Sink: the third' failed: OSError"),
    ):
        run(build)
    assert sorted(aborted()) == ["first", "second", "third"]
    assert "abort() of 'Sink: first' failed" in caplog.text


def test_writers_abort_when_another_task_fails() -> None:
    """Of three upstream tasks, the third fails when the records of the others are already being written."""

    def build(env: StreamExecutionEnvironment) -> None:
        numbers = env.add_source(Script([1, 2], [3, 4], [5, 6, -1], type_info=Types.LONG()))
        numbers.map(FailsOnce(), Types.LONG()).key_by(abs, Types.LONG()).map(lambda n: n).sink_to(Watched("out"))

    with pytest.raises(JobFailedError, match="a bad record"):
        run(build, parallelism=3)
    opened = [name for call, name in CALLS if call == "open"]
    assert opened and aborted() == opened


def test_a_writer_whose_state_cannot_be_initialized_aborts() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        env.add_source(Script([1])).sink_to(Stateful("out", "initialize_state"))

    with pytest.raises(JobFailedError, match="cannot initialize_state"):
        run(build)
    assert CALLS == [("open", "out"), ("initialize_state", "out"), ("abort", "out")]


def test_a_writer_with_a_committed_epoch_is_not_aborted_when_the_next_one_fails() -> None:
    def build(env: StreamExecutionEnvironment) -> None:
        env.add_source(Script([1, EPOCH, -1])).map(FailsOnce()).sink_to(Watched("out"))

    with pytest.raises(JobFailedError, match="a bad record"):
        run(build)
    assert [call for call, _ in CALLS] == ["open", "write", "stage"]
