"""`make demo`: a stream is processed, killed with kill -9 half-way, recovered, and proved exact.

The job is `job.py`, beside this file, run as anybody would run it. This program watches its manifests from outside,
kills its whole process group (driver, JVM and all) when half of the records are committed, starts it again on the same
store, and then reads the files: every line must be there once, and the lines of each ad must be numbered 1, 2, 3, …
without a gap, because the count lies in keyed state and is recovered with everything else. What must be there is
computed apart, by a plain loop over the same functions, without Millstream. Exit code 0 only if nothing is lost,
nothing doubled and nothing miscounted.
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
from typing import Any

from job import PER_SECOND, RECORDS, AdServer, described, is_human, parse
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.errors import StoreError
from millstream.jobs.amounts import bytes_text, time_text
from millstream.jobs.progress_report import state_size
from millstream.storage.store import open_store

HERE = Path(__file__).resolve().parent
STORE = Path(".millstream", "impressions")
OUTPUT = Path(".millstream", "impressions-output")
PATIENCE_S = 180
SHOW_CURSOR = "\x1b[?25h"


@dataclass(frozen=True)
class Verdict:
    """What the files hold, against what they must hold. `miscounted`: ads whose numbers are not exactly 1 … n."""

    records: int
    lines: int
    files: int
    ads: int
    lost: int
    doubled: int
    foreign: int
    miscounted: int

    @property
    def exact(self) -> bool:
        return not (self.lost or self.doubled or self.foreign or self.miscounted)


def main(records: int, rate: float) -> int:
    screen = Console(highlight=False)
    for folder in (STORE, OUTPUT):
        shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    server = AdServer(first_ms=int(time.time() * 1000), per_second=rate)
    screen.print(
        Panel(
            "Ad impressions stream in, are parsed, cleaned of bots, counted per ad in keyed state and written to "
            "files with their number, each exactly once, although the job is killed with kill -9 half-way. "
            "One in fifty comes seconds late. The program is examples/impressions/job.py.",
            title="[bold]Millstream demo",
            title_align="left",
            border_style="cyan",
        )
    )
    say(screen, 1, f"Start the job: {records:,} impressions at {rate:,.0f} a second. (Spark takes seconds to start.)")
    with running_job(records, server) as job:
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
        f"{committed.epoch}: {records_in(committed):,} of {records:,} records, {kept_in(committed)}. "
        "What came after it never happened.",
    )
    say(screen, 3, "Run the same command again. It opens that manifest and counts on; there is nothing to repair.")
    with running_job(records, server) as job:
        if job.wait(timeout=PATIENCE_S) != 0:
            screen.print(f"[bold red]The job failed with exit code {job.returncode}; its log is in {STORE / 'logs'}.")
            return 1
    say(screen, 4, f"Read the files in {OUTPUT} and compare them, line by line, with the answer computed apart.")
    verdict = judge(server, records, OUTPUT)
    show(screen, verdict, late=late_in(newest_manifest()), took_s=time.monotonic() - began)
    return 0 if verdict.exact else 1


def say(screen: Console, number: int, text: str) -> None:
    line = Text.assemble((f" {number} ", "bold reverse cyan"), " ", (text, "bold"))
    screen.print("", line, "", sep="\n", soft_wrap=not screen.is_terminal)


# --- the job, from outside ------------------------------------------------------------------------------------


@contextmanager
def running_job(records: int, server: AdServer) -> Iterator[subprocess.Popen[bytes]]:
    """The job in a process group of its own, so that all of it can be killed at once. None survives the block."""
    command = [sys.executable, "-m", "millstream.cli", "run", "--store", str(STORE)]
    # Small epochs, however far a slow start let the stream run ahead: a job done in two epochs has no half-way.
    command += ["-D", f"millstream.epoch.max-records={max(1, records // 20)}"]
    command += ["-D", "millstream.epoch.min-interval=250 ms", "-p", "2", str(HERE / "job.py"), "--"]
    command += ["--output", str(OUTPUT), "--records", str(records), "--rate", str(server.per_second)]
    # The clock is read once, here: after the crash the server must send the very same impressions again.
    command += ["--first-ms", str(server.first_ms)]
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


def kept_in(manifest: Manifest) -> str:
    """The keyed state and the event time that a manifest holds, in words."""
    size = state_size(manifest)
    kept = f"the counts so far ({size.rows:,} rows of state, {bytes_text(size.bytes)})"
    return f"{kept}, the watermark {time_text(manifest.watermark or 0, manifest.created_ms)} UTC"


def late_in(manifest: Manifest | None) -> int:
    """How many impressions came behind the watermark, as the job counted them itself."""
    metrics: Any = {} if manifest is None else manifest.counters.get("metrics", {})
    return int(metrics.get("count-per-ad.late", {}).get("counter", 0))


# --- the proof ------------------------------------------------------------------------------------------------


def judge(server: AdServer, records: int, output: Path) -> Verdict:
    """Compare what readers of the folder see (not hidden files) with what a plain loop says.

    Which impression of an ad got which number is not laid down, as the splits of the source are read side by side;
    that the numbers of an ad with n impressions are exactly 1 … n is.
    """
    events = [event for event in (parse(server(index)) for index in range(records)) if is_human(event)]
    expected = Counter(described(event) for event in events)
    files = [path for path in output.rglob("*.csv") if not is_hidden(path.relative_to(output))]
    lines = [line for path in files for line in path.read_text(encoding="utf-8").splitlines()]
    found: Counter[str] = Counter()
    numbers: dict[str, list[str]] = {str(event.ad): [] for event in events}
    for line in lines:
        described_part, _, number = line.rpartition(",")
        found[described_part] += 1
        if described_part in expected:
            numbers[described_part.split(",")[1]].append(number)
    surplus = found - expected
    per_ad = Counter(str(event.ad) for event in events)
    return Verdict(
        records=records,
        lines=len(lines),
        files=len(files),
        ads=len(per_ad),
        lost=(expected - found).total(),
        doubled=sum(count for line, count in surplus.items() if line in expected),
        foreign=sum(count for line, count in surplus.items() if line not in expected),
        miscounted=sum(Counter(numbers[ad]) != Counter(map(str, range(1, n + 1))) for ad, n in per_ad.items()),
    )


def is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def show(screen: Console, verdict: Verdict, late: int, took_s: float) -> None:
    headline = f"{verdict.records:,} records, 1 crash, {verdict.lost:,} lost, {verdict.doubled:,} doubled"
    if verdict.foreign:
        headline += f", {verdict.foreign:,} lines nobody expected"
    counted = f"{verdict.ads:,} ads, each counted 1, 2, 3, … without a gap"
    if verdict.miscounted:
        counted = f"{verdict.miscounted:,} of {verdict.ads:,} ads miscounted"
    colour = "green" if verdict.exact else "red"
    body = Text.assemble(
        (f"{headline}\n{counted}", f"bold {colour}"),
        f"\n{verdict.lines:,} lines (the bots are dropped) in {verdict.files:,} files, after {took_s:.0f} s in all. "
        f"{late:,} impressions came behind the watermark.",
        (f"\n\nLook around:  head {OUTPUT}/*.csv\n              less {STORE}/manifests/*.json", "dim"),
        (f"\n              {Path(sys.executable).parent / 'millstream'} list", "dim"),
    )
    title = "[bold]Exactly once" if verdict.exact else "[bold]NOT exact"
    screen.print(Panel(body, title=title, title_align="left", border_style=colour))


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=RECORDS, help="how many impressions (default %(default)s)")
    options.add_argument("--rate", type=float, default=PER_SECOND, help="impressions per second (default %(default)s)")
    sys.exit(main(**vars(options.parse_args())))
