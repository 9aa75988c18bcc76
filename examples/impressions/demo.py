"""`make demo`: a stream is processed, killed with kill -9 half-way, recovered, and proved exact.

The job is `job.py`, beside this file, run as anybody would run it. This program watches its manifests from outside,
kills its whole process group (driver, JVM and all) when half of the records are committed, starts it again on the same
store, and then lets `judge.py` read the files: every impression must be there once, those of each ad numbered without a
gap, and every ten seconds of every ad must have their right result, because the counts and the open windows lie in
keyed state and are recovered with everything else. Exit code 0 only if nothing is lost, doubled, miscounted or wrong.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from job import PER_SECOND, RECORDS, SPEED, USUAL_DELAY_MS, WINDOW, AdServer, window_text
from judge import CountVerdict, WindowVerdict, human_impressions, judge_count, judge_windows
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
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
WINDOWS_SHOWN = 6
SHOW_CURSOR = "\x1b[?25h"


def main(records: int, rate: float) -> int:
    screen = Console(highlight=False)
    for folder in (STORE, OUTPUT):
        shutil.rmtree(folder, ignore_errors=True)
    began = time.monotonic()
    server = server_until(int(time.time() * 1000), records, rate)
    screen.print(
        Panel(
            "Ad impressions stream in, are parsed, cleaned of bots, numbered per ad in keyed state, summed up per ad "
            "in windows of ten seconds of event time, and written to files, each exactly once, although the job is "
            "killed with kill -9 half-way. One in fifty comes seconds late: some windows that have closed are "
            "corrected, and what comes later still is dropped. The program is examples/impressions/job.py.",
            title="[bold]Millstream demo",
            title_align="left",
            border_style="cyan",
        )
    )
    say(
        screen,
        1,
        f"Start the job: {records:,} impressions at {rate:,.0f} a second, {SPEED} times as fast as they were seen. "
        "(Spark takes seconds to start.)",
    )
    with running_job(records, rate, server) as job:
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
    say(screen, 3, "Run the same command again. It opens that manifest and goes on; there is nothing to repair.")
    with running_job(records, rate, server) as job:
        if job.wait(timeout=PATIENCE_S) != 0:
            screen.print(f"[bold red]The job failed with exit code {job.returncode}; its log is in {STORE / 'logs'}.")
            return 1
    say(screen, 4, f"Read the files in {OUTPUT} and compare them, line by line, with the answer computed apart.")
    humans, dropped = human_impressions(server, records), dropped_in(newest_manifest())
    count = judge_count(humans, OUTPUT / "numbered")
    windows = judge_windows(humans, server, OUTPUT / "windows", dropped)
    screen.print(window_table(windows))
    show(screen, records, count, windows, took_s=time.monotonic() - began)
    return 0 if count.exact and windows.exact else 1


def server_until(now_ms: int, records: int, rate: float) -> AdServer:
    """A server whose last impression was seen about now, and all but the late ones since the start of a window."""
    length_ms, window_ms = int(records * 1_000 * SPEED / rate), WINDOW.to_millis()
    start_ms = (now_ms - length_ms) // window_ms * window_ms
    return AdServer(first_ms=start_ms + USUAL_DELAY_MS, per_second=rate / SPEED)


def say(screen: Console, number: int, text: str) -> None:
    line = Text.assemble((f" {number} ", "bold reverse cyan"), " ", (text, "bold"))
    screen.print("", line, "", sep="\n", soft_wrap=not screen.is_terminal)


# --- the job, from outside ------------------------------------------------------------------------------------


@contextmanager
def running_job(records: int, rate: float, server: AdServer) -> Iterator[subprocess.Popen[bytes]]:
    """The job in a process group of its own, so that all of it can be killed at once. None survives the block."""
    command = [sys.executable, "-m", "millstream.cli", "run", "--store", str(STORE)]
    # Small epochs, however far a slow start let the stream run ahead: a job done in two epochs has no half-way.
    command += ["-D", f"millstream.epoch.max-records={max(1, records // 20)}"]
    command += ["-D", "millstream.epoch.min-interval=250 ms", "-p", "2", str(HERE / "job.py"), "--"]
    command += ["--output", str(OUTPUT), "--records", str(records), "--rate", str(rate)]
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
    kept = f"the counts and open windows ({size.rows:,} rows of state, {bytes_text(size.bytes)})"
    at = f"the watermark {time_text(manifest.watermark or 0, manifest.created_ms)} UTC"
    return f"{kept}, {at}, {dropped_in(manifest):,} impressions dropped as too late"


def dropped_in(manifest: Manifest | None) -> int:
    """How many impressions came too late for their window, as the job counted them itself."""
    metrics: Any = {} if manifest is None else manifest.counters.get("metrics", {})
    return int(metrics.get("windows-per-ad.numLateRecordsDropped", {}).get("counter", 0))


# --- what was found -------------------------------------------------------------------------------------------


def window_table(verdict: WindowVerdict) -> Panel:
    """The windows most recently closed, as the files have them."""
    table = Table(box=None, expand=True, pad_edge=False, header_style="dim")
    table.add_column("window", no_wrap=True)
    for name in ("ads", "impressions", "updates", "by late ones", "too late"):
        table.add_column(name, justify="right")
    for window in verdict.windows[-WINDOWS_SHOWN:]:
        counts = (window.ads, window.impressions, window.updates, window.late, window.missing)
        table.add_row(window_text(window.start_ms), *(f"{count:,}" for count in counts))
    return Panel(table, title="[bold]The last windows (UTC), as the files have them", title_align="left")


def show(screen: Console, records: int, count: CountVerdict, windows: WindowVerdict, took_s: float) -> None:
    headline = f"{records:,} records, 1 crash, {count.lost:,} lost, {count.doubled:,} doubled"
    if count.foreign:
        headline += f", {count.foreign:,} lines nobody expected"
    counted = f"{count.ads:,} ads, each counted 1, 2, 3, … without a gap"
    if count.miscounted:
        counted = f"{count.miscounted:,} of {count.ads:,} ads miscounted"
    exact = count.exact and windows.exact
    colour = "green" if exact else "red"
    body = Text.assemble(
        (f"{headline}\n{counted}\n{windows_text(windows)}", f"bold {colour}"),
        f"\n{windows.late:,} late impressions made {windows.updates:,} updates of windows that had closed; "
        f"{windows.dropped:,} came too late and were dropped. {count.lines:,} impressions (the bots are left out) in "
        f"{count.files:,} files, after {took_s:.0f} s in all.",
        (f"\n\nLook around:  head {OUTPUT}/*/*.csv\n              less {STORE}/manifests/*.json", "dim"),
        (f"\n              {Path(sys.executable).parent / 'millstream'} list", "dim"),
    )
    title = "[bold]Exactly once" if exact else "[bold]NOT exact"
    screen.print(Panel(body, title=title, title_align="left", border_style=colour))


def windows_text(verdict: WindowVerdict) -> str:
    if verdict.wrong:
        return f"{verdict.wrong:,} windows of an ad have a wrong result"
    if verdict.missing != verdict.dropped:
        return (
            f"{verdict.missing:,} impressions are missing in windows, and {verdict.dropped:,} were counted as dropped"
        )
    ads = sum(window.ads for window in verdict.windows)
    return f"{ads:,} windows of an ad, the last result of each right but for what was dropped"


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=RECORDS, help="how many impressions (default %(default)s)")
    options.add_argument("--rate", type=float, default=PER_SECOND, help="impressions per second (default %(default)s)")
    sys.exit(main(**vars(options.parse_args())))
