"""What a test leaves open fails that test, and not one that runs later (tests/conftest.py, decision 0034)."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[2]

LEAVING = '''
import socket
from types import SimpleNamespace

import pytest


def leave_open():
    """A socket in a cycle of references: only the collector finds it."""
    cycle = SimpleNamespace(socket=socket.socket())
    cycle.itself = cycle
    return cycle


@pytest.fixture
def for_a_test():
    yield leave_open()


@pytest.fixture(scope="module")
def for_the_file():
    yield leave_open()


def test_first(): leave_open()
def test_second(): pass
def test_third(for_a_test): pass
def test_fourth(for_the_file): pass
def test_fifth(for_the_file): pass
'''


@pytest.mark.slow
def test_what_a_test_leaves_open_fails_it_and_what_is_for_a_file_its_last_test(tmp_path: Path) -> None:
    shutil.copy(TESTS / "conftest.py", tmp_path)
    (tmp_path / "test_leaving.py").write_text(LEAVING)
    (tmp_path / "test_tidy.py").write_text("def test_later(): pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "--rootdir", str(tmp_path), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    told = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    assert re.findall(r"^ERROR .*::(\w+)", told, re.MULTILINE) == ["test_first", "test_third", "test_fifth"], told
    assert "6 passed, 3 errors" in told
