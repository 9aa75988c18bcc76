"""`pyflink` imports served by Millstream: identical objects, clear errors, in the process and its workers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def output_of(program: str, *, by_variable: bool = False, path: tuple[Path, ...] = ()) -> str:
    """The output of a program in a fresh process that serves pyflink."""
    start = (
        "import millstream\n"
        if by_variable
        else ("from millstream.cli.pyflink_import import serve_pyflink\nserve_pyflink()\n")
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (*path, ROOT / "src")))}
    environment.pop("MILLSTREAM_SERVE_PYFLINK", None)
    if by_variable:
        environment["MILLSTREAM_SERVE_PYFLINK"] = "1"
    completed = subprocess.run(
        [sys.executable, "-c", start + program],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert completed.returncode == 0, completed.stderr
    return completed.stdout.strip()


@pytest.mark.slow
def test_both_names_are_the_same_module_object() -> None:
    assert (
        output_of(
            "import pyflink.common.typeinfo, millstream.common.typeinfo\n"
            "from pyflink.common import Types\n"
            "import pyflink.datastream.functions as theirs\n"
            "import millstream.datastream.functions as ours\n"
            "print(pyflink.common.typeinfo is millstream.common.typeinfo, theirs is ours, Types.__module__,\n"
            "      pyflink is millstream, millstream.common.typeinfo.__spec__.name)\n"
        )
        == "True True millstream.common.typeinfo True millstream.common.typeinfo"
    )


def test_a_class_has_one_identity_under_both_names() -> None:
    assert (
        output_of(
            "from pyflink.common import Row as Theirs\nfrom millstream.common import Row as Ours\n"
            "import pickle\n"
            "print(isinstance(Theirs(1), Ours), pickle.loads(pickle.dumps(Theirs(1))) == Ours(1))\n"
            "print(b'pyflink' in pickle.dumps(Theirs))"
        )
        == "True True\nFalse"
    )


def test_a_missing_module_is_reported_with_existing_ones() -> None:
    program = "try:\n    import pyflink.{}\nexcept ImportError as error:\n    print(error.name, '|', error)\n"
    assert output_of(program.format("ml")) == (
        "pyflink.ml | Millstream does not serve pyflink.ml: Flink ML is another project. Served are pyflink.common, "
        "pyflink.dataframe, pyflink.datastream, pyflink.metrics, pyflink.table and their submodules"
    )
    assert output_of(program.format("fn_execution")).startswith("pyflink.fn_execution | Millstream does not serve")
    assert output_of(program.format("common.nothing")).startswith("pyflink.common.nothing | Millstream does not serve")


@pytest.mark.slow
def test_the_dataframe_api_is_served() -> None:
    program = "import pyflink.dataframe as pf\nprint(pf.range(3).filter(pf.col('id') > 0).select('id'))"
    assert output_of(program) == "DataFrame(id: BIGINT NOT NULL)"


@pytest.mark.slow
def test_the_table_api_is_served() -> None:
    program = (
        "from pyflink.table import EnvironmentSettings, TableEnvironment\n"
        "from pyflink.table.expressions import col\n"
        "t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())\n"
        "print(t_env.from_elements([(1, 'a')], ['id', 'name']).select(col('id') + 1).get_schema().get_field_names())"
    )
    assert output_of(program) == "['_c0']"


def test_internal_packages_are_not_served_under_pyflinks_name() -> None:
    program = "try:\n    import pyflink.runtime\nexcept ImportError as error:\n    print('refused')\n"
    assert output_of(program) == "refused"


def test_an_installed_pyflink_is_not_mixed_in(tmp_path: Path) -> None:
    for package in ("", "common", "gelly"):
        (tmp_path / "pyflink" / package).mkdir(exist_ok=True)
        (tmp_path / "pyflink" / package / "__init__.py").write_text("FOREIGN = True\n", encoding="utf-8")
    assert (
        output_of(
            "import pyflink.common\n"
            "try:\n    import pyflink.gelly\nexcept ImportError:\n    print(hasattr(pyflink.common, 'FOREIGN'))\n",
            path=(tmp_path,),
        )
        == "False"
    )


def test_workers_serve_pyflink_as_soon_as_they_import_millstream(tmp_path: Path) -> None:
    program = "from pyflink.common import Types\nTEXT = Types.STRING()\n"
    (tmp_path / "splitting.py").write_text(program, encoding="utf-8")
    printed = output_of("import splitting\nprint(type(splitting.TEXT).__module__)", by_variable=True, path=(tmp_path,))
    assert printed.startswith("millstream.common")


def test_pyflink_is_served_on_request_only() -> None:
    code = "import millstream, sys\nprint([f for f in sys.meta_path if 'PyFlink' in type(f).__name__])"
    completed = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert completed.stdout.strip() == "[]"
