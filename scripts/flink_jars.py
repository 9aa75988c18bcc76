"""Flink's jars, for comparisons with Flink itself: downloaded once from the registry of Python packages, 330 MB,
into build/flink. Nothing of Millstream is imported.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

__all__ = ["BUILD", "JARS", "VERSION", "compile_against", "fetch_jars"]

VERSION = "2.3.0"
BUILD = Path(__file__).resolve().parent.parent / "build" / "flink"
JARS = BUILD / VERSION / "pyflink" / "lib"


def fetch_jars() -> None:
    """Download missing jars."""
    if JARS.is_dir():
        return
    print(f"fetching Flink {VERSION} into {BUILD}", file=sys.stderr)
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    package = f"apache-flink-libraries=={VERSION}"
    subprocess.run([*pip, "--target", str(BUILD / VERSION), package], check=True)


def compile_against(source: Path, classes: Path) -> None:
    """Compile a program of ours against them, if it changed."""
    compiled = classes / f"{source.stem}.class"
    if not compiled.exists() or compiled.stat().st_mtime < source.stat().st_mtime:
        subprocess.run(["javac", "-nowarn", "-cp", f"{JARS}/*", "-d", str(classes), str(source)], check=True)
