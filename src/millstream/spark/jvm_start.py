"""Starts the driver's JVM so that no other user of the machine can read the program or its secrets.

Spark copies the files it sends to executors into the JVM's temporary folder, readable for everybody, and leaves them
there. Its settings are on its command line, which everybody can list. The JVM therefore gets a private temporary
folder, and reads sensitive settings from a file that is removed after the start.

An already running JVM (spark-submit, an earlier session) keeps its folder and its command line.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pyspark import SparkContext

from millstream.redaction import secrets_of
from millstream.spark.private_folders import fresh_folder

__all__ = ["private_jvm_start"]

_PREFIX = "millstream-driver-"
_JAVA_OPTIONS = "spark.driver.extraJavaOptions"
_TEMPORARY = "-Djava.io.tmpdir="
_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_PROPERTIES = "--properties-file"
_HOST_MAX, _PARENT_MAX = 8, 24


@contextmanager
def private_jvm_start(settings: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Yields the settings that may be on the JVM's command line while it starts. The others are passed by a file."""
    arguments = os.environ.get(_ARGUMENTS, "pyspark-shell")
    is_running = SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ
    folder = None if is_running else fresh_folder(_PREFIX, _temporary_folder(), _host())
    if folder is None:
        yield dict(settings)
        return
    public = dict(settings)
    if _TEMPORARY not in public.get(_JAVA_OPTIONS, ""):
        public[_JAVA_OPTIONS] = f"{public.get(_JAVA_OPTIONS, '')} {shlex.quote(f'{_TEMPORARY}{folder.path}')}".lstrip()
    # The launcher puts Java options on the command line, regardless of their origin.
    secrets = {key: public.pop(key) for key in settings if key != _JAVA_OPTIONS and secrets_of(key, settings[key])}
    if not secrets or _PROPERTIES in arguments:
        yield {**public, **secrets}
        return
    file, previous = folder.path / "secrets.properties", os.environ.get(_ARGUMENTS)
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as properties:
        properties.writelines(f"{_escape(key)}={_escape(value)}\n" for key, value in secrets.items())
    os.environ[_ARGUMENTS] = f"{_PROPERTIES} {shlex.quote(str(file))} --load-spark-defaults {arguments}"
    try:
        yield public
    finally:
        file.unlink()
        os.environ.pop(_ARGUMENTS)
        if previous is not None:
            os.environ[_ARGUMENTS] = previous


def _host() -> str:
    """A short id of this machine: prefixes of host names are often equal."""
    return hashlib.sha256(socket.gethostname().encode()).hexdigest()[:_HOST_MAX]


def _temporary_folder() -> Path:
    """The folder for temporary files. It also contains Spark's sockets, whose path length the system limits: if it is
    too long, Java's default folder."""
    folder = Path(tempfile.gettempdir())
    return folder if len(str(folder)) <= _PARENT_MAX else Path(os.sep, "tmp")


def _escape(text: str) -> str:
    """Escapes a key or value for a Java properties file.

    >>> _escape("a b=c\\\\d")
    'a\\\\ b\\\\=c\\\\\\\\d'
    """
    special = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}
    return "".join(special.get(sign) or (f"\\{sign}" if sign in " \\=:#!" else sign) for sign in text)
