"""A job on Spark is asked in SQL while it runs, is killed, and goes on: answers belong together and never go back."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import live_program as program
import pytest
from killing import FINISHED, PHASE_TIMEOUT_S, ROOT, Strike, strike_down
from process_session import ProcessSession

from millstream.errors import MillstreamError
from millstream.table import EnvironmentSettings, TableEnvironment

# One answer is of one epoch, whatever it joins.
QUESTION = "SELECT c.total, p.total FROM (SELECT SUM(c) AS total FROM live.clicks.counts) c " + (
    "CROSS JOIN (SELECT SUM(c) AS total FROM live.clicks.parities) p"
)


def start(folder: Path, parallelism: int) -> ProcessSession:
    script = Path(program.__file__)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(script.parent)])}
    command = [sys.executable, str(script), str(folder / "stores" / "clicks"), str(parallelism)]
    return ProcessSession(command, environment, folder, folder / "stderr.log")


class Questions(threading.Thread):
    """Asks all the time, from another process than the job's."""

    def __init__(self, stores: Path) -> None:
        super().__init__(daemon=True)
        self.answers: list[tuple[int, int]] = []
        self.problems: list[str] = []
        self._ended = threading.Event()
        self._t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        self._t_env.execute_sql(f"CREATE CATALOG live WITH ('type' = 'jobs', 'stores' = '{stores}')")

    def ask(self) -> None:
        [row] = self._t_env.execute_sql(QUESTION).collect()
        self.answers.append((row[0] or 0, row[1] or 0))

    def run(self) -> None:
        while not self._ended.wait(0.05):
            try:
                self.ask()
            except MillstreamError as error:
                if self.answers:  # before the first epoch there is no table
                    self.problems.append(str(error))

    def end(self) -> None:
        self._ended.set()
        self.join()


@pytest.mark.timeout(600)
def test_answers_of_a_killed_job_belong_to_one_epoch_and_never_go_back(tmp_path: Path) -> None:
    stores = tmp_path / "stores"
    stores.mkdir()
    questions = Questions(stores)
    questions.start()
    history = strike_down(start(tmp_path, 2), Strike(3, 0.5))
    assert history != FINISHED
    before = len(questions.answers)
    questions.ask()  # it is dead, and can be asked
    start(tmp_path, 1).run_out(PHASE_TIMEOUT_S)
    questions.end()
    questions.ask()
    assert not questions.problems
    counted = [first for first, _ in questions.answers]
    assert all(first == second for first, second in questions.answers), "two tables of one epoch disagree"
    assert counted == sorted(counted), "an answer went back"
    assert counted[-1] == program.LAST and 0 < counted[before] < program.LAST
