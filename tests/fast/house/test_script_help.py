"""`scripts/NAME --help` describes the script and runs nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SCRIPTS = sorted(path.name for path in (ROOT / "scripts").iterdir() if path.is_file() and os.access(path, os.X_OK))


def is_shell(name: str) -> bool:
    return (ROOT / "scripts" / name).read_text(encoding="utf-8").startswith("#!/usr/bin/env bash")


def help_of(name: str, *words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = ["bash" if is_shell(name) else sys.executable, str(ROOT / "scripts" / name), *words]
    environment = {**os.environ, "MILLSTREAM_SERVERS": str(folder / "servers"), "PYTHONPATH": str(ROOT / "src")}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, timeout=300)


@pytest.mark.parametrize(
    "name", [name if is_shell(name) else pytest.param(name, marks=pytest.mark.slow) for name in SCRIPTS]
)
def test_help_describes_a_script_and_runs_nothing(name: str, tmp_path: Path) -> None:
    completed = help_of(name, "--help", folder=tmp_path)
    assert completed.returncode == 0, completed.stderr
    assert len(completed.stdout.split()) > 10 and not completed.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("words", [("--hlp",), (sys.executable, "kafca")])
def test_servers_rejects_unknown_names_before_downloading_anything(words: tuple[str, ...], tmp_path: Path) -> None:
    completed = help_of("servers", *words, folder=tmp_path)
    assert completed.returncode == 2 and "servers:" in completed.stderr
    assert not list(tmp_path.iterdir())
