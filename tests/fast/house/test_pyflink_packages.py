"""PyFlink's packages and our own modules are distinguishable by layout: in a package of PyFlink's, a file is a
PyFlink module and a folder is ours.

Every module file in a package of PyFlink's has the path of a PyFlink module. Our own modules are in subfolders:
either under a name of our own (`streams`, `options`), or as the implementation of a module that PyFlink has as one
file (`functions`, `window`, `typeinfo`).
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
SOURCE = ROOT / "src" / "millstream"
REFERENCES = sorted((ROOT / "tests" / "reference").glob("pyflink-*-api.txt"))

MODULES = [
    module
    for reference in REFERENCES
    for module in re.findall(r"^## (\S+\.py) ", reference.read_text(encoding="utf-8"), re.MULTILINE)
]
PYFLINK = frozenset(MODULES)
FACE = sorted({Path(path).parent.as_posix() for path in PYFLINK})


def test_the_packages_are_pyflinks() -> None:
    assert FACE == [
        "common",
        "dataframe",
        "datastream",
        "datastream/connectors",
        "datastream/formats",
        "metrics",
        "table",
    ]


@pytest.mark.parametrize("folder", FACE)
def test_a_file_in_a_package_of_pyflinks_is_a_pyflink_module(folder: str) -> None:
    files = {path.relative_to(SOURCE).as_posix() for path in (SOURCE / folder).glob("*.py")}
    assert not files - PYFLINK, (
        f"PyFlink has no such module; our own modules go into a folder: {sorted(files - PYFLINK)}"
    )


@pytest.mark.parametrize("module", sorted(PYFLINK))
def test_a_pyflink_module_is_a_file_or_a_folder_of_its_name(module: str) -> None:
    file = SOURCE / module
    package = file.with_suffix("") / "__init__.py"
    assert file.is_file() != package.is_file(), f"expected {module} or {package.relative_to(SOURCE)}, and not both"
