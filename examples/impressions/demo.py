"""`make demo`: a stream is processed, queried, killed with kill -9 half-way, recovered, and proved exact.

The job is `job.py` in this folder, run like any user's, with a query server of its own. This program watches its
manifests from outside, kills its whole process group (driver, JVM and all) when half of the records are committed, and
restarts it on the same store. Throughout, one ad's open windows are queried at the job's address; in a terminal the
user may query others after the crash, while the stream continues. Then the job is drained, and `judge.py` reads the
files: every impression must be present once, those of each ad numbered without a gap, and every ten seconds of every ad
must have their correct result, because the counts and the open windows are keyed state and are recovered with
everything else; and no answer may have decreased. Exit code 0 only if nothing is lost, duplicated, miscounted, wrong or
decreased.
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
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from asking import Answer, Keyboard, Questions, Refused, Watch, free_address
from job import ADS, PER_SECOND, RECORDS, SPEED, USUAL_DELAY_MS, WINDOW, AdServer
from judge import human_impressions, judge_answers, judge_count, judge_windows
from rich.console import Console
from rich.padding import Padding
from rich.panel import Panel
from rich.table import Table
from rich.text import Text
from telling import answer_shown, indented, show, window_table

from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.errors import StoreError
from millstream.jobs.console.amounts import bytes_text, time_text
from millstream.jobs.console.bottom_area import BottomArea
from millstream.jobs.console.console_view import cut
from millstream.jobs.epochs.progress_report import state_size
from millstream.storage.store import open_store

HERE = Path(__file__).resolve().parent
STORE = Path(".millstream", "impressions")
OUTPUT = Path(".millstream", "impressions-output")
SCREEN = Path(".millstream", "impressions-screen.txt")
# The longest time without a new epoch: a busy machine takes minutes to start Spark.
PATIENCE_S = 600
# An inactive user is not waited for, and the number of queries is limited.
SILENCE_S, QUESTIONS_S = 20, 60


class Unproved(Exception):
    """The demo cannot continue; the message for the user."""


@dataclass(frozen=True)
class Demo:
    """The common data of both lives of the job. `ad` is the one that is queried throughout."""

    screen: Console
    keyboard: Keyboard | None
    records: int
    rate: float
    server: AdServer
    address: str
    questions: Questions
    ad: int


def main(records: int, rate: float) -> int:
    screen = Console(highlight=False)
    keyboard = Keyboard(sys.stdin.fileno()) if screen.is_terminal and is_ours(sys.stdin) else None
    for folder in (STORE, OUTPUT):
        shutil.rmtree(folder, ignore_errors=True)
    SCREEN.parent.mkdir(exist_ok=True)
    SCREEN.unlink(missing_ok=True)
    began = time.monotonic()
    length = records + (QUESTIONS_S * rate if keyboard else 0)
    server = server_until(int(time.time() * 1000), int(length), rate)
    address = free_address()
    demo = Demo(screen, keyboard, records, rate, server, address, Questions(address), busy_ad(server))
    introduce(demo)
    try:
        with Watch(demo.questions, demo.ad) as watch:
            first_life(demo, watch)
            before = watch.answers
            second_life(demo, watch, len(before))
        return judged(demo, before, watch.answers[len(before) :], began)
    except (Unproved, Refused) as why:
        screen.print(Text(str(why), style="bold red"))
        return 1
    except KeyboardInterrupt:
        screen.print("\n[bold red]Interrupted: nothing is proved.")
        return 130


def is_ours(typed: TextIO) -> bool:
    """Whether it is a terminal whose input belongs to us: a background process that reads is stopped."""
    return typed.isatty() and os.tcgetpgrp(typed.fileno()) == os.getpgrp()


def server_until(now_ms: int, records: int, rate: float) -> AdServer:
    """A server whose last impression was seen about now, and all but the late ones since the start of a window."""
    length_ms, window_ms = int(records * 1_000 * SPEED / rate), WINDOW.to_millis()
    start_ms = (now_ms - length_ms) // window_ms * window_ms
    return AdServer(first_ms=start_ms + USUAL_DELAY_MS, per_second=rate / SPEED)


def busy_ad(server: AdServer) -> int:
    """An ad that is seen often."""
    seen = Counter(event.ad for event in human_impressions(server, range(10 * ADS)))
    return int(seen.most_common(1)[0][0])


# --- the story ------------------------------------------------------------------------------------------------


def introduce(demo: Demo) -> None:
    demo.screen.print(
        Panel(
            "Ad impressions stream in, are cleaned of bots, numbered per ad, summed up per ad in windows of ten "
            "seconds of event time, and written to files: each exactly once, although the job is killed with kill -9 "
            "half-way. One in fifty comes late: some correct windows that have closed, some are dropped. Windows that "
            "are still open can be asked for. The program is examples/impressions/job.py.",
            title="[bold]Millstream demo",
            title_align="left",
            border_style="cyan",
        )
    )


def first_life(demo: Demo, watch: Watch) -> None:
    """Until half of the records are committed, and a query was answered."""
    say(
        demo,
        1,
        f"Start the job: {demo.rate:,.0f} impressions a second, {SPEED} times as fast as they were seen. While it "
        f"runs, ask it from another terminal for the open windows of any ad, 0 to {ADS - 1}:",
    )
    # In a row of its own and not indented: so it fits 80 columns, and can be copied as a whole.
    demo.screen.print(Text(f"\ncurl {demo.questions.url(demo.ad)}\n"), soft_wrap=True)
    half = demo.records // 2
    with running_job(demo) as job, waiting(demo, f"It is killed when it has {half:,} impressions") as show:
        wait_until(job, lambda: records_in(newest_manifest()) >= half, show)
        half_way = epoch_of(newest_manifest())
        wait_until(job, lambda: bool(watch.answers) and watch.answers[-1].epoch >= half_way, show)
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
    answers = watch.answers
    say(demo, 2, f"Ad {demo.ad} was asked for {len(answers):,} times while it ran. The last answer:")
    demo.screen.print("", answer_shown(answers[-1]), sep="\n")
    committed = newest_manifest()
    assert committed is not None
    say(
        demo,
        3,
        f"kill -9! Driver and JVM died in the middle of epoch {committed.epoch + 1}. The newest manifest is epoch "
        f"{committed.epoch}: {records_in(committed):,} records, {kept_in(committed)}. "
        "What came after it never happened.",
    )


def second_life(demo: Demo, watch: Watch, known: int) -> None:
    """Until all records are committed and the user has no more queries; then the stream is ended."""
    say(demo, 4, "Run the same command again. It opens that manifest and goes on; there is nothing to repair.")
    if not demo.screen.is_terminal:
        demo.screen.print()
    with running_job(demo) as job:
        with waiting(demo, "The job starts again") as show:
            wait_until(job, lambda: len(watch.answers) > known, show)
        first = watch.answers[known]
        say(demo, 5, f"Ask the same again, at the same address. The first answer about ad {demo.ad} after the crash:")
        demo.screen.print("", answer_shown(first), "", sep="\n")
        if demo.keyboard is not None:
            with waiting(demo, "Until Spark runs, the answer stays what it was") as show:
                wait_until(job, lambda: watch.answers[-1].epoch > first.epoch, show)
            ask_user(demo, demo.keyboard, job)
        with waiting(demo, f"It goes on until it has {demo.records:,} impressions") as show:
            wait_until(job, lambda: records_in(newest_manifest()) >= demo.records, show)
        say(demo, 6, f"Enough. End the stream, and let all windows close: millstream stop --drain {STORE}")
        stopping = [sys.executable, "-m", "millstream.cli", "stop", "--drain", str(STORE)]
        stopped = subprocess.run(stopping, capture_output=True, text=True, check=False)
        if stopped.returncode != 0 or job.wait(timeout=PATIENCE_S) != 0:
            raise Unproved(f"The job did not end well; its log is in {STORE / 'logs'}. {stopped.stderr}")


def ask_user(demo: Demo, keyboard: Keyboard, job: subprocess.Popen[bytes]) -> None:
    """Answer queries of ads until there are no more."""
    invitation = f"Now you: it runs, and its windows fill. (After {SILENCE_S} s of silence it goes on.)"
    demo.screen.print(indented(Text(invitation, "bold")))
    until_s = time.monotonic() + QUESTIONS_S
    while (left_s := until_s - time.monotonic()) > 0:
        demo.screen.print(f"\n    [bold cyan]ad 0 to {ADS - 1}, or Enter to let it finish:[/] ", end="")
        line = keyboard.line(min(SILENCE_S, left_s), lambda: job.poll() is not None)
        if line is None:
            demo.screen.print()  # nobody has pressed Enter
        if not line:
            return
        demo.screen.print(answered(demo.questions, line))


def answered(questions: Questions, ad: str) -> Padding:
    """The text for a user's query of an ad: the answer, or the error."""
    try:
        answer = questions.ask(ad)
    except Refused as why:
        return indented(Text(str(why), "yellow"))
    if answer is None:
        return indented(Text("Nobody answers at this moment. Ask again.", "yellow"))
    return answer_shown(answer)


def judged(demo: Demo, before: tuple[Answer, ...], after: tuple[Answer, ...], began: float) -> int:
    say(demo, 7, f"Read the files in {OUTPUT} and compare them, line by line, with the answer computed apart.")
    ended = newest_manifest()
    humans = human_impressions(demo.server, taken_in(ended))
    count = judge_count(humans, OUTPUT / "numbered")
    windows = judge_windows(humans, demo.server, OUTPUT / "windows", dropped_in(ended))
    answers = judge_answers(before, after, OUTPUT / "windows")
    demo.screen.print("", window_table(windows), sep="\n")
    look_around = (
        f"head {OUTPUT}/*/*.csv",
        f"less {STORE}/manifests/*.json",
        f"{relative(Path(sys.executable).parent / 'millstream')} list",
    )
    show(demo.screen, records_in(ended), count, windows, answers, time.monotonic() - began, look_around)
    return 0 if count.exact and windows.exact and answers.exact else 1


def relative(path: Path) -> Path:
    """The path relative to the current folder, if it is below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def say(demo: Demo, number: int, text: str) -> None:
    line = Table.grid(padding=(0, 1))
    line.add_row(Text(f" {number} ", "bold reverse cyan"), Text(text, "bold"))
    wraps = demo.screen.is_terminal  # elsewhere a step is one line
    demo.screen.print("", line if wraps else f" {number}  {text}", sep="\n", soft_wrap=not wraps)


@contextmanager
def waiting(demo: Demo, text: str) -> Iterator[Callable[[], None]]:
    """Yields a function that shows the job's progress in one row of a terminal; elsewhere the job itself prints it."""
    if not demo.screen.is_terminal:
        yield lambda: None
        return
    area, began = BottomArea(sys.stdout), time.monotonic()

    def show() -> None:
        manifest = newest_manifest()
        far = f"epoch {manifest.epoch}, {records_in(manifest):,} impressions" if manifest else "Spark starts"
        row = f"{text} … {far}, {time.monotonic() - began:.0f} s"
        area.draw([cut(row, area.size.columns)])

    try:
        yield show
    finally:
        area.close()


# --- the job, from outside ------------------------------------------------------------------------------------


@contextmanager
def running_job(demo: Demo) -> Iterator[subprocess.Popen[bytes]]:
    """The job in a process group of its own, so that all of it can be killed at once. None survives the block.

    On a terminal the screen belongs to the demo: the job's own output goes into a file.
    """
    command = [sys.executable, "-m", "millstream.cli", "run", "--store", str(STORE)]
    # Small epochs, however far a slow start let the stream run ahead: a job of two epochs has no half-way.
    command += ["-D", f"millstream.epoch.max-records={max(1, demo.records // 20)}"]
    command += ["-D", "millstream.epoch.min-interval=250 ms", "-D", f"millstream.query.listen={demo.address}"]
    command += ["-p", "2", str(HERE / "job.py"), "--", "--output", str(OUTPUT), "--rate", str(demo.rate)]
    # More than needed: the stream must not end while the user is querying. But it does if nobody stops it.
    command += ["--records", str(int(demo.records + 3 * QUESTIONS_S * demo.rate))]
    # The clock is read once, by the demo: after the crash the server must generate the same impressions again.
    command += ["--first-ms", str(demo.server.first_ms)]
    with SCREEN.open("ab") if demo.screen.is_terminal else nullcontext() as screen:
        job = subprocess.Popen(command, start_new_session=True, stdin=subprocess.DEVNULL, stdout=screen, stderr=screen)
        try:
            yield job
        finally:
            if job.poll() is None:
                os.killpg(job.pid, signal.SIGKILL)
                job.wait()


def wait_until(job: subprocess.Popen[bytes], come: Callable[[], bool], show: Callable[[], None]) -> None:
    """Wait for an event caused by the job, while it runs; `show` is called periodically."""
    epoch, heard = epoch_of(newest_manifest()), time.monotonic()
    while not come():
        if job.poll() is not None:
            raise Unproved(f"The job ended by itself, with exit code {job.returncode}; its log is in {STORE / 'logs'}.")
        if epoch_of(newest_manifest()) != epoch:
            epoch, heard = epoch_of(newest_manifest()), time.monotonic()
        if time.monotonic() - heard > PATIENCE_S:
            raise Unproved(f"The job has had no new epoch for {PATIENCE_S} s; its log is in {STORE / 'logs'}.")
        show()
        time.sleep(0.05)


def newest_manifest() -> Manifest | None:
    try:
        return ManifestLog(open_store(str(STORE))).newest()
    except StoreError:
        return None  # it is being written at this moment


def taken_in(manifest: Manifest | None) -> list[int]:
    """The indexes of the impressions that the job has read, from the offsets of a manifest.

    Split 3 of 16 has the indexes 3, 19, 35, …
    """
    (splits,) = ({} if manifest is None else manifest.sources).values() or [{}]
    offsets = {int(name): int(str(at.offset)) for name, at in splits.items()}
    return sorted(first + len(offsets) * at for first, offset in offsets.items() for at in range(offset))


def records_in(manifest: Manifest | None) -> int:
    """Their number."""
    sources = {} if manifest is None else manifest.sources
    return sum(int(str(at.offset)) for splits in sources.values() for at in splits.values())


def epoch_of(manifest: Manifest | None) -> int:
    return 0 if manifest is None else manifest.epoch


def kept_in(manifest: Manifest) -> str:
    """The keyed state and the event time of a manifest, in words."""
    size = state_size(manifest)
    kept = f"the counts and open windows ({bytes_text(size.bytes)} of state)"
    at = f"the watermark {time_text(manifest.watermark or 0, manifest.created_ms)} UTC"
    return f"{kept}, {at}, {dropped_in(manifest):,} impressions dropped as too late"


def dropped_in(manifest: Manifest | None) -> int:
    """The number of impressions that were late for their window, as counted by the job itself."""
    metrics: Any = {} if manifest is None else manifest.counters.get("metrics", {})
    return int(metrics.get("windows-per-ad.numLateRecordsDropped", {}).get("counter", 0))


if __name__ == "__main__":
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, _: sys.exit(128 + number))  # so that the job does not outlive the demo
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--records", type=int, default=RECORDS, help="impressions, at least (default %(default)s)")
    options.add_argument("--rate", type=float, default=PER_SECOND, help="impressions per second (default %(default)s)")
    sys.exit(main(**vars(options.parse_args())))
