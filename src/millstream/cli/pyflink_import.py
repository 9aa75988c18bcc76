"""Serves `import pyflink` from Millstream, for one process and the Python workers it starts.

`pyflink.x.y` becomes another name of the *same* module object as `millstream.x.y`: a class has one identity under both
names, so `isinstance` works and pickles of either can be read without this hook.

Only PyFlink's own public packages are mapped. Importing a PyFlink module that Millstream does not have raises an
ImportError about it: falling through to an installed PyFlink would mix two engines in one program.
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
"""The environment variable that makes `import millstream` install the hook: it propagates to workers."""

_PYFLINK = "pyflink"
_PACKAGE = "millstream"
_PACKAGES = ("common", "dataframe", "datastream", "metrics", "table")
_MODULES = ("find_flink_home", "java_gateway", "serializers", "util", "version")
"""Modules outside of the packages: programs import exceptions from them, and tests the bridge to the JVM."""
_PLANNED = {
    "ml": "Flink ML is another project",
}


def serve_pyflink() -> None:
    """Serve `pyflink` imports from now on, in this process. Idempotent."""
    if not any(isinstance(finder, PyFlinkFinder) for finder in sys.meta_path):
        # First in the list: otherwise an installed PyFlink, or our own folder under a second name, would be found
        # before it.
        sys.meta_path.insert(0, PyFlinkFinder())


class PyFlinkFinder(MetaPathFinder):
    """Finds `pyflink` and everything below it in Millstream, or reports a missing module."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        top, *below = fullname.split(".")
        if top != _PYFLINK:
            return None
        own_name = ".".join([_PACKAGE, *below])
        if not below or (below[0] in (*_PACKAGES, *_MODULES) and _exists(own_name)):
            return ModuleSpec(fullname, _Alias(own_name), is_package=True)
        raise ModuleNotFoundError(_missing(fullname, below), name=fullname)


class _Alias(Loader):
    """Registers one of our modules under a PyFlink name."""

    def __init__(self, own_name: str) -> None:
        self._own_name = own_name

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        # The import system returns the entry of sys.modules after this call, not the empty module that it created.
        # (Returning our module from create_module would give it a foreign __spec__.)
        sys.modules[module.__name__] = importlib.import_module(self._own_name)


def _exists(own_name: str) -> bool:
    try:
        return importlib.util.find_spec(own_name) is not None
    except ModuleNotFoundError:
        return False  # a parent on the path is a module, not a package


def _missing(fullname: str, below: list[str]) -> str:
    if below[0] in _PLANNED:
        reason = _PLANNED[below[0]]
    elif below[0] in _PACKAGES:
        reason = "PyFlink 2 has no such module, or it is part of its Java bridge"
    else:
        reason = "it is not part of the DataStream or Table API"
    served = ", ".join(f"{_PYFLINK}.{package}" for package in _PACKAGES)
    return f"Millstream does not serve {fullname}: {reason}. Served are {served} and their submodules"
