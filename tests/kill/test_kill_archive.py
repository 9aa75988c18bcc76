"""A job on Spark whose table has an archive is asked while it runs, is killed, and goes on: no window is missing in any
answer, none is there twice, and others find in the archive what left the state, once."""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path

import archive_program as program
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from killing import FINISHED, PHASE_TIMEOUT_S, ROOT, Strike, strike_down
from process_session import ProcessSession

from millstream import query
from millstream.errors import MillstreamError
from millstream.table import EnvironmentSettings, TableEnvironment

QUESTION = (
    "SELECT COUNT(*), COUNT(DISTINCT closed), SUM(c), TIMESTAMPDIFF(SECOND, TO_TIMESTAMP_LTZ(0, 3), MAX(closed)) "
    "FROM live.hours.closed_windows"
)
WINDOWS = program.LAST // program.WINDOW_S + 1


def start(folder: Path, format: str, parallelism: int) -> ProcessSession:
    script = Path(program.__file__)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(script.parent)])}
    stores = (str(folder / "stores" / "hours"), str(folder / "archive"))
    command = [sys.executable, str(script), *stores, format, str(parallelism)]
    return ProcessSession(command, environment, folder, folder / "stderr.log")


class Questions(threading.Thread):
    """Asks all the time, from another process than the job's. Every answer must be windows without a gap."""

    def __init__(self, stores: Path) -> None:
        super().__init__(daemon=True)
        self.counts: list[int] = []
        self.problems: list[str] = []
        self._ended = threading.Event()
        self._t_env = TableEnvironment.create(EnvironmentSettings.in_streaming_mode())
        self._t_env.execute_sql(f"CREATE CATALOG live WITH ('type' = 'jobs', 'stores' = '{stores}')")

    def ask(self) -> None:
        [(rows, windows, total, last)] = self._t_env.execute_sql(QUESTION).collect()
        self.counts.append(windows)
        # The last window of all has one row; the others have three, and a row for each second but the first.
        is_whole = windows == WINDOWS and rows == 3 * WINDOWS - 2 and total == program.LAST
        is_part = rows == 3 * windows and (total or 0) == max(0, (last or 0) - 1)
        if windows != (last or 0) // program.WINDOW_S or not (is_whole or is_part):
            self.problems.append(f"{windows} windows, {rows} rows, {total} numbers up to {last}")

    def run(self) -> None:
        while not self._ended.wait(0.05):
            try:
                self.ask()
            except MillstreamError as error:
                if self.counts:  # before the first epoch there is no table
                    self.problems.append(str(error))

    def end(self) -> None:
        self._ended.set()
        self.join()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("format", ["parquet", "delta"])
def test_a_killed_job_leaves_no_gap_between_state_and_archive(tmp_path: Path, format: str) -> None:
    stores = tmp_path / "stores"
    stores.mkdir()
    questions = Questions(stores)
    questions.start()
    for strike in (Strike(4, 0.3), Strike(8, 0.8)):
        assert strike_down(start(tmp_path, format, 2), strike) != FINISHED
        questions.ask()  # it is dead, and can be asked
    start(tmp_path, format, 1).run_out(PHASE_TIMEOUT_S)
    questions.end()
    questions.ask()
    assert not questions.problems
    assert questions.counts == sorted(questions.counts) and questions.counts[-1] == WINDOWS
    files = query.open(str(stores / "hours")).newest().table("closed_windows").archived_files
    archive = tmp_path / "archive"
    seen = DeltaTable(archive).to_pyarrow_table() if format == "delta" else pq.read_table(archive)
    assert seen.num_rows == sum(file.rows for file in files) > WINDOWS
    assert len(seen.select(["closed", "k"]).group_by(["closed", "k"]).aggregate([])) == seen.num_rows
