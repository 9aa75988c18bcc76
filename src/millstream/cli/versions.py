"""The versions of Millstream, PySpark and Python, read from their metadata without importing them."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version

__all__ = ["versions"]


def versions() -> str:
    """One line per version that matters in a bug report.

    >>> versions().splitlines()[0].split()[0]
    'millstream'
    """
    return "\n".join(
        (
            f"millstream {_version('millstream')}",
            f"pyspark    {_version('pyspark')}",
            f"pyarrow    {_version('pyarrow')}",
            f"python     {platform.python_version()}",
        )
    )


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "(not installed; run from its source folder?)" if package == "millstream" else "(not installed)"
