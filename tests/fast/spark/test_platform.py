"""The errors for a Java or PySpark that Spark 4.3 does not support, before any JVM is started."""

from __future__ import annotations

from pathlib import Path

import pyspark
import pytest

from millstream.errors import PlatformError
from millstream.spark.session import check_platform


def java(folder: Path, version: str) -> Path:
    """A Java home whose `java -version` prints `version` as real ones do, on standard error."""
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2025-04-15' >&2\n")
    program.chmod(0o755)
    return folder


@pytest.mark.parametrize("version", ["17.0.15", "21.0.2"])
def test_java_17_and_21_are_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, version)))
    check_platform()


@pytest.mark.parametrize("version", ["1.8.0_402", "11.0.22", "25"])
def test_an_unsupported_java_is_reported_with_the_command_to_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(java(tmp_path, version)))
    with pytest.raises(PlatformError, match=r"Spark 4\.3 runs on 17 or 21\. Run: apt-get install openjdk-17-jre"):
        check_platform()


def test_a_missing_java_is_reported_with_the_command_to_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PlatformError, match=r"no Java was found.*apt-get install openjdk-17-jre-headless"):
        check_platform()


def test_an_unsupported_pyspark_is_reported_with_the_command_to_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pyspark, "__version__", "4.0.1")
    with pytest.raises(PlatformError, match=r"PySpark 4\.0\.1 is installed.*pip install 'pyspark==4\.3\.\*'"):
        check_platform()
