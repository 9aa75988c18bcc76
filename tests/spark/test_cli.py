"""The command line on a real Spark: an unmodified PyFlink program, a failing function, stopping and resuming."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from screens.interrupts import heeded_interrupts
from waits.patience import PATIENCE_S

from millstream.checkpoint.manifest import ManifestLog
from millstream.storage.store import open_store

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
MILLSTREAM = [sys.executable, "-m", "millstream.cli"]


def millstream(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*MILLSTREAM, *arguments],
        cwd=cwd,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


# --- a program written for PyFlink ----------------------------------------------------------------------------

WORDS_JOB = """
import argparse
import logging
import sys

from pyflink.common import Types
from pyflink.datastream import RuntimeExecutionMode, StreamExecutionEnvironment
from pyflink.datastream.functions import MapFunction, RuntimeContext

from splitting import Split, is_word


class Numbered(MapFunction):

    def open(self, runtime_context: RuntimeContext):
        self.subtask = runtime_context.get_index_of_this_subtask()

    def map(self, value):
        print("seen", value)
        return value.lower(), len(value)


def words(lines):
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_runtime_mode(RuntimeExecutionMode.BATCH)
    ds = env.from_collection(lines, Types.STRING())
    ds.flat_map(Split(), output_type=Types.STRING()) \\
        .filter(is_word) \\
        .map(Numbered(), output_type=Types.TUPLE([Types.STRING(), Types.INT()])) \\
        .map(lambda pair: "%s %d" % pair, output_type=Types.STRING()) \\
        .print()
    env.execute("words")


if __name__ == "__main__":
    logging.basicConfig(stream=sys.stdout, level=logging.WARNING, format="%(message)s")
    parser = argparse.ArgumentParser()
    parser.add_argument("--line", action="append")
    words(parser.parse_args().line)
"""

SPLITTING = """
import pyflink.common
from pyflink.datastream.functions import FlatMapFunction


class Split(FlatMapFunction):

    def flat_map(self, value):
        assert pyflink.common.Types.STRING() is not None
        yield from value.split()


def is_word(text):
    return text.isalpha()
"""


@pytest.fixture(scope="module")
def words(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """The PyFlink program, run from another folder than its own."""
    folder = tmp_path_factory.mktemp("words")
    program = folder / "program"
    program.mkdir()
    (program / "job.py").write_text(WORDS_JOB, encoding="utf-8")
    (program / "splitting.py").write_text(SPLITTING, encoding="utf-8")
    options = ["-p", "1", "-D", "millstream.spark.master=local[2]", "--store", "jobs/words"]
    arguments = ["--line", "To be or not", "--line", "2 be"]
    return folder, millstream("run", "--pyflink", *options, "program/job.py", "--", *arguments, cwd=folder)


def test_an_unmodified_pyflink_program_of_two_modules_runs(
    words: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    _, done = words
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if not line.startswith("seen")] == ["to 2", "be 2", "or 2", "not 3", "be 2"]
    assert [line for line in lines if line.startswith("seen")] == [f"seen {w}" for w in ("To", "be", "or", "not", "be")]


def test_without_a_terminal_the_console_is_lines_on_standard_error(
    words: tuple[Path, subprocess.CompletedProcess[str]],
) -> None:
    _, done = words
    last = done.stderr.splitlines()[-1]
    assert "words FINISHED" in last and "in 2 (" in last and "out 5 (" in last, done.stderr
    assert "Exception" not in done.stderr and "WARN" not in done.stderr


def test_the_job_is_listed_and_has_a_log(words: tuple[Path, subprocess.CompletedProcess[str]]) -> None:
    folder, _ = words
    shown = millstream("list", "jobs", cwd=folder)
    assert shown.returncode == 0 and "FINISHED" in shown.stdout, shown.stderr
    (job,) = map(json.loads, millstream("list", "jobs", "--json", cwd=folder).stdout.splitlines())
    assert (job["name"], job["status"], job["records"], job["store"]) == ("words", "FINISHED", 2, "jobs/words")
    (log,) = (folder / "jobs" / "words" / "logs").iterdir()
    assert f"run {log.stem}" in log.read_text(encoding="utf-8")


# --- a failing function ---------------------------------------------------------------------------------------

FAILING_JOB = """
from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment


def inverse(number):
    return 1 / number


env = StreamExecutionEnvironment.get_execution_environment()
numbers = env.from_collection([4, 2, 0, 1], Types.INT())
numbers.map(inverse, output_type=Types.DOUBLE()).name("invert").print()
env.execute("failing")
"""


def test_a_failing_function_shows_the_users_traceback_record_operator_and_line(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(FAILING_JOB, encoding="utf-8")

    done = millstream("run", "-p", "1", "job.py", cwd=tmp_path)

    assert done.returncode == 1
    shown = done.stderr[done.stderr.index("Traceback") :].splitlines()
    assert shown[0] == "Traceback (most recent call last):"
    assert shown[1].startswith('  File "') and shown[1].endswith('job.py", line 7, in inverse')
    assert shown[2] == "    return 1 / number"
    text = "\n".join(shown)
    assert "ZeroDivisionError: division by zero" in text
    assert "record    0" in text and "operator  'invert'" in text and "program   job.py:12" in text
    assert shown[-1].startswith("millstream: 'invert' failed: ZeroDivisionError") and "job.py:12" in shown[-1]
    for machinery in ("java", "scala", "py4j", "pyspark", "runpy", "millstream/"):
        assert machinery not in text, text
    assert done.stdout == "", "nothing of the failed epoch was published"


# --- stopping and resuming ------------------------------------------------------------------------------------

ENDLESS_JOB = """
import sys

from millstream.common import Encoder, Types, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import BucketAssigner, FileSink, RollingPolicy

env = StreamExecutionEnvironment.get_execution_environment()
source = DataGeneratorSource(lambda index: str(index), rate_per_second=500, type_info=Types.STRING())
files = FileSink.for_row_format(sys.argv[1], Encoder.simple_string_encoder()) \\
    .with_bucket_assigner(BucketAssigner.base_path_bucket_assigner()) \\
    .with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()
env.from_source(source, WatermarkStrategy.no_watermarks(), "numbers").sink_to(files)
env.execute("endless")
print("the program goes on")
"""


def run_until(cwd: Path, store_option: str, epochs: int, signal_number: signal.Signals) -> tuple[int, str, str]:
    """Run the endless job for some epochs, then send the signal as a terminal does: to the whole process group."""
    command = [*MILLSTREAM, "run", "-p", "2", store_option, "store", "job.py", "--", "out"]
    process = subprocess.Popen(
        command,
        cwd=cwd,
        env=ENVIRONMENT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    log = ManifestLog(open_store(str(cwd / "store")))
    goal, deadline = max(log.epochs(), default=0) + epochs, time.monotonic() + PATIENCE_S
    try:
        while max(log.epochs(), default=0) < goal and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        if signal_number is signal.SIGINT:
            os.killpg(process.pid, signal_number)
        else:
            os.kill(process.pid, signal_number)
        out, err = process.communicate(timeout=PATIENCE_S)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    return process.returncode, out, err


def test_an_interrupt_finishes_the_epoch_and_the_job_resumes_from_its_store(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text(ENDLESS_JOB, encoding="utf-8")
    log = ManifestLog(open_store(str(tmp_path / "store")))

    code, out, err = run_until(tmp_path, "--store", epochs=3, signal_number=signal.SIGINT)
    assert (code, out) == (0, "the program goes on\n"), err
    assert "finishing epoch" in err and "stopped at epoch" in err and "KeyboardInterrupt" not in err
    stopped = log.newest()
    assert stopped is not None and stopped.status == "SUSPENDED" and stopped.published_through >= stopped.epoch - 1

    code, out, err = run_until(tmp_path, "--from", epochs=3, signal_number=signal.SIGTERM)
    assert (code, out) == (0, "the program goes on\n"), err
    assert "requested by TERM" in err
    resumed = log.newest()
    assert resumed is not None and resumed.status == "SUSPENDED" and resumed.epoch > stopped.epoch

    lines = [line for path in (tmp_path / "out").glob("part-*") for line in path.read_text().splitlines()]
    read = sum(int(str(at.offset)) for splits in resumed.sources.values() for at in splits.values())
    assert len(lines) == len(set(lines)) == read, "what the manifests say was read is in the files, once"


@pytest.mark.parametrize(
    ("starter", "code", "delay_s"), [([*MILLSTREAM, "run"], 130, 0.0), ([sys.executable], -signal.SIGINT, 1.0)]
)
def test_an_interrupt_while_spark_starts_is_one_line_and_leaves_no_jvm(
    tmp_path: Path, starter: list[str], code: int, delay_s: float
) -> None:
    (tmp_path / "job.py").write_text(ENDLESS_JOB, encoding="utf-8")
    with heeded_interrupts(), (tmp_path / "said").open("w") as screen:
        process = psutil.Popen(
            [*starter, "job.py", "out"],
            cwd=tmp_path,
            env=ENVIRONMENT,
            stdout=screen,
            stderr=screen,
            start_new_session=True,
        )
    try:
        deadline = time.monotonic() + PATIENCE_S
        while not (jvms := [child for child in process.children(recursive=True) if _is_jvm(child)]):
            assert process.poll() is None and time.monotonic() < deadline, (tmp_path / "said").read_text()
            time.sleep(0.02)
        time.sleep(delay_s)
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(PATIENCE_S) == code, (tmp_path / "said").read_text()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    said = [line for line in (tmp_path / "said").read_text().splitlines() if line != "starting Spark …"]
    assert said == ["millstream: aborted before the job began"]
    assert not psutil.wait_procs(jvms, PATIENCE_S)[1]


def _is_jvm(process: psutil.Process) -> bool:
    try:
        return "org.apache.spark.deploy.SparkSubmit" in process.cmdline()
    except psutil.Error:
        return False
