"""How records and event time come into a harness: by one input, by two, or by a stream and a broadcast one.

The names are those of Flink's test harnesses. Event time of an operator with two inputs is the lower of theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from millstream.common.typeinfo import TypeInformation
from millstream.datastream.streams.argument_checks import refuse
from millstream.records.batch import Batch
from millstream.records.watermarks import MIN_WATERMARK
from millstream.runtime.exchange.routing import Keying
from millstream.runtime.operators.operator import Operator
from millstream.testing.harness_functions import TWO_INPUTS, Kind

__all__ = ["HarnessInputs"]

_ORIGIN = (0, 0)


class HarnessInputs:
    """The ways in. Who derives from it runs epochs."""

    _operator: Operator
    _kind: Kind
    _input_types: tuple[TypeInformation | None, TypeInformation | None]

    def __init__(self) -> None:
        self._watermarks = {1: MIN_WATERMARK, 2: MIN_WATERMARK}

    def _epoch(self, work: Callable[[], None] | None = None, watermark: int = MIN_WATERMARK) -> None:
        raise NotImplementedError

    def _call(self, call: Callable[[], Any]) -> Any:
        raise NotImplementedError

    # --- one input --------------------------------------------------------------------------------------

    def push(self, value: Any, timestamp: int | None = None) -> None:
        """Hand the function one record; what it raises is raised here."""
        self._check_kind("push", has_two=False)
        self._push(1, [value], None if timestamp is None else [timestamp])

    def push_all(self, values: Iterable[Any]) -> None:
        """Hand the function records without timestamps, one after another; an `AsyncFunction` gets them all at once."""
        self._check_kind("push_all", has_two=False)
        if self._kind == "async":
            self._push(1, list(values), None)
        else:
            for value in values:
                self._push(1, [value], None)

    process_element = push

    def watermark(self, timestamp_ms: int) -> None:
        """Let event time come to `timestamp_ms` on all inputs: timers that are due by then fire. It never goes back."""
        self._advance(timestamp_ms, 1, 2)

    # --- two inputs -------------------------------------------------------------------------------------

    def process_element1(self, value: Any, timestamp: int | None = None) -> None:
        """Hand the function a record of the first stream."""
        self._check_kind("process_element1", has_two=True)
        self._push(1, [value], None if timestamp is None else [timestamp])

    def process_element2(self, value: Any, timestamp: int | None = None) -> None:
        """Hand the function a record of the second stream."""
        self._check_kind("process_element2", has_two=True)
        self._push(2, [value], None if timestamp is None else [timestamp])

    def process_watermark1(self, timestamp_ms: int) -> None:
        """Let the first stream's event time come to `timestamp_ms`; the function's is the lower of both."""
        self._check_kind("process_watermark1", has_two=True)
        self._advance(timestamp_ms, 1)

    def process_watermark2(self, timestamp_ms: int) -> None:
        """Let the second stream's event time come to `timestamp_ms`; the function's is the lower of both."""
        self._check_kind("process_watermark2", has_two=True)
        self._advance(timestamp_ms, 2)

    # --- a stream and a broadcast one -------------------------------------------------------------------

    def process_broadcast_element(self, value: Any, timestamp: int | None = None) -> None:
        """Hand a broadcast function a record of the broadcast stream."""
        self._check_broadcast("process_broadcast_element")
        self._push(2, [value], None if timestamp is None else [timestamp])

    def process_watermark(self, timestamp_ms: int) -> None:
        """Let event time of the stream come to `timestamp_ms`; beside a broadcast stream the lower of both counts."""
        self._check_kind("process_watermark", has_two=False)
        self._advance(timestamp_ms, *((1,) if self._kind == "broadcast" else (1, 2)))

    def process_broadcast_watermark(self, timestamp_ms: int) -> None:
        """Let the broadcast stream's event time come to `timestamp_ms`; the function's is the lower of both."""
        self._check_broadcast("process_broadcast_watermark")
        self._advance(timestamp_ms, 2)

    # --- how --------------------------------------------------------------------------------------------

    def _push(self, number: int, values: list[Any], stamps: list[int] | None) -> None:
        timestamps = None if stamps is None else np.array(stamps, dtype=np.int64)
        batch = Batch.of_values(values, self._input_types[number - 1], timestamps)
        self._check_subtask(batch, number)
        self._epoch(lambda: self._operator.input(number, _ORIGIN)(batch))

    def _advance(self, timestamp_ms: int, *inputs: int) -> None:
        for number in inputs:
            self._watermarks[number] = max(timestamp_ms, self._watermarks[number])
        self._epoch(watermark=min(self._watermarks.values()))

    def _check_kind(self, method: str, *, has_two: bool) -> None:
        if (self._kind in TWO_INPUTS and self._kind != "broadcast") == has_two:
            return
        if has_two:
            raise refuse(f"OperatorHarness.{method}: the function has no two streams. Use push() and watermark()")
        raise refuse(
            f"OperatorHarness.{method}: the function has two inputs. Use process_element1() or process_element2(), "
            "process_watermark1() or process_watermark2()"
        )

    def _check_broadcast(self, method: str) -> None:
        if self._kind != "broadcast":
            raise refuse(f"OperatorHarness.{method}: the function is no broadcast function and has no such input")

    def _check_subtask(self, batch: Batch, number: int) -> None:
        """Refuse what the exchange before the operator would: a key that is none, and a record of another subtask."""
        context = self._operator.setting.context
        edges = [edge for edge in self._operator.node.inputs if edge.input == number and edge.key_selector is not None]
        for edge in edges:
            keying = Keying(edge.key_selector, edge.key_type, self._operator.call)
            keys = self._call(lambda keying=keying: keying.column(batch))  # type: ignore[misc]
            owners = keys.partitions(context.parallelism, context.max_parallelism).tolist()
            for value, owner in zip(batch.values(), owners, strict=True):
                if owner != context.subtask:
                    raise refuse(
                        f"OperatorHarness: {value!r} has a key of subtask {owner}; this harness is subtask "
                        f"{context.subtask} of {context.parallelism}. Push it to a harness with subtask={owner}"
                    )
