"""The driver's JVM is started so that no other user of the machine can read the program's files or its secrets."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

import pytest

from millstream.spark import jvm_start, private_folders
from millstream.spark.jvm_start import private_jvm_start

SECRET = {"spark.hadoop.fs.s3a.secret.key": "a b=c\\d\n é"}
JAVA_OPTIONS = "spark.driver.extraJavaOptions"


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(jvm_start, "_temporary_folder", lambda: tmp_path)
    monkeypatch.setattr(jvm_start.SparkContext, "_gateway", None)
    for name in ("PYSPARK_GATEWAY_PORT", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_secrets_are_in_a_private_file_while_the_jvm_starts(temporary: Path) -> None:
    with private_jvm_start({"spark.ui.enabled": "false", **SECRET}) as public:
        assert set(public) == {"spark.ui.enabled", JAVA_OPTIONS}
        option, file, *rest = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])
        assert (option, rest) == ("--properties-file", ["--load-spark-defaults", "pyspark-shell"])
        assert stat.S_IMODE(os.stat(file).st_mode) == 0o600
        assert Path(file).read_text(encoding="utf-8") == "spark.hadoop.fs.s3a.secret.key=a\\ b\\=c\\\\d\\n\\ é\n"
    assert not Path(file).exists() and "PYSPARK_SUBMIT_ARGS" not in os.environ


def test_a_password_in_a_url_is_not_a_public_setting() -> None:
    address = {"spark.sql.catalog.c.url": "jdbc:postgresql://ann:hush@db/s"}
    with private_jvm_start(address) as public:
        file = shlex.split(os.environ["PYSPARK_SUBMIT_ARGS"])[1]
        assert "hush" not in str(public) and "hush" in Path(file).read_text(encoding="utf-8")


def test_the_jvm_has_a_temporary_folder_private_to_its_user(temporary: Path) -> None:
    with private_jvm_start({JAVA_OPTIONS: "-Xss1m"}) as public:
        first, second = shlex.split(public[JAVA_OPTIONS])
    folder = Path(second.removeprefix("-Djava.io.tmpdir="))
    assert first == "-Xss1m" and folder.parent == temporary
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_machines_with_a_shared_temporary_folder_do_not_remove_each_others_files(
    temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not every shared file system shows the locks of other machines."""
    monkeypatch.setattr(private_folders.fcntl, "flock", lambda file, how: None)
    for host in ("ip-10-0-1-23", "ip-10-0-9-9", "ip-10-0-1-23"):
        monkeypatch.setattr(jvm_start.socket, "gethostname", lambda host=host: host)
        with private_jvm_start({}):
            pass
    assert len(list(temporary.iterdir())) == 2


def test_a_temporary_folder_chosen_by_the_user_is_used(temporary: Path) -> None:
    chosen = {JAVA_OPTIONS: "-Djava.io.tmpdir=/scratch"}
    with private_jvm_start(chosen) as public:
        assert public == chosen


def test_the_users_own_properties_file_is_read_and_the_secrets_reach_the_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--properties-file mine.conf pyspark-shell")
    with private_jvm_start(SECRET) as public:
        assert SECRET.items() <= public.items()
        assert os.environ["PYSPARK_SUBMIT_ARGS"] == "--properties-file mine.conf pyspark-shell"


def test_a_running_jvm_gets_the_settings(monkeypatch: pytest.MonkeyPatch, temporary: Path) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    with private_jvm_start(SECRET) as public:
        assert public == SECRET
    assert list(temporary.iterdir()) == []
