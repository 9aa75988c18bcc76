"""Dependencies of a program's tasks: Python files, archives, packages, cached files.

Spark distributes Python files, packages and archives to the tasks (`spark.python_dependencies`), by PyFlink's
configuration keys. Dependencies of Flink's JVM (jars, class paths) have no effect, which is logged: a PyFlink program
that reads Kafka adds a jar, but runs here without it. A different Python interpreter is rejected.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import NoReturn

from millstream.common.configuration import Configuration
from millstream.common.options.archives import archive_target
from millstream.datastream.streams.argument_checks import checked_text, refuse
from millstream.errors import NotAvailableError
from millstream.graph.notices import log_once
from millstream.graph.site import here

__all__ = ["EnvironmentDependencies", "check_interpreter", "log_jvm_settings"]


_OF_THE_JVM = {
    "pipeline.jars": "has no effect: there is no Flink JVM, and connectors and formats need no jar here. Set jars for "
    "Spark in the configuration key 'spark.jars'",
    "pipeline.classpaths": "has no effect: there is no Flink JVM. Class paths for Spark go into the configuration keys "
    "'spark.driver.extraClassPath' and 'spark.executor.extraClassPath'",
}


def log_jvm_settings(configuration: Configuration) -> None:
    """Logs once, for each setting of Flink's JVM, that it has no effect, and the alternative."""
    for key, sentence in _OF_THE_JVM.items():
        if configuration.get_string(key, ""):
            log_once(key, f"{key} {sentence}")


def check_interpreter(python_exec: str) -> None:
    """Rejects any interpreter except the one that runs the program, whatever its path."""
    interpreter = shutil.which(checked_text("set_python_executable", python_exec))
    if interpreter is None or not os.path.samefile(interpreter, sys.executable):
        raise NotAvailableError(
            f"set_python_executable({python_exec!r}): tasks run in the interpreter that runs the program, so that "
            "both have the same packages. Start the program with that interpreter"
        )


class EnvironmentDependencies:
    """The dependency calls of `StreamExecutionEnvironment`."""

    _configuration: Configuration

    def _append(self, key: str, value: str) -> None:
        earlier = self._configuration.get_string(key, "")
        self._configuration.set_string(key, f"{earlier},{value}" if earlier else value)

    def add_python_file(self, file_path: str) -> None:
        """Sends a .py file, a .zip or a folder to the tasks, which can import its content.

        A folder is packed immediately: later changes to it have no effect.
        """
        path = checked_text("add_python_file", file_path)
        if "://" not in path and not Path(path).exists():
            raise refuse(f"add_python_file: {path!r} does not exist. Use an existing file or folder")
        if Path(path).is_dir():
            path = shutil.make_archive(str(Path(tempfile.mkdtemp(prefix="millstream-"), Path(path).name)), "zip", path)
        self._append("python.files", path)

    def add_python_archive(self, archive_path: str, target_dir: str | None = None) -> None:
        """Sends an archive to the tasks. It is unpacked under `target_dir` (by default its own name) in their working
        directory: functions open `target_dir/file` by that relative path."""
        path = checked_text("add_python_archive", archive_path)
        if target_dir is not None:
            checked_text("add_python_archive", target_dir)
        if "://" not in path and not Path(path).exists():
            raise refuse(f"add_python_archive: {path!r} does not exist. Use an existing archive")
        item = path if target_dir is None else f"{path}#{target_dir}"
        archive_target(item, at=str(here()))
        self._append("python.archives", item)

    def set_python_requirements(self, requirements_file_path: str, requirements_cache_dir: str | None = None) -> None:
        """Sets the packages that functions import: a requirements file, installed by pip when the job starts. With a
        folder of packages (`pip download -d FOLDER -r FILE`), pip installs from it and uses no network."""
        file = checked_text("set_python_requirements", requirements_file_path)
        if not Path(file).is_file():
            raise refuse(f"set_python_requirements: {file!r} does not exist. Use an existing requirements file")
        if requirements_cache_dir is not None:
            checked_text("set_python_requirements", requirements_cache_dir)
            if not Path(requirements_cache_dir).is_dir():
                raise refuse(
                    f"set_python_requirements: folder {requirements_cache_dir!r} does not exist. Fill it with "
                    f"`pip download -d {requirements_cache_dir} -r {file}`"
                )
        if "#" in f"{file}{requirements_cache_dir or ''}":
            raise refuse(
                f"set_python_requirements: {file!r} or its folder has a '#' in its name, which separates the two in "
                "the setting python.requirements. Rename it"
            )
        packages = "" if requirements_cache_dir is None else f"#{Path(requirements_cache_dir).absolute()}"
        self._configuration.set_string("python.requirements", f"{Path(file).absolute()}{packages}")

    def set_python_executable(self, python_exec: str) -> None:
        """Sets the interpreter of the tasks: only the one that runs the program is permitted."""
        check_interpreter(python_exec)

    def add_jars(self, *jars_path: str) -> None:
        """Accepted for PyFlink programs, which need jars for connectors and formats. Here these are written in
        Python."""
        log_once("pipeline.jars", f"add_jars {_OF_THE_JVM['pipeline.jars']}")

    def add_classpaths(self, *classpaths: str) -> None:
        """Accepted for PyFlink programs, like `add_jars`."""
        log_once("pipeline.classpaths", f"add_classpaths {_OF_THE_JVM['pipeline.classpaths']}")

    def register_cached_file(self, file_path: str, name: str, executable: bool = False) -> NoReturn:
        raise NotAvailableError(
            f"register_cached_file({name!r}): Millstream has no distributed cache of its own. Send the file with the "
            "configuration key 'spark.files' and find it with pyspark.SparkFiles.get(), or read it in open()"
        )
