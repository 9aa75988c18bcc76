"""The public names of `common` and `metrics` are pinned, and Java objects are rejected."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest

import millstream.common
import millstream.metrics
from millstream.errors import NotAvailableError

PACKAGE = [
    *["AssignerWithPeriodicWatermarksWrapper", "ByteArraySchema", "CompletableFuture", "ConfigOption", "ConfigOptions"],
    *["Configuration", "DeserializationSchema", "Duration", "Encoder", "ExecutionConfig", "InputDependencyConstraint"],
    *["Instant", "JobClient", "JobExecutionResult", "JobID", "JobStatus", "RestartStrategies"],
    *["RestartStrategyConfiguration", "Row", "RowKind", "SerializationSchema", "SimpleStringSchema", "Time"],
    *["TypeInformation", "TypeSerializer", "Types", "WatermarkStrategy"],
]
BEYOND_PYFLINK = ["TimestampAssigner", "WatermarkGenerator", "WatermarkOutput"]

# Their PyFlink counterparts wrap Java objects; these take the Python equivalent: a future, a job, a text.
TAKES_PYTHON = {"CompletableFuture", "JobClient", "JobID"}


def classes() -> Iterator[type]:
    for module in pkgutil.iter_modules(millstream.common.__path__):
        for _, member in inspect.getmembers(
            importlib.import_module(f"millstream.common.{module.name}"), inspect.isclass
        ):
            if member.__module__.startswith("millstream.common"):
                yield member
                yield from (inner for inner in vars(member).values() if inspect.isclass(inner))


WITH_JAVA_PARAMETER = sorted(
    {
        cls
        for cls in classes()
        if cls.__name__ not in TAKES_PYTHON and any(name.startswith("j_") for name in inspect.signature(cls).parameters)
    },
    key=lambda cls: cls.__qualname__,
)


def test_the_package_exports_exactly_pyflinks_names() -> None:
    assert sorted(millstream.common.__all__) == sorted(PACKAGE + BEYOND_PYFLINK)
    assert set(millstream.metrics.__all__) == {"Counter", "Distribution", "Gauge", "Meter", "Metric", "MetricGroup"}


def test_the_reference_has_java_parameters() -> None:
    assert len(WITH_JAVA_PARAMETER) > 12


@pytest.mark.parametrize("cls", WITH_JAVA_PARAMETER, ids=lambda cls: cls.__qualname__)
def test_a_java_object_is_rejected_with_its_replacement(cls: Any) -> None:
    arguments: dict[str, Any] = {
        name: object() if name.startswith("j_") else 1
        for name, parameter in inspect.signature(cls).parameters.items()
        if name.startswith("j_") or parameter.default is inspect.Parameter.empty
    }
    with pytest.raises(NotAvailableError, match=r"[Uu]se|subclass|write"):
        cls(**arguments)
