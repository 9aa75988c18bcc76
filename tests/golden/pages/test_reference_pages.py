"""The reference pages of settings and commands in docs/operate match the output of scripts/reference-pages, and their
examples run.
"""

from __future__ import annotations

import re
import runpy
import shlex
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from inputs.project_scripts import script_module
from typer.testing import CliRunner

from millstream.cli.main import app
from millstream.common import Configuration
from millstream.common.options import KNOWN
from millstream.common.options.flink_options import IGNORED_FAMILIES
from millstream.datastream import StreamExecutionEnvironment
from millstream.jobs.clock import SystemClock
from millstream.jobs.launch.job import Job
from millstream.jobs.launch.launch import Launch
from millstream.runtime.task.local import LocalRunner
from millstream.storage.store import open_store

pages = script_module("scripts/reference-pages")


@pytest.mark.parametrize(("path", "page"), pages.PAGES, ids=[path.name for path, _ in pages.PAGES])
def test_the_page_matches_the_scripts_output(path: Path, page: Callable[[], str]) -> None:
    assert path.read_text(encoding="utf-8") == page(), "run scripts/reference-pages --write"


def test_every_setting_is_on_the_page_once() -> None:
    text = pages.SETTINGS.read_text(encoding="utf-8")
    tables = "\n".join(line.split(" | ")[0] for line in text.splitlines() if line.startswith("| `"))
    assert sorted(re.findall(r"`([^`]+)`", tables)) == sorted([*KNOWN, *IGNORED_FAMILIES])


def test_the_defaults_on_the_page_parse_to_the_defaults_of_the_code() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|", pages.SETTINGS.read_text(encoding="utf-8"), re.MULTILINE)
    assert len(rows) > 20
    assert {key: KNOWN[key].parse(default) for key, default in rows} == {key: KNOWN[key].default for key, _ in rows}


def test_the_program_of_the_settings_page_runs() -> None:
    [program] = re.findall(r"```python\n(.*?)```", pages.SETTINGS.read_text(encoding="utf-8"), re.DOTALL)
    names: dict[str, Any] = {}
    exec(compile(program, "settings.md", "exec"), names)
    assert names["env"].get_parallelism() == 4


def test_a_command_without_an_example_stops_the_script(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "GUIDE", pages.GUIDE[1:])
    with pytest.raises(SystemExit, match=r"no example of \['pack', 'run'\]"):
        pages.command_line_page()


# --- the examples of the command line -------------------------------------------------------------------------

JOB = """
from millstream.common import Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.functions import KeyedProcessFunction
from millstream.datastream.state import ValueStateDescriptor


class Count(KeyedProcessFunction):
    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))

    def process_element(self, user, ctx):
        self.total.update((self.total.value() or 0) + 1)
        yield self.total.value()


def build(env):
    source = DataGeneratorSource(lambda n: "ann" if n % 2 else "bo", rate_per_second=2000, type_info=Types.STRING())
    users = env.add_source(source, "clicks").uid("clicks").key_by(lambda user: user, Types.STRING())
    users.process(Count(), Types.LONG()).uid("count").add_sink(lambda total: None).uid("out")


if __name__ == "__main__":
    env = StreamExecutionEnvironment.get_execution_environment()
    env.set_parallelism(2)
    build(env)
    env.execute("clicks")
"""


def examples() -> list[str]:
    blocks = re.findall(r"^```\n(.*?)^```", pages.COMMAND_LINE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
    return [line for block in blocks for line in block.splitlines()]


class Jobs:
    """The page's example job: it runs in this process, and is restarted if it has ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.job: Job | None = None

    def ensure_running(self) -> None:
        if self.job is None or self.job.wait(0):
            env = StreamExecutionEnvironment.get_execution_environment()
            env.set_parallelism(2).configure(Configuration().set_string("millstream.retention.epochs", "100000"))
            runpy.run_path(str(self.folder / "job.py"))["build"](env)
            store = open_store(str(self.folder / "jobs" / "clicks"), fsync=False)
            self.job = Launch(SystemClock(), LocalRunner(), store).start(env._graph("clicks"), env._job_settings())
        while self.job.board.now.published < 8 and not self.job.wait(0):
            time.sleep(0.01)

    def end(self) -> None:
        if self.job is not None:
            self.job.cancel()
            self.job.wait(60)


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Jobs]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(JOB, encoding="utf-8")
    jobs = Jobs(tmp_path)
    try:
        yield jobs
    finally:
        jobs.end()


def test_the_examples_of_the_command_line_run(jobs: Jobs) -> None:
    group = typer.main.get_command(app)
    commands = [shlex.split(line)[1:] for line in examples()]
    assert len(commands) > 12
    commands.sort(key=lambda command: command[0] == "sweep")  # it removes epochs that other commands read
    for command in commands:
        if command[0] in ("run", "pack", "query-server") or "--set-aside" in command:
            # One starts Spark, one takes minutes, one never ends, and no rows are dead-lettered here: other tests run
            # them.
            # This test only parses them.
            group.make_context("millstream", list(command), resilient_parsing=True)
            group.commands[command[0]].make_context(command[0], command[1:])  # type: ignore[attr-defined]
            continue
        if jobs.job is None or command[0] in ("stop", "cancel", "rescale", "fork"):
            jobs.ensure_running()
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, f"{command}: {done.output}"
