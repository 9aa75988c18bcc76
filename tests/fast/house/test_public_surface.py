"""Our public names compared with PyFlink's: nothing is missing, and unimplemented names raise with advice.

The lists in tests/reference are PyFlink's surface. `scripts/api-coverage` compares and writes the page in docs;
`scripts/not-yet-table` writes the table of the names that are not implemented yet.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from inputs.project_scripts import script_module

from millstream.errors import NotAvailableError, NotYetError

ROOT = Path(__file__).resolve().parents[3]
DATASTREAM = ROOT / "tests" / "reference" / "pyflink-datastream-api.txt"
TABLE = ROOT / "tests" / "reference" / "pyflink-table-api.txt"

# Names of the reference that are omitted on purpose. Keep it empty if possible.
LEFT_OUT: frozenset[str] = frozenset()

# Names of Flink's Java API that PyFlink lacks, under Flink's names.
BEYOND_PYFLINK = {
    "CoGroupFunction",
    "DataStreamUtils",
    "FlatJoinFunction",
    "IterativeStream",
    "JoinFunction",
    "ProcessJoinFunction",
}


coverage = script_module("scripts/api-coverage")
not_yet_table = script_module("scripts/not-yet-table")


@pytest.fixture(scope="module")
def findings() -> list[Any]:
    """The comparison of each reference name with ours. Computed once, and only where these tests run."""
    return list(coverage.findings())


def _name(finding: Any) -> str:
    return f"{finding.expected.module}.{finding.expected.path}"


@pytest.mark.slow
def test_every_name_of_the_reference_exists_with_its_parameters(
    findings: list[Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        last = coverage.table(findings).splitlines()
        print(f"\n{last[0]}\n{last[-1]}")
    missing = [f"{_name(f)}: {f.problem}" for f in findings if f.kind == coverage.MISSING and _name(f) not in LEFT_OUT]
    assert not missing, "\n".join(missing)


@pytest.mark.slow
def test_omitted_names_are_really_absent(findings: list[Any]) -> None:
    present = [_name(f) for f in findings if _name(f) in LEFT_OUT and f.kind != coverage.MISSING]
    assert not present, f"these exist now; take them off the list: {present}"


@pytest.mark.slow
def test_the_coverage_page_agrees_with_the_code(findings: list[Any]) -> None:
    assert coverage.PAGE.read_text() == coverage.page(findings), "run scripts/api-coverage --write"


@pytest.mark.slow
def test_unimplemented_names_raise_when_called(findings: list[Any]) -> None:
    for finding in findings:  # there may be none
        if finding.kind != coverage.NOT_YET or finding.expected.parameters is None:
            continue
        function, owner = coverage.resolve(finding.expected)
        count = sum(not parameter.startswith("*") for parameter in finding.expected.parameters)
        arguments: list[Any] = [None] * count
        if isinstance(owner, type) and not finding.expected.is_static:
            arguments.insert(0, object.__new__(_concrete(owner)))
        with pytest.raises(NotYetError) as raised:
            function(*arguments)
        assert "comes with" in str(raised.value), _name(finding)


def _concrete(owner: type) -> type:
    """The class with its abstract methods implemented, to create an object and call a method on it."""
    abstract: frozenset[str] = getattr(owner, "__abstractmethods__", frozenset())
    return type(owner.__name__, (owner,), {name: lambda self: None for name in abstract}) if abstract else owner


def test_unavailable_names_advise_the_replacement() -> None:
    from millstream.datastream import StreamExecutionEnvironment

    env = StreamExecutionEnvironment.get_execution_environment()
    with pytest.raises(NotAvailableError, match="interpreter that runs the program"):
        env.set_python_executable("/usr/bin/env")


def test_a_program_that_adds_jars_is_warned_and_runs(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from millstream.datastream import StreamExecutionEnvironment
    from millstream.graph import notices

    monkeypatch.setattr(notices, "_LOGGED", set())
    env = StreamExecutionEnvironment.get_execution_environment()
    with caplog.at_level("INFO"):
        env.add_jars("file:///connector.jar")
        env.add_classpaths("file:///classes")
    assert "add_jars has no effect" in caplog.text and "add_classpaths has no effect" in caplog.text


@pytest.mark.parametrize(
    ("key", "instead"), [("pipeline.jars", "spark.jars"), ("pipeline.classpaths", "extraClassPath")]
)
def test_a_setting_for_flinks_jvm_advises_the_replacement(
    key: str, instead: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from millstream.common import Configuration
    from millstream.datastream.environment.dependencies import log_jvm_settings
    from millstream.graph import notices

    monkeypatch.setattr(notices, "_LOGGED", set())
    with caplog.at_level("INFO"):
        log_jvm_settings(Configuration.from_dict({key: "file:///connector.jar"}))
        log_jvm_settings(Configuration())
    assert f"{key} has no effect" in caplog.text and instead in caplog.text


@pytest.mark.slow
def test_importing_the_api_imports_neither_pyspark_nor_java() -> None:
    program = (
        "import sys, millstream.datastream, millstream.datastream.connectors.file_system\n"
        "import millstream.datastream.formats.csv\n"
        "from millstream.common import Types\n"
        "env = millstream.datastream.StreamExecutionEnvironment.get_execution_environment()\n"
        "env.from_collection([1], Types.LONG()).map(lambda n: n + 1).print()\n"
        "from millstream.table import StreamTableEnvironment\n"
        "StreamTableEnvironment.create(env).from_elements([(1, 'a')]).explain()\n"
        "sys.exit(', '.join(name for name in ('pyspark', 'py4j') if name in sys.modules) or None)"
    )
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert completed.returncode == 0, completed.stderr


def test_the_package_exports_pyflinks_names_and_those_only_flink_has() -> None:
    package = importlib.import_module("millstream.datastream")
    reference = next(module for module in coverage.reference.read(DATASTREAM) if module.name == package.__name__)
    assert set(package.__all__) == set(reference.exported) | BEYOND_PYFLINK


def test_the_table_of_unimplemented_names_is_up_to_date() -> None:
    assert not_yet_table.FILE.read_text(encoding="utf-8") == not_yet_table.table(), "run scripts/not-yet-table"


def test_a_stand_in_is_one_class_wherever_it_is_imported() -> None:
    from millstream.datastream.connectors import pulsar
    from millstream.datastream.connectors.base import Source

    assert pulsar.PulsarSource is pulsar.PulsarSource and issubclass(pulsar.PulsarSource, Source)
    assert pickle.loads(pickle.dumps(pulsar.TopicRoutingMode.CUSTOM)) is pulsar.TopicRoutingMode.CUSTOM
    with pytest.raises(NotAvailableError, match=r"^PulsarSource\.builder is not available: use Pulsar's Kafka"):
        pulsar.PulsarSource.builder()
    with pytest.raises(AttributeError, match="has no attribute 'PulsarWell'"):
        _ = pulsar.PulsarWell


def test_an_interface_of_an_unimplemented_module_can_be_subclassed() -> None:
    from millstream.datastream.connectors.kafka import KafkaTopicSelector

    class ByName(KafkaTopicSelector):  # type: ignore[misc, valid-type]
        def apply(self, data: Any) -> str:
            return str(data)

    assert ByName().apply(3) == "3"
    with pytest.raises(TypeError, match="abstract"):
        KafkaTopicSelector()


def test_the_table_package_exports_pyflinks_names() -> None:
    package = importlib.import_module("millstream.table")
    reference = next(module for module in coverage.reference.read(TABLE) if module.name == package.__name__)
    assert set(package.__all__) == set(reference.exported)


def test_names_missing_from_the_table_api_raise_an_ordinary_import_error() -> None:
    with pytest.raises(ImportError, match="cannot import name 'Chair'"):
        exec("from millstream.table import Chair", {})
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module("millstream.table.chair")
