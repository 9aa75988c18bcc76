"""What an executor says of itself. This file is sent to executors as text and run there: it needs Python alone.

An executor may have no pyarrow, no millstream, another version of all; so nothing but the standard library is imported
before it is looked for, and the answer is a plain dictionary.
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

__all__ = ["answer"]


def answer(modules: tuple[str, ...], store_url: str | None) -> dict[str, Any]:
    """The fields of an `ExecutorReport`, with its clock in place of how far that is away."""
    ours = _imported("millstream")
    return {
        "place": _place(),
        "python": f"{sys.version_info[0]}.{sys.version_info[1]}",
        "interpreter": sys.executable,
        "platform": f"{sysconfig.get_platform()} {platform.libc_ver()[0]}".strip(),
        "pyspark": getattr(_imported("pyspark"), "__version__", ""),
        "pyarrow": getattr(_imported("pyarrow"), "__version__", ""),
        "millstream": str(getattr(ours, "__file__", "")),
        "missing": tuple(name for name in modules if not _is_there(name)),
        "clock_ms": int(time.time() * 1000),
        "store_refusal": "" if ours is None or store_url is None else _store_refusal(store_url),
        "disk_refusal": _disk_refusal(),
    }


def _place() -> str:
    """The executor as Spark names it where it says so, and its machine."""
    page = re.search(r"//([^:/]+).*executorId=(\w+)", os.environ.get("SPARK_LOG_URL_STDERR", ""))
    number = page.group(2) if page else os.environ.get("SPARK_EXECUTOR_ID", "")
    host = page.group(1) if page else socket.gethostname()
    return f"executor {number} on {host}" if number else f"an executor on {host}"


def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _is_there(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ImportError:
        return False


def _store_refusal(store_url: str) -> str:
    """Why the store cannot be used from here; "" when it can."""
    if store_url.startswith("file:") and not os.path.isdir(store_url.removeprefix("file://")):
        return "there is no such folder"
    try:
        importlib.import_module("millstream.storage.store").open_store(store_url).exists("job.json")
    except Exception as error:
        return _first_line(error)
    return ""


def _disk_refusal() -> str:
    """Why nothing can be written to the temporary folder; "" when it can."""
    try:
        with tempfile.TemporaryFile() as file:
            file.write(bytes(65536))
            file.flush()
    except OSError as error:
        return _first_line(error)
    return ""


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".strip().splitlines()[0]
