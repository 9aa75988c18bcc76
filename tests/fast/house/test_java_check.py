"""A missing or unsupported Java is reported before anything else happens, with the command that installs a
supported one.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "check-java"
BASH = shutil.which("bash")


def run(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    assert BASH, "these tests need bash"
    return subprocess.run([BASH, str(SCRIPT)], capture_output=True, text=True, check=False, env=environment)


def fake_java(home: Path, banner: str, exit_code: int = 0) -> dict[str, str]:
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / "java"
    java.write_text(f"#!/bin/sh\ncat >&2 <<'END'\n{banner}\nEND\nexit {exit_code}\n", encoding="utf-8")
    java.chmod(0o755)
    return {"PATH": os.environ["PATH"], "JAVA_HOME": str(home)}


@pytest.mark.parametrize(
    "banner",
    [
        'openjdk version "17.0.15" 2025-04-15',
        'openjdk version "21" 2023-09-19',
        'java version "17-ea" 2021-09-14',
        'Picked up JAVA_TOOL_OPTIONS: -Xmx1g\nopenjdk version "21.0.2" 2024-01-16',
    ],
)
def test_java_17_and_21_pass_silently(tmp_path: Path, banner: str) -> None:
    result = run(fake_java(tmp_path / "jdk", banner))
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("banner", "found"),
    [
        ('java version "1.8.0_402"', "Java 8"),
        ('openjdk version "11.0.2" 2019-01-15', "Java 11"),
        ('openjdk version "25.0.3"', "Java 25"),
    ],
)
def test_an_unsupported_java_is_reported_with_the_install_command(tmp_path: Path, banner: str, found: str) -> None:
    result = run(fake_java(tmp_path / "jdk", banner))
    assert result.returncode != 0
    assert found in result.stderr
    assert "17 or 21" in result.stderr
    assert "apt-get install openjdk-17-jre-headless" in result.stderr


def test_a_missing_java_is_reported_with_the_install_command(tmp_path: Path) -> None:
    for tool in ("sed", "head"):
        (tmp_path / tool).symlink_to(shutil.which(tool) or "")
    result = run({"PATH": str(tmp_path)})
    assert result.returncode != 0
    assert "no java was found" in result.stderr
    assert "apt-get install openjdk-17-jre-headless" in result.stderr


def test_a_java_home_without_a_java_is_reported_even_if_the_path_has_one(tmp_path: Path) -> None:
    result = run({"PATH": os.environ["PATH"], "JAVA_HOME": str(tmp_path / "gone")})
    assert result.returncode != 0
    assert str(tmp_path / "gone") in result.stderr


def test_a_java_that_cannot_start_is_reported_with_its_output(tmp_path: Path) -> None:
    result = run(fake_java(tmp_path / "jdk", "cannot load libjvm", exit_code=3))
    assert result.returncode != 0
    assert "cannot load libjvm" in result.stderr
