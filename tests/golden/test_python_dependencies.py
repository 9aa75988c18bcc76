"""Installing Python packages for the tasks with pip, and the errors if that fails. No network is used."""

from __future__ import annotations

import os
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from inputs.wheels import wheel

from millstream.common.options.archives import archive_target
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import ConfigurationError, ProgramError
from millstream.spark.python_dependencies import install_requirements, ship_dependencies
from millstream.spark.shipping.program_files import program_edits
from millstream.spark.task_imports import TaskImports


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


def test_a_package_missing_from_the_folder_is_reported_with_pips_output(requirements: Path) -> None:
    requirements.write_text("milltaste==2.0\n")
    with pytest.raises(ConfigurationError, match=r"could not be installed in .*milltaste==2\.0.*pip download"):
        install_requirements({"python.requirements": f"{requirements}#{requirements.parent / 'packages'}"})


def test_a_missing_file_folder_or_pip_is_reported_with_the_next_step(
    requirements: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no 'absent\.txt'"):
        install_requirements({"python.requirements": "absent.txt"})
    with pytest.raises(ConfigurationError, match=r"no folder 'absent'.*pip download -d absent"):
        install_requirements({"python.requirements": f"{requirements}#absent"})
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("shutil.which", lambda name, path=None: None)
    with pytest.raises(ConfigurationError, match="-m ensurepip"):
        install_requirements({"python.requirements": str(requirements)})


class Context:
    """Records the files that Spark ships."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self._python_includes: list[str] = []
        self.environment: dict[str, str] = {}

    def addArchive(self, path: str) -> None:  # noqa: N802
        self.sent.append(path)


def shipped(context: Any, **settings: str) -> TaskImports:
    configuration = {f"python.{name}": value for name, value in settings.items()}
    return ship_dependencies(SimpleNamespace(sparkContext=context), configuration, None)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "added.py").write_text("ONE = 1\n")
    for name in ("b.zip", "c.zip"):
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("words.txt", name)
    (tmp_path / "d.tgz").write_bytes(b"packed")
    return tmp_path


def test_everything_that_the_settings_name_is_sent_once(files: Path) -> None:
    context: Any = Context()
    settings = {"files": "added.py, b.zip", "archives": "c.zip#c,d.tgz", "pythonpath": "/opt/a:/opt/b"}
    imports = shipped(context, **settings)
    assert shipped(context, **settings) == imports
    names = [item.partition("#")[2] for item in context.sent]
    assert [name.rpartition("-")[0] for name in names] == ["added", "b", "c", "d"]
    assert imports.folders == ("/opt/a", "/opt/b", *names[:2])
    assert imports.archives == (("c", names[2]), ("d.tgz", names[3]))
    assert context._python_includes == list(imports.folders)


def test_files_of_equal_name_and_different_content_get_separate_folders_and_workers(files: Path) -> None:
    context: Any = Context()
    first, workers = shipped(context, files="added.py"), dict(context.environment)
    (files / "added.py").write_text("ONE = 2\n")
    second = shipped(context, files="added.py")
    assert set(first.folders).isdisjoint(second.folders) and context.environment != workers
    assert context._python_includes == list(second.folders), "the first one's folder is not looked in"
    first.apply(context)
    assert context.environment == workers and context._python_includes == list(first.folders)
    shipped(context)
    assert not context.environment and not context._python_includes, "a job without files shares the usual workers"


def test_archives_are_unpacked_under_their_names_in_a_folder_of_the_job(files: Path) -> None:
    imports = [TaskImports(archives=(("in/data", name), ("d", "other"))) for name in ("data-1", "data-2")]
    for name in ("data-1", "data-2", "other"):
        (files / name).mkdir()
        (files / name / "word").write_text(name)
    folders = [each.working_folder(str(files)) for each in imports for _ in range(2)]
    assert folders[0] == folders[1] != folders[2] == folders[3]
    assert [Path(str(folder), "in/data/word").read_text() for folder in folders[1:3]] == ["data-1", "data-2"]
    assert Path(str(folders[0]), "d/word").read_text() == "other"
    assert TaskImports().working_folder(str(files)) is None


def test_missing_files_are_rejected_before_anything_is_shipped(files: Path) -> None:
    for setting in ({"files": "absent.py"}, {"archives": "absent.zip#data"}):
        with pytest.raises(ConfigurationError, match=r"python\.\w+: there is no file 'absent\.\w+'\. Specify"):
            shipped(Context(), **setting)


def test_a_changed_file_of_an_imported_module_is_detected_once(tmp_path: Path) -> None:
    file = tmp_path / "beside.py"
    file.write_text("")
    module = ModuleType("beside")
    module.__file__ = str(file)
    modules = {"beside": module, "sys": sys}
    before = program_edits(modules)
    assert program_edits(modules) == before
    os.utime(file, (1, 1))
    assert program_edits(modules) == program_edits(modules) == before + 1


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("cloudpickle==2.2.0", r"requires cloudpickle==2\.2\.0, and the job's tasks need cloudpickle==\d.*Remove"),
        ("numpy == 1.26.4  # old", r"requires numpy==1\.26\.4, and the job's tasks need numpy>=2"),
        ("apache-flink==2.3.0", r"requires apache-flink==2\.3\.0.*Remove it.*--pyflink"),
    ],
)
def test_requirements_that_pin_a_package_of_the_runtime_are_rejected_before_the_start(
    requirements: Path, line: str, expected: str
) -> None:
    name, _, version = line.partition("#")[0].replace(" ", "").partition("==")
    wheel(requirements.parent / "packages", name.replace("-", "_"), version)
    requirements.write_text(f"milltaste\n{line}\n")
    with pytest.raises(ConfigurationError, match=expected):
        install_requirements({"python.requirements": f"{requirements}#{requirements.parent / 'packages'}"})


def test_a_runtime_package_required_by_another_stays_at_the_runtimes_version(requirements: Path) -> None:
    packages = requirements.parent / "packages"
    wheel(packages, "cloudpickle", "2.2.0")
    wheel(packages, "cloudpickle", version("cloudpickle"))
    requirements.write_text("milltaste\ncloudpickle>=2\n")
    archive = install_requirements({"python.requirements": f"{requirements}#{packages}"})
    assert archive is not None
    installed = zipfile.ZipFile(archive).namelist()
    assert f"cloudpickle-{version('cloudpickle')}.dist-info/METADATA" in installed


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
def test_an_archive_outside_the_working_directory_is_rejected(item: str) -> None:
    with pytest.raises(ConfigurationError, match=r"Use a relative path|ends with|Rename"):
        archive_target(item)


def test_pyflinks_methods_set_the_settings(requirements: Path, tmp_path: Path) -> None:
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
