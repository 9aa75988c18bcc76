"""The installed packages that are sent to executors: our own, and our requirements that executors may lack.

**Our package** is sent as it is imported here: from a wheel, an editable install or a source tree.

Executors have Python and the requirements of Spark (PySpark, pyarrow, pandas, numpy). Of our other requirements, tasks
use cloudpickle, obstore for object stores, and the packages of connectors. If executors lack one of these and have the
driver's platform, it is sent from the driver's environment, with its own requirements. Imports of user functions are
not handled here: they may be anything, of any size (`millstream pack`).
"""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from millstream.graph.site import PACKAGE_FOLDER
from millstream.spark.shipping.archives import ShippedArchive, make_archive

__all__ = ["SPARKS_PACKAGES", "TASK_PACKAGES", "our_package", "package_files", "task_packages"]

SPARKS_PACKAGES = ("pyspark", "py4j", "pyarrow", "pandas", "numpy")
"""Packages that every executor for Python with Arrow has."""

TASK_PACKAGES: dict[str, str] = {
    "cloudpickle": "cloudpickle",
    "obstore": "obstore",
    "confluent_kafka": "confluent-kafka",
    "fastavro": "fastavro",
    "google.protobuf": "protobuf",
    "deltalake": "deltalake",
    "boto3": "boto3",
    "pymysql": "pymysql",
    "psycopg": "psycopg",
    "psycopg_binary": "psycopg-binary",
    "pika": "pika",
    "redis": "redis",
}
"""Other packages that our tasks import, by module."""

_NEEDED_BY = {
    "millstream.connectors.kafka": ("confluent_kafka",),
    "millstream.connectors.messages.avro": ("fastavro",),
    "millstream.connectors.messages.registered_avro": ("fastavro",),
    "millstream.connectors.messages.protobuf": ("google.protobuf",),
    "millstream.connectors.files": ("obstore",),
    "millstream.connectors.files.avro": ("fastavro",),
    "millstream.connectors.delta": ("deltalake",),
    "millstream.connectors.kinesis": ("boto3",),
    "millstream.connectors.rabbitmq": ("pika",),
    "millstream.connectors.redis": ("redis",),
    "millstream.connectors.databases": ("psycopg", "psycopg_binary", "pymysql"),
}


@cache
def our_package() -> ShippedArchive:
    """The archive of Millstream itself, as it is imported here."""
    folder = Path(PACKAGE_FOLDER)
    files = {
        f"millstream/{path.relative_to(folder).as_posix()}": path
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    return make_archive("millstream", files)


def task_packages(modules: Iterable[str], *, is_object_store: bool) -> list[str]:
    """The modules of `TASK_PACKAGES` that tasks may import, for a plan that uses `modules` of ours. Modules not
    installed here are omitted: the program evidently does not need them.

    >>> task_packages(["millstream.connectors.kafka.source", "millstream.plan.stages"], is_object_store=True)
    ['cloudpickle', 'confluent_kafka', 'obstore']
    """
    needed = {"cloudpickle"} | ({"obstore"} if is_object_store else set())
    for module in modules:
        for prefix, packages in _NEEDED_BY.items():
            if module.startswith(prefix):
                needed.update(packages)
    return sorted(name for name in needed if _is_installed(name))


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ImportError:
        return False


def package_files(packages: Iterable[str]) -> dict[str, Path]:
    """The files of these packages as installed here, and of those requirements that Spark lacks."""
    files: dict[str, Path] = {}
    for package in _closure(packages):
        for file in package.files or ():
            path = Path(str(package.locate_file(file)))
            if ".." not in file.parts and file.suffix != ".pyc" and path.is_file():
                files[file.as_posix()] = path
    return files


def _closure(packages: Iterable[str]) -> Iterator[Distribution]:
    waiting, known = list(packages), set(SPARKS_PACKAGES)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in known:
            continue
        known.add(name)
        try:
            package: Any = distribution(name)
        except PackageNotFoundError:
            continue
        yield package
        for requirement in package.requires or ():
            words, _, marker = requirement.partition(";")
            if "extra" not in marker:
                waiting.append(re.split(r"[\s\[(<>=!~]", words.strip(), maxsplit=1)[0])
