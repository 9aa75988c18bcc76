"""The report of an executor about itself. The text of this file is sent to executors and run there.

An executor may lack pyarrow or millstream, or have other versions; so the module imports only the standard library
before it tests for others, and returns a plain dictionary.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import platform
import re
import socket
import sys
import sysconfig
import tempfile
import time
from typing import Any

__all__ = ["probe"]


def probe(modules: tuple[str, ...], store_url: str | None) -> dict[str, Any]:
    """The fields of an `ExecutorReport`, with the executor's clock instead of its offset."""
    millstream = _import_if_present("millstream")
    return {
        "place": _place(),
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "interpreter": sys.executable,
        "platform": f"{sysconfig.get_platform()} {platform.libc_ver()[0]}".strip(),
        "pyspark": getattr(_import_if_present("pyspark"), "__version__", ""),
        "pyarrow": getattr(_import_if_present("pyarrow"), "__version__", ""),
        "millstream": str(getattr(millstream, "__file__", "")),
        "missing": tuple(name for name in modules if not _is_installed(name)),
        "clock_ms": int(time.time() * 1000),
        "store_refusal": "" if millstream is None or store_url is None else _store_refusal(store_url),
        "disk_refusal": _disk_refusal(),
    }


def _place() -> str:
    """The executor's Spark id, if known, and its host."""
    page = re.search(r"//([^:/]+).*executorId=(\w+)", os.environ.get("SPARK_LOG_URL_STDERR", ""))
    number = page.group(2) if page else os.environ.get("SPARK_EXECUTOR_ID", "")
    host = page.group(1) if page else socket.gethostname()
    return f"executor {number} on {host}" if number else f"an executor on {host}"


def _import_if_present(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def _store_refusal(store_url: str) -> str:
    """Why the store cannot be used from here; empty if it can."""
    if store_url.startswith("file:") and not os.path.isdir(store_url.removeprefix("file://")):
        return "there is no such folder"
    try:
        importlib.import_module("millstream.storage.store").open_store(store_url).exists("job.json")
    except Exception as error:
        return _first_line(error)
    return ""


def _disk_refusal() -> str:
    """Why the temporary folder is not writable; empty if it is."""
    try:
        with tempfile.TemporaryFile() as file:
            file.write(bytes(65536))
            file.flush()
    except OSError as error:
        return _first_line(error)
    return ""


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]
