"""Every argument is accepted, rejected with our message, or rejected by Python because the call has the wrong shape: no
call fails inside our code with an unrelated error.
"""

from __future__ import annotations

import inspect
import logging
import os
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import millstream
from millstream.common import (
    Configuration,
    Duration,
    Encoder,
    RestartStrategies,
    Row,
    SimpleStringSchema,
    Time,
    Types,
    WatermarkStrategy,
)
from millstream.datastream import AsyncDataStream, MapFunction, OutputTag, StreamExecutionEnvironment
from millstream.datastream.connectors.datagen import DataGeneratorSource
from millstream.datastream.connectors.file_system import FileSink, FileSource, StreamFormat
from millstream.datastream.connectors.number_seq import NumberSequenceSource
from millstream.datastream.environment.settings import EnvironmentSettings
from millstream.datastream.state import ListStateDescriptor, MapStateDescriptor, StateTtlConfig, ValueStateDescriptor
from millstream.datastream.window import (
    CountTrigger,
    DeltaTrigger,
    EventTimeSessionWindows,
    SlidingEventTimeWindows,
    TimeEvictor,
    TumblingEventTimeWindows,
)
from millstream.errors import MillstreamError

OURS = os.path.dirname(millstream.__file__) + os.sep
SILLY: tuple[Any, ...] = (
    None, 5, -1, 0.5, "x", "", b"x", True, [], [1], {}, {"a": 1}, lambda value: value, lambda: 1, object(), Types.INT(),
    Types.INT, int, MapFunction, float("nan"), 2**70, ("a",),
)  # fmt: skip
RULES = MapStateDescriptor("rules", Types.STRING(), Types.INT())
TENS = TumblingEventTimeWindows.of(Time.seconds(10))
BY_TIME = WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(lambda value, _: value[1])


def first(value: Any) -> Any:
    return value[0]


class _Streams:
    """Streams of one environment."""

    def __init__(self) -> None:
        self.env = StreamExecutionEnvironment.get_execution_environment()
        self.stream = self.env.from_collection([("a", 1)]).assign_timestamps_and_watermarks(BY_TIME)
        self.keyed = self.stream.key_by(first)


OBJECTS: dict[str, Callable[[], Any]] = {
    "environment": lambda: _Streams().env,
    "stream": lambda: _Streams().stream,
    "keyed stream": lambda: _Streams().keyed,
    "windows": lambda: _Streams().keyed.window(TENS),
    "windows of all": lambda: _Streams().stream.window_all(TENS),
    "connected": lambda: (streams := _Streams()).stream.connect(streams.stream),
    "broadcast": lambda: (streams := _Streams()).stream.connect(streams.stream.broadcast(RULES)),
    "sink": lambda: _Streams().stream.print(),
    "join": lambda: (streams := _Streams()).stream.join(streams.stream),
    "joined windows": lambda: (s := _Streams()).stream.join(s.stream).where(first).equal_to(first).window(TENS),
    "interval join": lambda: (streams := _Streams()).keyed.interval_join(streams.keyed),
    "interval": lambda: (s := _Streams()).keyed.interval_join(s.keyed).between(Time.seconds(-1), Time.seconds(1)),
    "checkpoints": lambda: _Streams().env.get_checkpoint_config(),
    "execution": lambda: _Streams().env.get_config(),
    "file source": lambda: FileSource.for_record_stream_format(StreamFormat.text_line_format(), "."),
    "file sink": lambda: FileSink.for_row_format("out", Encoder.simple_string_encoder()),
    "configuration": Configuration,
    "watermarks": WatermarkStrategy.for_monotonous_timestamps,
    "descriptor": lambda: ValueStateDescriptor("a", Types.INT()),
}
CLASSES: tuple[type, ...] = (
    AsyncDataStream, CountTrigger, DeltaTrigger, Duration, Encoder, EventTimeSessionWindows, FileSink, FileSource,
    RestartStrategies, SlidingEventTimeWindows, StateTtlConfig, StreamFormat, Time, TimeEvictor,
    TumblingEventTimeWindows, Types, WatermarkStrategy,
)  # fmt: skip
MADE: tuple[type, ...] = (
    Configuration, DataGeneratorSource, ListStateDescriptor, MapStateDescriptor, NumberSequenceSource, OutputTag, Row,
    SimpleStringSchema, StreamExecutionEnvironment, ValueStateDescriptor,
)  # fmt: skip
# They would start a job, or read settings: errors of these are not about the shape of a call.
NOT_CALLED = (
    "execute",
    "execute_async",
    "execute_and_collect",
    "close",
    "use_spark_session",
    "parse_list_value",
    "add_all_to_dict",
)
READS = ("get", "contains_key", "remove_config")


def argument_lists(function: Callable[..., Any]) -> Iterator[tuple[Any, ...]]:
    """No argument, each silly one, and some pairs and triples."""
    kinds = [parameter.kind for parameter in inspect.signature(function).parameters.values()]
    places = sum(kind is inspect.Parameter.POSITIONAL_OR_KEYWORD for kind in kinds)
    count = 3 if inspect.Parameter.VAR_POSITIONAL in kinds else min(3, places)
    yield ()
    yield from ((value,) for value in SILLY if count)
    for length in range(2, count + 1):
        for start, value in enumerate(SILLY):
            yield value, *(SILLY[(start * 7 + 3 * step) % len(SILLY)] for step in range(length - 1))


def failures_inside(function: Callable[[], Callable[..., Any]]) -> list[str]:
    found: list[str] = []
    for arguments in argument_lists(function()):
        try:
            function()(*arguments)
        except MillstreamError:
            continue
        except Exception as error:
            inside = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename.startswith(OURS)]
            if inside and not isinstance(error, ValueError):  # values that PyFlink rejects alike, such as a Row's
                found.append(
                    f"{arguments!r}: {type(error).__name__}: {error} ({inside[-1].filename}:{inside[-1].lineno})"
                )
    return found


def methods(owner: Any) -> list[str]:
    names = [name for name in dir(owner) if not name.startswith("_") and name not in (*NOT_CALLED, *READS)]
    found = [name for name in names if not name.startswith("get_")]
    return [name for name in found if callable(getattr(owner, name)) and not inspect.isclass(getattr(owner, name))]


@pytest.fixture(autouse=True)
def quiet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    # One of the calls sets it for every environment of the process.
    monkeypatch.setattr(EnvironmentSettings, "_default_local_parallelism", None)
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("name", OBJECTS)
def test_methods(name: str) -> None:
    make = OBJECTS[name]
    for method in methods(make()):
        assert failures_inside(lambda method=method: getattr(make(), method)) == [], method  # type: ignore[misc]


@pytest.mark.parametrize("owner", CLASSES, ids=lambda owner: owner.__name__)
def test_makers(owner: type) -> None:
    for name in methods(owner):
        if isinstance(inspect.getattr_static(owner, name), staticmethod | classmethod):
            assert failures_inside(lambda name=name: getattr(owner, name)) == [], name  # type: ignore[misc]


@pytest.mark.parametrize("kind", MADE, ids=lambda kind: kind.__name__)
def test_constructors(kind: type) -> None:
    assert failures_inside(lambda: kind) == []
