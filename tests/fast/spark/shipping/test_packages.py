"""Which installed packages are sent: Millstream as it is imported, and its requirements that Spark does not provide."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import millstream
from millstream.spark.shipping.archives import make_archive
from millstream.spark.shipping.packages import TASK_PACKAGES, our_package, package_files, task_packages


def test_the_millstream_package_is_sent_whole_without_compiled_files() -> None:
    with zipfile.ZipFile(our_package().path) as archive:
        names = set(archive.namelist())
    folder = Path(millstream.__file__).parent
    assert {f"millstream/{path.relative_to(folder)}" for path in folder.rglob("*.py")} <= names
    assert "millstream/datastream/not_yet/names.json" in names
    assert not any(name.endswith(".pyc") for name in names)


def test_the_unpacked_package_is_imported_by_a_python_without_millstream(tmp_path: Path) -> None:
    with zipfile.ZipFile(our_package().path) as archive:
        archive.extractall(tmp_path)
    program = "import sys; sys.path.insert(0, sys.argv[1]); import millstream.errors as found; print(found.__file__)"
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert ended.stdout.strip() == str(tmp_path / "millstream" / "errors.py")


def test_equal_content_has_one_name_and_other_content_another(tmp_path: Path) -> None:
    for name, text in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / name).write_text(text)
    first, second, third = (make_archive("test", {"module.py": tmp_path / name}) for name in "abc")
    assert first == second
    assert first.name != third.name
    assert make_archive("test", {"other.py": tmp_path / "a"}).name != first.name


def test_a_package_includes_its_native_code_and_requirements_except_those_of_spark() -> None:
    names = package_files(["obstore", "pandas"])
    assert any(name.startswith("obstore/") and ".so" in name for name in names)
    assert "typing_extensions.py" in names
    assert not any(name.startswith(("numpy/", "pandas/")) for name in names)


@pytest.mark.parametrize(
    ("modules", "is_object_store", "expected"),
    [
        ([], False, {"cloudpickle"}),
        ([], True, {"cloudpickle", "obstore"}),
        (["millstream.connectors.files.sink"], False, {"cloudpickle", "obstore"}),
        (["millstream.connectors.kafka.source"], False, {"cloudpickle", "confluent_kafka"}),
        (["millstream.connectors.messages.registered_avro"], False, {"cloudpickle", "fastavro"}),
        (["millstream.connectors.databases.sink"], False, {"cloudpickle", "psycopg", "psycopg_binary", "pymysql"}),
    ],
)
def test_a_plan_requires_the_packages_of_its_connectors(
    modules: list[str], is_object_store: bool, expected: set[str]
) -> None:
    assert set(task_packages(modules, is_object_store=is_object_store)) == expected
    assert expected <= set(TASK_PACKAGES)
