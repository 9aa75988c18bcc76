"""Every name in a PyFlink module can be imported from ours: the same object as at its origin, or a stand-in that
raises with advice. The list is generated from the installed PyFlink by `scripts/pyflink-names`.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from millstream.errors import NotAvailableError, ProgramError
from millstream.pyflink_names import Placeholder
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.table.catalog import CatalogDatabase, ObjectPath
from millstream.util import exceptions
from millstream.util.api_stability_decorators import Deprecated, PublicEvolving

ROOT = Path(__file__).resolve().parents[3]
LIST = ROOT / "tests" / "reference" / "pyflink-names.txt"
TABLE = ROOT / "src" / "millstream" / "pyflink_names" / "names.json"


def names() -> Iterator[tuple[str, str, str]]:
    """(module, name, origin) of each line."""
    module = ""
    for line in LIST.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            module = line.removeprefix("## ")
        else:
            name, _, origin = line.partition(" ")
            yield module, name, origin


def own_module(module: str) -> str:
    return module.replace("pyflink", "millstream", 1)


def test_every_name_can_be_imported_from_the_same_module_as_in_pyflink() -> None:
    missing = []
    for module, name, origin in names():
        try:
            value = getattr(importlib.import_module(own_module(module)), name)
        except (ImportError, AttributeError) as error:
            missing.append(f"{module}.{name}: {error}")
            continue
        owner, _, own_name = origin.partition(":")
        if origin == "=" or owner == module or isinstance(value, Placeholder):
            continue
        expected = importlib.import_module(own_module(owner))
        if value is not (getattr(expected, own_name) if own_name else expected):
            missing.append(f"{module}.{name} is another object than {origin}")
    assert not missing, "\n".join(missing)


def test_only_jvm_related_names_are_stand_ins() -> None:
    origins = {
        origin.partition(":")[0]
        for module, name, origin in names()
        if isinstance(getattr(importlib.import_module(own_module(module)), name), Placeholder)
    }
    assert origins == {
        "pyflink",  # decorators of its documentation
        "pyflink.java_gateway",
        "pyflink.pyflink_gateway_server",
        "pyflink.serializers",
        "pyflink.util.exceptions",  # the translation of Java exceptions
        "pyflink.util.java_utils",
    }


def test_using_a_stand_in_raises_with_advice() -> None:
    gateway = importlib.import_module("millstream.common.types").get_gateway
    for use in (lambda: gateway(), lambda: gateway.jvm, lambda: types.new_class("Mine", (gateway,))):
        with pytest.raises(NotAvailableError, match=r"pyflink\.java_gateway\.get_gateway .*JVM.*Use the"):
            use()
    assert not hasattr(gateway, "__wrapped__") and "not available" in repr(gateway)
    with pytest.raises(ImportError, match="NoSuchName"):
        exec("from millstream.datastream.connectors.kafka import NoSuchName", {})


def test_the_table_is_generated_from_the_list(tmp_path: Path) -> None:
    script = (ROOT / "scripts" / "pyflink-names").read_text(encoding="utf-8")
    module: dict[str, object] = {"__file__": str(ROOT / "scripts" / "pyflink-names"), "__name__": "names"}
    exec(script, module)
    table = module["table"](LIST.read_text(encoding="utf-8"))  # type: ignore[operator]
    assert json.loads(TABLE.read_text(encoding="utf-8")) == table, "run scripts/pyflink-names"


@pytest.mark.slow
def test_pyflink_programs_import_them_under_its_name() -> None:
    program = """
import millstream.cli.pyflink_import as served
served.serve_pyflink()
from pyflink.datastream.connectors.kafka import DeliveryGuarantee
from pyflink.datastream.connectors import FileSource, KafkaSource
from pyflink.datastream.connectors.base import DeliveryGuarantee as base
from pyflink.datastream.window import Time
from pyflink.util.exceptions import TableException
from pyflink.java_gateway import get_gateway
from pyflink.version import __version__
print(DeliveryGuarantee is base, Time.seconds(1), TableException.__name__, __version__)
"""
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert re.fullmatch(r"True .+ ProgramError 2\.\d+\.\d+\n", completed.stdout), completed.stderr


def test_catalog_errors_are_of_pyflinks_class() -> None:
    catalog = TableEnvironment.create(EnvironmentSettings.in_batch_mode()).get_catalog("default_catalog")
    assert catalog is not None
    made = CatalogDatabase.create_instance({}, "")
    for error, use in (
        (exceptions.DatabaseNotExistException, lambda: catalog.get_database("absent")),
        (
            exceptions.DatabaseAlreadyExistException,
            lambda: catalog.create_database("default_database", made, False),
        ),
        (exceptions.TableNotExistException, lambda: catalog.get_table(ObjectPath("default_database", "absent"))),
        (exceptions.FunctionNotExistException, lambda: catalog.get_function(ObjectPath("default_database", "absent"))),
    ):
        with pytest.raises(error, match=r"test_pyflink_names\.py:\d+") as raised:
            use()
        assert isinstance(raised.value, ProgramError) and isinstance(raised.value, exceptions.TableException)


def test_stability_decorators_change_nothing_but_the_documentation() -> None:
    @PublicEvolving()
    @Deprecated(since="2.0", detail="Use another.")
    class Marked:
        """What it is."""

    assert Marked.__name__ == "Marked" and Marked.__doc__ is not None
    assert Marked.__doc__.startswith("What it is.") and "Deprecated since 2.0: Use another." in Marked.__doc__
