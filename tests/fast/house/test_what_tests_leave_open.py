"""Resources that a test leaves open fail that test, and not a later one (tests/conftest.py, decision 0034)."""

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
def test_a_leak_fails_its_test_and_a_module_scoped_leak_the_last_test_of_the_file(tmp_path: Path) -> None:
    shutil.copy(TESTS / "conftest.py", tmp_path)
    (tmp_path / "test_leaving.py").write_text(LEAVING)
    (tmp_path / "test_tidy.py").write_text("def test_later(): pass\n")
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "--rootdir", str(tmp_path), str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    output = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False).stdout
    assert re.findall(r"^ERROR .*::(\w+)", output, re.MULTILINE) == ["test_first", "test_third", "test_fifth"], output
    assert "6 passed, 3 errors" in output
