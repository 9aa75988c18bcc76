"""`import pyflink` served by Millstream, for one process and the Python workers it starts.

`pyflink.x.y` becomes another name of the *same* module object as `millstream.x.y`: a class has one identity under
both names, so `isinstance` works and pickles of either are understood without this hook.

Only PyFlink's own public packages are mapped. A PyFlink module that Millstream does not have is an ImportError that
says so: falling through to an installed PyFlink would mix two engines in one program.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

__all__ = ["SERVE_VARIABLE", "PyFlinkFinder", "serve_pyflink"]

SERVE_VARIABLE = "MILLSTREAM_SERVE_PYFLINK"
"""The environment variable that makes `import millstream` install the hook: it is how workers learn of it."""

_PYFLINK = "pyflink"
_OURS = "millstream"
_PACKAGES = ("common", "dataframe", "datastream", "metrics", "table")
_MODULES = ("find_flink_home", "java_gateway", "serializers", "util", "version")
"""What lies beside the packages: programs take exceptions from it, and tests the bridge to the JVM."""
_PLANNED = {
    "ml": "Flink ML is another project",
}


def serve_pyflink() -> None:
    """Serve `pyflink` imports from now on, in this process. Doing it again changes nothing."""
    if not any(isinstance(finder, PyFlinkFinder) for finder in sys.meta_path):
        # First: an installed PyFlink must not be found before us, nor our own folder under a second name.
        sys.meta_path.insert(0, PyFlinkFinder())


class PyFlinkFinder(MetaPathFinder):
    """Finds `pyflink` and everything below it in Millstream, or says what is missing."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, *below = fullname.split(".")
        if top != _PYFLINK:
            return None
        ours = ".".join([_OURS, *below])
        if not below or (below[0] in (*_PACKAGES, *_MODULES) and _exists(ours)):
            return ModuleSpec(fullname, _Alias(ours), is_package=True)
        raise ModuleNotFoundError(_missing(fullname, below), name=fullname)


class _Alias(Loader):
    """Puts one of our modules under a PyFlink name."""

    def __init__(self, ours: str) -> None:
        self._ours = ours

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        # The import system hands out what stands in sys.modules after this call, not the empty module it made.
        # (Returning ours from create_module would give it a foreign __spec__.)
        sys.modules[module.__name__] = importlib.import_module(self._ours)


def _exists(ours: str) -> bool:
    try:
        return importlib.util.find_spec(ours) is not None
    except ModuleNotFoundError:
        return False  # a parent on the way is a module, not a package


def _missing(fullname: str, below: list[str]) -> str:
    if below[0] in _PLANNED:
        reason = _PLANNED[below[0]]
    elif below[0] in _PACKAGES:
        reason = "PyFlink 2 has no such module, or it is part of its Java bridge"
    else:
        reason = "it is not part of the DataStream or Table API"
    served = ", ".join(f"{_PYFLINK}.{package}" for package in _PACKAGES)
    return f"Millstream does not serve {fullname}: {reason}. Served are {served} and what lies below them"
