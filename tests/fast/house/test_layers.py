"""Checks beyond the import contracts in pyproject.toml: which modules are actually loaded.

import-linter reads the imports; here modules are imported in a separate process, and the loaded modules are
inspected. A PySpark loaded through a third-party package, or at import time of the façade, is detected.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[3] / "src"
PACKAGES_WITHOUT_SPARK = (
    "errors",
    "common",
    "metrics",
    "records",
    "storage",
    "state",
    "checkpoint",
    "connectors",
    "graph",
    "runtime",
    "datastream",
    "state_reader",
    "query",
)
# May import PySpark when imported themselves; no lower layer may import them at import time.
EDGES = {"millstream.connectors.spark_frame"}


def modules_of(package: str) -> list[str]:
    place = SOURCE / "millstream" / package
    files = sorted(place.rglob("*.py")) if place.is_dir() else [place.with_suffix(".py")]
    names = (path.relative_to(SOURCE).with_suffix("").as_posix().replace("/", ".") for path in files if path.is_file())
    return [name.removesuffix(".__init__") for name in names if name not in EDGES and not name.endswith("__main__")]


@pytest.mark.slow
def test_importing_the_lower_layers_does_not_load_pyspark() -> None:
    """All in one process, in the order above: the first that loads PySpark is named."""
    names = [name for package in PACKAGES_WITHOUT_SPARK for name in modules_of(package)]
    program = (
        "import importlib, sys\n"
        f"for name in {names!r}:\n"
        "    importlib.import_module(name)\n"
        "    if {'pyspark', 'py4j'} & {loaded.partition('.')[0] for loaded in sys.modules}:\n"
        "        sys.exit(f'{name} loads the JVM\\'s side when imported')\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env={"PYTHONPATH": str(SOURCE)}
    )
    assert run.returncode == 0, run.stderr


CLIENT_MODULES_MAX = 90
CLIENT_IMPORT_CPU_S_MAX = 5.0  # processor time of our own modules; it takes a hundredth of it
ENGINE = {"runtime", "compiler", "spark", "jobs", "datastream", "plan", "graph", "state_reader", "connectors"}


def test_the_query_client_imports_few_modules_fast_and_none_of_the_engine() -> None:
    program = (
        "import json, sys, time\n"
        "import httpx, numpy, pyarrow.compute, pyarrow.flight\n"
        "started = time.process_time()\n"
        "import millstream.query.client\n"
        "print(json.dumps([time.process_time() - started, sorted(sys.modules)]))\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env={"PYTHONPATH": str(SOURCE)}
    )
    assert run.returncode == 0, run.stderr
    import_cpu_s, loaded = json.loads(run.stdout)
    own_modules = [name for name in loaded if name.startswith("millstream.")]
    assert {name.partition(".")[0] for name in loaded}.isdisjoint({"pyspark", "py4j"})
    assert {name.split(".")[1] for name in own_modules}.isdisjoint(ENGINE)
    assert not [name for name in own_modules if name.startswith("millstream.query.server")]
    assert len(own_modules) <= CLIENT_MODULES_MAX, own_modules
    assert import_cpu_s <= CLIENT_IMPORT_CPU_S_MAX
