"""Shared code of window tests: scripted records with their times, and running a windowed program on them.

A record is (key, number, time in ms). A script sets the watermark at the end of an epoch with `Watermark`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from millstream.common import Duration, WatermarkStrategy
from millstream.datastream import StreamExecutionEnvironment
from millstream.datastream.functions import ProcessWindowFunction
from millstream.testing import Collect, ManualClock, Result, Script, run

Record = tuple[str, int, int]


def ms(length: int) -> Duration:
    return Duration.of_millis(length)


def timed() -> WatermarkStrategy:
    return WatermarkStrategy.no_watermarks().with_timestamp_assigner(lambda record, _: record[2])


def key_of(record: Record) -> str:
    return record[0]


def added(a: Record, b: Record) -> Record:
    """The sum of two records' numbers, with the key and time of the first."""
    return a[0], a[1] + b[1], a[2]


class Numbers(ProcessWindowFunction):  # type: ignore[type-arg]
    """Emits a window's key, bounds and the numbers in it."""

    def process(self, key: str, context: Any, elements: Iterable[Record]) -> Iterable[Any]:
        window = context.window()
        yield key, window.start, window.end, [element[1] for element in elements]


def told(
    items: list[Any],
    build: Callable[[Any], Any],
    *,
    keyed: bool = True,
    clock: ManualClock | None = None,
    env: StreamExecutionEnvironment | None = None,
    **options: Any,
) -> Result:
    """Run `build` on the stream of these items; its result is written to the sink `out`."""
    env = env or StreamExecutionEnvironment()
    stream = env.from_source(Script(items, clock=clock), timed(), "records")
    result = build(stream.key_by(key_of) if keyed else stream)
    result.sink_to(Collect("out"))
    return run(env, parallelism=options.pop("parallelism", 1), clock=clock, **options)


def results(items: list[Any], build: Callable[[Any], Any], **options: Any) -> list[Any]:
    """The values that reach the sink."""
    return told(items, build, **options)["out"]
