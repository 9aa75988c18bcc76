"""What pip is asked to install for the tasks, and what users are told where that does not work. No network is used."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from wheels import wheel

from millstream.common.options.archives import archive_target
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import ConfigurationError, ProgramError
from millstream.spark.python_dependencies import has_archives, install_requirements, ship_dependencies


@pytest.fixture
def requirements(tmp_path: Path) -> Path:
    wheel(tmp_path / "packages", "milltaste")
    file = tmp_path / "requirements.txt"
    file.write_text("milltaste==1.0\n")
    return file


def test_packages_are_installed_from_the_folder_and_packed_for_the_tasks(requirements: Path) -> None:
    setting = {"python.requirements": f"{requirements}#{requirements.parent / 'packages'}"}
    archive = install_requirements(setting)
    assert archive is not None and "milltaste.py" in zipfile.ZipFile(archive).namelist()
    assert install_requirements(setting) == archive, "once for a process"
    assert install_requirements({}) is None


def test_a_package_that_the_folder_has_not_is_told_with_what_pip_says(requirements: Path) -> None:
    requirements.write_text("milltaste==2.0\n")
    with pytest.raises(ConfigurationError, match=r"could not be installed in .*milltaste==2\.0.*pip download"):
        install_requirements({"python.requirements": f"{requirements}#{requirements.parent / 'packages'}"})


def test_without_a_file_a_folder_or_pip_it_is_said_what_to_do(
    requirements: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no 'absent\.txt'"):
        install_requirements({"python.requirements": "absent.txt"})
    with pytest.raises(ConfigurationError, match=r"there is no folder 'absent'.*pip download -d absent"):
        install_requirements({"python.requirements": f"{requirements}#absent"})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    with pytest.raises(ConfigurationError, match="-m ensurepip"):
        install_requirements({"python.requirements": str(requirements)})


class Context:
    """Remembers what Spark is told to send."""

    def __init__(self) -> None:
        self.sent: list[tuple[str, str]] = []
        self._python_includes: list[str] = []

    def addPyFile(self, path: str) -> None:  # noqa: N802
        self.sent.append(("file", path))

    def addArchive(self, path: str) -> None:  # noqa: N802
        self.sent.append(("archive", path))


def test_everything_that_the_settings_name_is_sent() -> None:
    context: Any = Context()
    settings = {"python.files": "a.py, b.zip", "python.archives": "c.zip#c,d.tgz", "python.pythonpath": "/opt/a:/opt/b"}
    for _ in range(2):
        ship_dependencies(SimpleNamespace(sparkContext=context), settings, "made/packages-1.zip")
    assert context.sent[:4] == [("file", "a.py"), ("file", "b.zip"), ("archive", "c.zip#c"), ("archive", "d.tgz")]
    assert context.sent[4] == ("archive", "made/packages-1.zip#packages-1")
    assert context._python_includes == ["/opt/a", "/opt/b", "packages-1"], "once each"
    assert has_archives(settings) and not has_archives({"python.archives": " "})


@pytest.mark.parametrize(
    "item",
    [
        "data.zip#../data",
        "data.zip#/data",
        "data.zip#a/../../b",
        "data.zip#.",
        "a,b.zip",
        "a.zip#b#c",
        "data.rar",
        "data",
    ],
)
def test_an_archive_is_unpacked_within_the_working_directory_or_refused(item: str) -> None:
    with pytest.raises(ConfigurationError, match="Give"):
        archive_target(item)


def test_the_calls_of_pyflink_set_the_settings(requirements: Path, tmp_path: Path) -> None:
    env = StreamExecutionEnvironment.get_execution_environment()
    packages, archive = tmp_path / "packages", tmp_path / "data.zip"
    zipfile.ZipFile(archive, "w").close()
    env.set_python_requirements(str(requirements), str(packages))
    assert env._configuration.get_string("python.requirements", None) == f"{requirements}#{packages}"
    env.set_python_requirements(str(requirements))
    assert env._configuration.get_string("python.requirements", None) == str(requirements), "the last call counts"
    env.add_python_archive(str(archive), "data")
    env.add_python_archive(str(archive))
    assert env._configuration.get_string("python.archives", None) == f"{archive}#data,{archive}"
    with_a_mark = tmp_path / "a#b"
    with_a_mark.mkdir()
    for wrong in (
        lambda: env.set_python_requirements("absent.txt"),
        lambda: env.set_python_requirements(str(requirements), "absent"),
        lambda: env.set_python_requirements(str(tmp_path)),
        lambda: env.set_python_requirements(str(requirements), str(with_a_mark)),
        lambda: env.add_python_archive("absent.zip"),
        lambda: env.add_python_archive(sys.executable),
        lambda: env.add_python_archive(str(archive), "../data"),
    ):
        with pytest.raises((ProgramError, ConfigurationError), match=r"test_python_dependencies\.py:\d+"):
            wrong()
