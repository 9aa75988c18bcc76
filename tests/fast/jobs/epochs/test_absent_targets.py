"""Output whose target is unavailable: it is reported everywhere, the job waits as its restart strategy says, and no
record is lost.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from stores.lagging_store import LaggingStore
from waits.job_moments import when

from millstream.common import Configuration, JobStatus, Types
from millstream.common.restart_strategy import RestartStrategies
from millstream.connectors.files.parts import TextParts
from millstream.connectors.files.sink import FileSink
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import ConnectorAwayError, JobFailedError, ProgramError, StoreAwayError
from millstream.jobs.console.console_view import ConsoleView, plain_line, status_line
from millstream.jobs.epochs import publisher
from millstream.jobs.launch.job import Job, commands_of
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.storage.local import LocalStore
from millstream.testing import EPOCH, Collect, ManualClock, Script

_STORES = itertools.count()
_ITEMS = [text for letter in "abcdefgh" for text in (letter, EPOCH)]
ABSENCES: dict[str, BaseException] = {}


@pytest.fixture(autouse=True)
def _nothing_is_absent() -> Iterator[None]:
    ABSENCES.clear()
    yield


class Topic(Collect):
    """Publishes, unless it is in `ABSENCES`."""

    def commit(self, *what: Any) -> None:
        if "topic" in ABSENCES:
            raise ABSENCES["topic"]
        super().commit(*what)


def prepare_job(out: Any, *, ahead: int, retries: int, function: Any = None) -> Job:
    env = StreamExecutionEnvironment.get_execution_environment()
    env.configure(Configuration().set_string("millstream.ahead.max-epochs", str(ahead)))
    if retries:
        env.set_restart_strategy(RestartStrategies.fixed_delay_restart(retries, 20))
    env.set_parallelism(1)
    letters: Any = env.add_source(Script(_ITEMS, type_info=Types.STRING())).uid("in")
    letters = letters if function is None else letters.map(function, Types.STRING()).uid("map")
    letters.sink_to(out).uid("out")
    store = LaggingStore(f"absent-{next(_STORES)}")
    return Launch(ManualClock(), LocalRunner(), store).prepare(env._graph("letters"), env._job_settings())


def drop_topic() -> None:
    ABSENCES["topic"] = ConnectorAwayError("Kafka at b:9092, topic 'letters' does not exist. Create it.")


def board_event(job: Job, is_time: Any) -> threading.Event:
    """An event that is set when the board has shown it."""
    moment = threading.Event()
    when(job, is_time, moment.set)
    return moment


@pytest.mark.parametrize("ahead", [0, 3])
def test_an_unavailable_target_is_reported_everywhere_and_the_job_continues_when_it_is_back(
    ahead: int, caplog: pytest.LogCaptureFixture
) -> None:
    out = Topic()
    job = prepare_job(out, ahead=ahead, retries=10**6)
    when(job, lambda now: now.published >= 2, drop_topic)
    paused = board_event(job, lambda now: now.paused and now.publish_tries >= 3)
    with caplog.at_level(logging.WARNING):
        job.start()
        assert paused.wait(60), job.board.now
        now = job.board.now
        shown = f"paused, epoch {now.published + 1} is not published after"
        for line in (plain_line(ConsoleView(now)), status_line(ConsoleView(now), 300)):
            assert shown in line and "topic 'letters' does not exist. Create it." in line
        with pytest.raises(JobFailedError, match=r"could not publish epoch \d in \d+ tries .*does not exist"):
            job.savepoint(name="kept")
        ABSENCES.clear()
        job.result()
    assert out.values == list("abcdefgh")
    assert not job.board.now.paused and not job.board.now.unpublished
    messages = [
        record.getMessage() for record in caplog.records if "could not be published (try" in record.getMessage()
    ]
    assert "(try 1)" in messages[0] and "Create it. Its output waits in the store" in messages[0]
    assert not any("(try 3)" in text for text in messages), "not with every attempt"


def test_a_stop_reports_the_target_it_waits_for_and_completes_when_it_is_back() -> None:
    out = Topic()
    job = prepare_job(out, ahead=3, retries=10**6)
    when(job, lambda now: now.published >= 2, drop_topic)
    failing = board_event(job, lambda now: now.publish_tries >= 1)
    job.start()
    assert failing.wait(60)
    with pytest.raises(JobFailedError, match=r"stops as soon as it can\. Repair that; or `millstream cancel` it"):
        commands_of(job)["stop"].obey({})
    ABSENCES.clear()
    job.wait()
    assert job.status() is JobStatus.SUSPENDED
    assert out.values == list("abcdefgh")[: len(out.values)] and len(out.values) >= 2


def test_the_restart_strategy_bounds_failed_publishing_attempts() -> None:
    job = prepare_job(Topic(), ahead=3, retries=2)
    when(job, lambda now: now.published >= 2, drop_topic)
    with pytest.raises(ConnectorAwayError, match="topic 'letters' does not exist"):
        job.start().result()
    assert job.board.now.publish_tries == 3


def reject_e(letter: str) -> str:
    if letter == "e":
        raise ProgramError("the program is wrong about 'e'")
    return letter


@pytest.mark.parametrize("ahead", [0, 6])
def test_a_job_that_fails_while_its_output_waits_raises_the_original_failure(ahead: int) -> None:
    """Publishing fails once more before the job ends, but is not the reported cause."""
    job = prepare_job(Topic(), ahead=ahead, retries=10**6, function=reject_e)
    when(job, lambda now: now.published >= (3 if ahead else 4), drop_topic)
    with pytest.raises(JobFailedError, match="the program is wrong about 'e'"):
        job.start().result()


def test_a_target_in_the_same_service_as_the_store_is_waited_for_within_a_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The store responds, so it is not the store that is unreachable."""
    monkeypatch.setattr(publisher, "_MISSES_MAX", 3)
    monkeypatch.setattr("millstream.checkpoint.protocol.UNAVAILABLE_PAUSE_MS", 0)
    job = prepare_job(Topic(), ahead=3, retries=0)

    def leave() -> None:
        ABSENCES["topic"] = StoreAwayError("Store s3://results/a: no answer.")

    when(job, lambda now: now.published >= 2, leave)
    with pytest.raises(StoreAwayError, match="s3://results/a"):
        job.start().result()
    assert job.board.now.publish_tries == 4


def test_files_that_cannot_be_renamed_are_a_failure_of_the_target_and_not_of_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk of the target does not concern the object store, and uses up restarts."""
    monkeypatch.setattr("millstream.connectors.files.sink.with_patience", lambda store: store)
    out = FileSink(str(tmp_path), TextParts())
    job = prepare_job(out, ahead=3, retries=1)

    def fill() -> None:
        def fails(*_: Any) -> None:
            raise StoreAwayError("No space left on device.")

        monkeypatch.setattr(LocalStore, "settle", fails)

    when(job, lambda now: now.published >= 2, fill)
    with pytest.raises(ConnectorAwayError, match=r"The target .* does not answer: No space left .*memory://absent"):
        job.start().result()
