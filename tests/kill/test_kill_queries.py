"""Answers never go back: hundreds of readers ask a job that is killed with -9, again and again, and started at another
parallelism, while its query servers are replaced one after the other, some of them killed too.

It is one story. Every seed is a life of the same job, from its start to its death, with the readers of all lives; what
happens in it is drawn from the seed, and is checked when it ends. The last life comes to the end of the input. How many
seeds, and which: see `test_kill.py`.
"""

from __future__ import annotations

import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import counting_program
import pytest
from counted import EPOCH_RECORDS, KEYS, STATE
from killing import FINISHED, PHASE_TIMEOUT_S, ROOT, SEEDS, Strike, strike_down
from many_readers import Readers, Told
from process_session import ProcessSession
from waits.patience import PATIENCE_S

from millstream import state_reader
from millstream.query.client import QueryClient

# A life reads a dozen epochs at most; what is left of the input when all seeds are through is read by the last.
RECORDS = 16 * EPOCH_RECORDS * (len(SEEDS) + 1)
HALVES = ("0-63", "64-127")
READERS_PATIENCE_S = 180.0  # longer than a reader waits for an answer


def started(folder: Path, *command: str) -> ProcessSession:
    """A program of ours, in a session of its own."""
    paths = [str(ROOT / "src"), str(Path(counting_program.__file__).parent)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    return ProcessSession([sys.executable, *command], environment, folder, folder / "stderr.log")


class Servers:
    """The query servers of the job: one for each half of the key groups, or for all of them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._running = [self._new(half) for half in HALVES]
        try:
            for server in self._running:
                _await_answering(server)
        except BaseException:
            self.close()
            raise

    def replace(self, rng: random.Random) -> str:
        """Replace one by another that holds the same key groups, or all; the new one first."""
        i = rng.randrange(2)
        groups = rng.choice([HALVES[i], None])
        new, old = self._new(groups), self._running[i]
        self._running[i] = new
        try:
            _await_answering(new)
            is_killed = rng.random() < 0.5
            if not is_killed:
                assert old.stop(PATIENCE_S) == 0, old.errors()[-4000:]
        finally:
            old.kill()
        return f"server {i} {'killed' if is_killed else 'stopped'}, now one of {groups or 'all'}"

    @contextmanager
    def replaced(self, rng: random.Random) -> Iterator[list[str]]:
        """While this goes on, some are replaced; gives what happened."""
        happened: list[str] = []

        def roll() -> None:
            for pause_s in pauses_s:
                time.sleep(pause_s)
                try:
                    happened.append(self.replace(rng))
                except BaseException as error:
                    failed.append(error)
                    return

        failed: list[BaseException] = []
        pauses_s = [rng.random() * 3 for _ in range(rng.choice([1, 1, 1, 2]))]
        rolling = threading.Thread(target=roll)
        rolling.start()
        try:
            yield happened
        finally:
            rolling.join()
        if failed:
            raise failed[0]

    def close(self) -> None:
        """Kill those that run."""
        for server in self._running:
            server.kill()

    def _new(self, groups: str | None) -> ProcessSession:
        command = ["-m", "millstream.cli", "query-server", "--job", str(self._folder / "store")]
        command += ["--listen", "127.0.0.1:0", "--flight-port", "0"]
        return started(self._folder, *command, *(() if groups is None else ("--key-groups", groups)))


def _await_answering(server: ProcessSession) -> None:
    line = server.next_line(PHASE_TIMEOUT_S)
    assert line is not None and line.startswith("answering at "), server.errors()[-4000:]


class Story:
    """The job's store, with its servers and readers through all lives of the job."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.store = folder, str(folder / "store")
        counting_program.first_epoch(self.store, RECORDS)
        self.parallelism = 1
        with ExitStack() as opened:
            self.servers = opened.enter_context(closing(Servers(folder)))
            self.readers = opened.enter_context(closing(Readers(self.store)))
            self.client = opened.enter_context(QueryClient(self.store, timeout_s=PATIENCE_S))
            self.close = opened.pop_all().close

    def start(self, parallelism: int, epoch_records: int, fails_at: int = -1, serving: str = "") -> ProcessSession:
        """The job's next life."""
        self.parallelism = parallelism
        arguments = (self.store, RECORDS, parallelism, epoch_records, fails_at, serving)
        return started(self.folder, counting_program.__file__, *map(str, arguments))

    def committed(self) -> dict[int, int]:
        """The records of every retained epoch, oldest first."""
        return {epoch.epoch: epoch.records for epoch in state_reader.open(self.store).epochs()}

    def check(self, before: Told) -> Told:
        """Once the job is dead and all readers were told more: nothing was wrong, what they were told is what the
        epochs had read, and a new question is answered by the newest."""
        committed = self.committed()
        newest = max(committed)
        told = self.readers.told_after(before, newest, READERS_PATIENCE_S)
        new = [wrong for wrong in told.wrong if wrong not in before.wrong]
        assert not new, "\n".join(new[:20])
        assert {epoch: told.counts.get(epoch, records) for epoch, records in committed.items()} == committed
        deadline = time.monotonic() + PATIENCE_S
        while (answers := self.client.get_many(STATE, KEYS))[0].epoch < newest and time.monotonic() < deadline:
            time.sleep(0.05)
        assert {(answer.epoch, answer.value) for answer in answers} == {(newest, committed[newest])}
        return told


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Story]:
    with closing(Story(tmp_path_factory.mktemp("queries"))) as story:
        yield story


def strike_of(rng: random.Random, newest: int) -> Strike:
    """When the job dies: most often some epochs after it was started, else while it starts."""
    if rng.random() < 0.2:
        return Strike("session", round(rng.random(), 3))
    return Strike(newest + rng.randint(1, 7), round(rng.random() * 1.2, 3))


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("seed", SEEDS)
def test_answers_never_go_back_though_the_job_is_killed_and_servers_are_replaced(seed: int, story: Story) -> None:
    rng = random.Random(f"epochs-{seed}")
    before, committed = story.readers.told(), story.committed()
    newest = max(committed)
    parallelism = rng.choice([other for other in (1, 2, 3, 4) if other != story.parallelism])
    fails_at = committed[newest] + rng.randrange(3 * EPOCH_RECORDS) if rng.random() < 0.5 else -1
    serving = rng.choice(["", "serving"])
    strike = strike_of(rng, newest)
    with story.servers.replaced(rng) as happened:
        end = strike_down(story.start(parallelism, EPOCH_RECORDS, fails_at, serving), strike)
    print(f"seed {seed}: parallelism {parallelism}, fails at {fails_at}, {serving}, {strike}: {end}; {happened}")
    assert end != FINISHED, "the input is too short for this story"
    story.check(before)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_last_answers_are_what_was_put_in(story: Story) -> None:
    before = story.readers.told()
    story.start(2, RECORDS).run_out(PHASE_TIMEOUT_S)
    told = story.check(before)
    assert {answer.value for answer in story.client.get_many(STATE, KEYS)} == {RECORDS}
    assert max(told.counts.values()) == RECORDS
    assert all(told.answers)
    print(f"{sum(told.answers)} answers of {len(told.counts)} epochs")
