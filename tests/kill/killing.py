"""Running the program of the kill tests, killing it at a chosen moment, and what it has written."""

from __future__ import annotations

import os
import queue
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import program
import pyarrow.parquet as pq
from process_session import ProcessSession

ROOT = Path(__file__).resolve().parents[2]
FIRST = int(os.environ.get("MILLSTREAM_KILL_FIRST_SEED", "0"))
SEEDS = range(FIRST, FIRST + int(os.environ.get("MILLSTREAM_KILL_SEEDS", "8")))

__all__ = [
    "FINISHED",
    "PHASE_TIMEOUT_S",
    "ROOT",
    "SEEDS",
    "SINKS",
    "Strike",
    "difference",
    "output_of",
    "run_to_the_end",
    "run_until",
    "start",
    "strike_down",
]

SINKS = ("each", "many", "parquet", "totals", "windows", "streams", "loop")

# A phase comes within seconds; on a machine that does much else besides, within a minute or two.
PHASE_TIMEOUT_S = 180.0
FINISHED = "it had finished before"


@dataclass(frozen=True)
class Strike:
    """Kill some time after the program has reached a phase: imported, session, or an epoch (a number).

    The time is a share: of 4 s while Spark and the job start, else of what the epoch before took (2 s at most: the
    first one takes long), so that a strike falls anywhere between two commits however fast the machine is.
    """

    phase: str | int
    share: float

    def delay_s(self, epoch_s: float) -> float:
        return self.share * (min(epoch_s, 2.0) if isinstance(self.phase, int) else 4.0)

    def is_reached(self, line: str) -> bool:
        if isinstance(self.phase, int):
            return line.startswith("PHASE epoch ") and int(line.split()[-1]) >= self.phase
        return line == f"PHASE {self.phase}"


def start(folder: Path, *more: str) -> ProcessSession:
    script = Path(program.__file__)
    # Spark's workers import what stands beside the program.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(script.parent)])}
    command = [sys.executable, str(script), str(folder / "store"), str(folder / "output"), *more]
    return ProcessSession(command, environment, folder, folder / "stderr.log")


def run_to_the_end(folder: Path, snapshot: str = "") -> None:
    start(folder, snapshot).run_out(PHASE_TIMEOUT_S)


def run_until(strike: Strike, folder: Path, snapshot: str = "") -> str:
    """Start the job, kill it at `strike`, and say how far it had come."""
    return strike_down(start(folder, snapshot), strike)


def strike_down(job: ProcessSession, strike: Strike) -> str:
    """Kill a job that has just been started at `strike`, and say how far it had come."""
    last = "nothing"
    reached_at, delay_s = time.monotonic(), 0.0
    try:
        while (line := job.next_line(PHASE_TIMEOUT_S)) is not None:
            last, took_s = line, time.monotonic() - reached_at
            reached_at += took_s
            if strike.is_reached(line):
                delay_s = strike.delay_s(took_s)
                time.sleep(delay_s)
                assert job.exit_code() in (None, 0), f"it failed before it was killed:\n{job.errors()[-4000:]}"
                break
        else:
            assert job.wait(60) == 0, job.errors()[-4000:]
            return FINISHED
    except queue.Empty:
        raise AssertionError(f"stuck after {last!r}:\n{job.errors()[-4000:]}") from None
    finally:
        killed = job.kill()
    return f"killed {killed} processes {delay_s * 1000:.0f} ms after {last!r}"


def output_of(folder: Path) -> dict[str, bytes]:
    """What the job has published, sorted: the visible files of each sink, and nothing but finished parts."""
    found = {}
    for sink in SINKS:
        parts = sorted(path for path in (folder / "output" / sink).iterdir() if not path.name.startswith("."))
        assert parts and all(path.name.startswith("part-") for path in parts), parts
        records = [line for path in parts for line in (_rows(path) if sink == "parquet" else _lines(path))]
        found[sink] = b"\n".join(sorted(records))
    return found


def _lines(path: Path) -> list[bytes]:
    content = path.read_bytes()
    assert content.endswith(b"\n"), f"{path} is cut"
    return content.splitlines()


def _rows(path: Path) -> list[bytes]:
    return [repr(tuple(row.values())).encode() for row in pq.read_table(path).to_pylist()]


def difference(seeds: range, sink: str, found: bytes, clean: bytes, history: list[str], folder: Path) -> str:
    ours, theirs = found.split(b"\n"), clean.split(b"\n")
    lost = len(set(theirs) - set(ours))
    return (
        f"seeds {seeds[0]} to {seeds[-1]}, sink '{sink}': {len(ours)} records, {len(theirs)} without kills, "
        f"{lost} lost, {len(ours) - len(set(ours))} doubled. {'; '.join(history)}. Look into {folder}; to repeat it "
        f"alone: MILLSTREAM_KILL_FIRST_SEED={seeds[0]} make chaos SEEDS={len(seeds)}"
    )
