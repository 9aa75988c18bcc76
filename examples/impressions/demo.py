"""`make demo`: a stream is processed, killed with kill -9 half-way, recovered, and proved exact.

The job is `job.py`, beside this file, run as anybody would run it. This program watches its manifests from outside,
kills its whole process group (driver, JVM and all) when half of the records are committed, starts it again on the same
store, and then reads the files: every line must be there once. What must be there is computed apart, by a plain loop
over the same functions, without Millstream. Exit code 0 only if nothing is lost and nothing doubled.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from job import impression, is_human, parse, with_campaign
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.errors import StoreError
from millstream.storage.store import open_store

HERE = Path(__file__).resolve().parent
STORE = Path(".millstream", "impressions")
OUTPUT = Path(".millstream", "impressions-output")
PATIENCE_S = 180
SHOW_CURSOR = "\x1b[?25h"


@dataclass(frozen=True)
class Verdict:
    """What the files hold, against what they must hold."""

    records: int
    lines: int
    files: int
    lost: int
    doubled: int
    foreign: int

    @property
    def exact(self) -> bool:
        return not (self.lost or self.doubled or self.foreign)


def main(records: int, rate: float) -> int:
    screen = Console(highlight=False)
    for folder in (STORE, OUTPUT):
        shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    screen.print(
        Panel(
            "Ad impressions stream in, are parsed, cleaned of bots, given their campaign and written to files, "
            "each exactly once, although the job is killed with kill -9 half-way. "
            "Its program is examples/impressions/job.py.",
            title="[bold]Millstream demo",
            title_align="left",
            border_style="cyan",
        )
    )
    say(screen, 1, f"Start the job: {records:,} impressions at {rate:,.0f} a second. (Spark takes seconds to start.)")
    with running_job(records, rate) as job:
        committed = wait_for_records(job, records // 2)
        if committed is None:
            screen.print("[bold red]The job ended before it could be killed: nothing is proved. Try more --records.")
            return 1
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    if screen.is_terminal:
        print(SHOW_CURSOR, flush=True)  # the panel had hidden it, and had no time to give it back
    committed = newest_manifest() or committed
    say(
        screen,
        2,
        f"kill -9! Driver and JVM died in the middle of epoch {committed.epoch + 1}. The newest manifest is epoch "
        f"{committed.epoch}, {records_in(committed):,} of {records:,} records: what came after it never happened.",
    )
    say(screen, 3, "Run the same command again. It opens that manifest and goes on; there is nothing to repair.")
    with running_job(records, rate) as job:
        if job.wait(timeout=PATIENCE_S) != 0:
            screen.print(f"[bold red]The job failed with exit code {job.returncode}; its log is in {STORE / 'logs'}.")
            return 1
    say(screen, 4, f"Read the files in {OUTPUT} and compare them, line by line, with the answer computed apart.")
    verdict = judge(records, OUTPUT)
    show(screen, verdict, crashes=1, took_s=time.monotonic() - began)
    return 0 if verdict.exact else 1


def say(screen: Console, number: int, text: str) -> None:
    line = Text.assemble((f" {number} ", "bold reverse cyan"), " ", (text, "bold"))
    screen.print("", line, "", sep="\n", soft_wrap=not screen.is_terminal)


# --- the job, from outside ------------------------------------------------------------------------------------


@contextmanager
def running_job(records: int, rate: float) -> Iterator[subprocess.Popen[bytes]]:
    """The job in a process group of its own, so that all of it can be killed at once. None survives the block."""
    command = [sys.executable, "-m", "millstream.cli", "run", "--store", str(STORE)]
    # Small epochs, however far a slow start let the stream run ahead: a job done in two epochs has no half-way.
    command += ["-D", f"millstream.epoch.max-records={max(1, records // 20)}"]
    command += ["-D", "millstream.epoch.min-interval=250 ms", "-p", "2", str(HERE / "job.py"), "--"]
    command += ["--output", str(OUTPUT), "--records", str(records), "--rate", str(rate)]
    job = subprocess.Popen(command, start_new_session=True)
    try:
        yield job
    finally:
        if job.poll() is None:
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()


def wait_for_records(job: subprocess.Popen[bytes], records: int) -> Manifest | None:
    """The manifest by which the job has taken in so many records, or None when it ended first."""
    deadline = time.monotonic() + PATIENCE_S
    while job.poll() is None and time.monotonic() < deadline:
        newest = newest_manifest()
        if newest is not None and records_in(newest) >= records and newest.status == "RUNNING":
            return newest
        time.sleep(0.03)
    return None


def newest_manifest() -> Manifest | None:
    try:
        return ManifestLog(open_store(str(STORE))).newest()
    except StoreError:
        return None  # it is being written at this very moment


def records_in(manifest: Manifest) -> int:
    """How many records the sources have given, by the offsets the manifest holds."""
    return sum(int(str(at.offset)) for splits in manifest.sources.values() for at in splits.values())


# --- the proof ------------------------------------------------------------------------------------------------


def judge(records: int, output: Path) -> Verdict:
    """Compare what readers of the folder see (not hidden files) with what a plain loop says."""
    events = (parse(impression(index)) for index in range(records))
    expected = Counter(with_campaign(event) for event in events if is_human(event))
    seen = output.rglob("*.csv")
    files = [path for path in seen if not any(part.startswith(".") for part in path.relative_to(output).parts)]
    found = Counter(line for path in files for line in path.read_text(encoding="utf-8").splitlines())
    surplus = found - expected
    return Verdict(
        records=records,
        lines=found.total(),
        files=len(files),
        lost=(expected - found).total(),
        doubled=sum(count for line, count in surplus.items() if line in expected),
        foreign=sum(count for line, count in surplus.items() if line not in expected),
    )


def show(screen: Console, verdict: Verdict, crashes: int, took_s: float) -> None:
    headline = f"{verdict.records:,} records, {crashes} crash, {verdict.lost:,} lost, {verdict.doubled:,} doubled"
    if verdict.foreign:
        headline += f", {verdict.foreign:,} lines nobody expected"
    colour = "green" if verdict.exact else "red"
    body = Text.assemble(
        (headline, f"bold {colour}"),
        f"\n{verdict.lines:,} lines (the bots are dropped) in {verdict.files:,} files, after {took_s:.0f} s in all.",
        (f"\n\nLook around:  head {OUTPUT}/*.csv\n              less {STORE}/manifests/*.json", "dim"),
        (f"\n              {Path(sys.executable).parent / 'millstream'} list", "dim"),
    )
    title = "[bold]Exactly once" if verdict.exact else "[bold]NOT exact"
    screen.print(Panel(body, title=title, title_align="left", border_style=colour))


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=80_000, help="how many impressions (default %(default)s)")
    options.add_argument("--rate", type=float, default=5_000, help="impressions per second (default %(default)s)")
    sys.exit(main(**vars(options.parse_args())))
