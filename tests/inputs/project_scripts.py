"""Scripts and benchmarks of the project as modules, for the tests of their functions."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

__all__ = ["script_module"]

_ROOT = Path(__file__).resolve().parents[2]


def script_module(path: str) -> ModuleType:
    """Executes the file at `path` (in the project; scripts have no suffix) as a new module. It may import its
    neighbours, as it does when it is run."""
    file = _ROOT / path
    loader = importlib.machinery.SourceFileLoader(
        path.removesuffix(".py").replace("/", "_").replace("-", "_"), str(file)
    )
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    # Dataclasses look up their module by name.
    module = sys.modules[loader.name] = importlib.util.module_from_spec(spec)
    # Without a suffix, bytecode would be written next to the script.
    written, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    sys.path.insert(0, str(file.parent))
    try:
        loader.exec_module(module)
    finally:
        sys.dont_write_bytecode = written
        sys.path.remove(str(file.parent))
    return module
