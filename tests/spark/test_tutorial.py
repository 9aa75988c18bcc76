"""docs/start/tutorial.md from its first line to its last: programs are saved, commands typed, answers compared.

One shell types all commands, so that `$!` is what the reader's would be. Where a reader waits for something to be seen,
so does the test: until what is printed is what the page says.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 300  # of each step: a machine that has other things to do takes minutes to start Spark
_BLOCK = re.compile(r"^```(python|sh|text)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Step:
    """What is typed, and what is printed then; None where the page does not say."""

    typed: str
    printed: str | None


class Terminal:
    """A shell in a folder. It ends with everything that it has started."""

    def __init__(self, folder: Path) -> None:
        commands = folder / "bin"
        commands.mkdir()
        for name, arguments in (("millstream", "-m millstream.cli "), ("python", "")):
            command = commands / name
            command.write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments}"$@"\n')
            command.chmod(command.stat().st_mode | stat.S_IXUSR)
        environment = {
            **os.environ,
            "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "src"),
        }
        self._shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._typed = 0

    def type(self, commands: str) -> tuple[str, int]:
        """What the commands print, and the exit code of the last one."""
        assert self._shell.stdin is not None and self._shell.stdout is not None
        self._typed += 1
        mark = f"<<{self._typed}>>"
        # What runs behind the prompt must not keep the answer open, nor read what is typed next.
        behind = re.sub(r" &$", " </dev/null >/dev/null &", commands.strip(), flags=re.MULTILINE)
        self._shell.stdin.write(f"{behind}\necho; echo '{mark}'$?\n")
        self._shell.stdin.flush()
        lines: list[str] = []
        for line in self._shell.stdout:
            if line.startswith(mark):
                return "".join(lines).removesuffix("\n"), int(line.removeprefix(mark))
            lines.append(line)
        raise AssertionError(f"the shell ended: {''.join(lines)}")

    def close(self) -> None:
        # The session of this very shell: jobs behind the prompt, and Spark's processes of them.
        os.killpg(self._shell.pid, signal.SIGKILL)
        self._shell.wait(10)
        for stream in (self._shell.stdin, self._shell.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    try:
        yield terminal
    finally:
        terminal.close()


def steps(folder: Path) -> list[Step]:
    """The commands of the page, with what they print; its programs are saved under the names they say."""
    blocks = _BLOCK.findall((ROOT / "docs" / "start" / "tutorial.md").read_text(encoding="utf-8"))
    steps: list[Step] = []
    for at, (language, text) in enumerate(blocks):
        if language == "python":
            name = text.partition("\n")[0].removeprefix("# ")
            (folder / name).write_text(text, encoding="utf-8")
        elif language == "sh":
            following = blocks[at + 1] if at + 1 < len(blocks) else ("", "")
            steps.append(Step(text, following[1] if following[0] == "text" else None))
    return steps


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


@pytest.mark.slow
@pytest.mark.timeout(1_800)
def test_the_tutorial_runs_from_its_first_line_to_its_last(tmp_path: Path, terminal: Terminal) -> None:
    port = str(free_port())
    answers = []
    for step in steps(tmp_path):
        until = time.monotonic() + PATIENCE_S
        typed = step.typed.replace("8787", port)
        printed, code = terminal.type(typed)
        while step.printed is not None and printed != step.printed and time.monotonic() < until:
            time.sleep(0.2)
            printed, code = terminal.type(typed)
        log = tmp_path / "run.log"
        told = log.read_text() if log.exists() else ""
        assert step.printed is None or printed == step.printed, f"{step.typed}: {printed}\n{told}"
        assert code == 0, f"{step.typed}: {printed}\n{told}"
        answers.append(printed)
    assert any("ad-1,3" in answer for answer in answers), answers
    assert any(re.search(r'"value": ?3\b', answer) for answer in answers), answers
