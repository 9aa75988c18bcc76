"""What `millstream pack` writes is a Python with the environment's packages, wherever it is unpacked."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from millstream.cli.pack import pack_environment
from millstream.spark.shipping.environment_archive import FACTS_FILE, environment_files, write_environment

VERSION = f"{sys.version_info[0]}.{sys.version_info[1]}"


def installed(folder: Path, name: str, version: str, *, is_linked: bool = False) -> None:
    """A package as pip leaves it: a module, its metadata, and a list of its files."""
    facts = folder / f"{name}-{version}.dist-info"
    facts.mkdir(parents=True)
    (folder / f"{name}.py").write_text(f"VERSION = {version!r}\n")
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (facts / "RECORD").write_text(f"{name}.py,,\n{facts.name}/METADATA,,\n../../../bin/{name},,\n")
    if is_linked:
        (facts / "direct_url.json").write_text(json.dumps({"url": "file:///src", "dir_info": {"editable": True}}))


def packed(folder: Path, place: Path) -> Path:
    files, versions, _ = environment_files([str(folder)])
    write_environment(place, files, {"packages": versions})
    return place


def test_unpacked_elsewhere_it_starts_a_python_that_imports_the_packages(tmp_path: Path) -> None:
    installed(tmp_path / "site", "abacus", "1.5")
    archive = packed(tmp_path / "site", tmp_path / "environment.tar.gz")
    with tarfile.open(archive) as file:
        file.extractall(tmp_path / "elsewhere", filter="data")
    program = "import abacus, sys; print(abacus.VERSION, *sys.version_info[:2])"
    ended = subprocess.run(
        [str(tmp_path / "elsewhere" / "bin" / "python"), "-c", program],
        env={"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.defpath}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert ended.stdout.split() == ["1.5", *VERSION.split(".")]


def test_the_same_environment_gives_the_same_bytes_and_says_what_is_in_it(tmp_path: Path) -> None:
    installed(tmp_path / "site", "abacus", "1.5")
    first = packed(tmp_path / "site", tmp_path / "first.tar.gz").read_bytes()
    os.utime(tmp_path / "site" / "abacus.py", (1, 1))
    assert packed(tmp_path / "site", tmp_path / "second.tar.gz").read_bytes() == first
    with tarfile.open(tmp_path / "first.tar.gz") as file:
        facts = file.extractfile(FACTS_FILE)
        assert facts is not None
        assert json.load(facts) == {"format": 1, "packages": {"abacus": "1.5"}}


def test_spark_millstream_and_links_to_sources_are_left_out(tmp_path: Path) -> None:
    for name in ("pyspark", "millstream", "pip", "abacus"):
        installed(tmp_path / "site", name, "1.0")
    installed(tmp_path / "site", "workshop", "0.1", is_linked=True)
    files, versions, linked = environment_files([str(tmp_path / "site")])
    assert versions == {"abacus": "1.0"}
    assert linked == ["workshop"]
    assert sorted(files) == ["packages/abacus-1.0.dist-info/METADATA", "packages/abacus.py"]


@pytest.mark.parametrize(
    ("output", "requirements", "why"),
    [
        ("environment.zip", None, "expected a name that ends with .tar.gz"),
        ("nowhere/environment.tar.gz", None, "does not exist. Create it first"),
        ("environment.tar.gz", "absent.txt", "there is no 'absent.txt'"),
    ],
)
def test_what_cannot_be_packed_is_refused_and_nothing_is_written(
    output: str,
    requirements: str | None,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code = pack_environment(Path(output), Path(requirements) if requirements else None, with_python=False)
    assert code == 2
    assert why in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
