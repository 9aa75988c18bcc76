"""The user's modules are sent: all in the program's folder, and those imported from other user folders; nothing
else.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from types import ModuleType

import pytest

from millstream.errors import ProgramError
from millstream.spark.shipping import program_files as shipping


class Program:
    """A folder with a program in it, and the modules that its process has imported."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        write(folder, "job.py")
        main = ModuleType("__main__")
        main.__file__ = str(folder / "job.py")
        self.modules = {"__main__": main}

    def files(self) -> list[str]:
        return sorted(shipping.program_files(self.modules))


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path / "program")


def write(folder: Path, *names: str) -> None:
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("")


def test_modules_and_packages_in_the_programs_folder_are_sent_even_if_not_imported(program: Program) -> None:
    write(program.folder, "rates.py", "shop/__init__.py", "shop/till/__init__.py", "shop/prices.csv")
    write(
        program.folder,
        "data/input.csv",
        "notes.txt",
        ".venv/lib/thing.py",
        "shop/.git/config",
        "shop/__pycache__/a.pyc",
    )
    assert program.files() == ["job.py", "rates.py", "shop/__init__.py", "shop/prices.csv", "shop/till/__init__.py"]


def test_modules_imported_from_other_folders_of_the_user_are_sent_under_their_names(
    program: Program, tmp_path: Path
) -> None:
    write(tmp_path / "lib", "tools/__init__.py", "tools/wood.py", "alone.py", "untouched.py")
    for name, file in {"tools.wood": "tools/wood.py", "alone": "alone.py"}.items():
        program.modules[name] = ModuleType(name)
        program.modules[name].__file__ = str(tmp_path / "lib" / file)
    assert program.files() == ["alone.py", "job.py", "tools/__init__.py", "tools/wood.py"]


def test_installed_packages_python_itself_and_millstream_are_not_sent(program: Program) -> None:
    for name in ("json", "numpy", "pyarrow", "millstream.errors"):
        program.modules[name] = importlib.import_module(name)
    assert program.files() == ["job.py"]


def test_an_interactive_session_has_no_program_and_sends_nothing() -> None:
    assert shipping.program_files({"__main__": ModuleType("__main__")}) == {}


def test_too_much_data_among_modules_is_rejected_with_the_largest_file(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(program.folder, "shop/__init__.py")
    (program.folder / "shop" / "everything.bin").write_bytes(bytes(2048))
    monkeypatch.setattr(shipping, "_BYTES_MAX", 1024)
    with pytest.raises(ProgramError, match=r"largest file is .*everything\.bin.*python\.archives"):
        program.files()


@pytest.mark.slow
def test_the_tests_own_process_sends_neither_millstream_nor_pytest() -> None:
    assert {"millstream", "pytest"}.isdisjoint(name.partition("/")[0] for name in shipping.program_files())
