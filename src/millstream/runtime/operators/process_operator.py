"""The operator of process functions: several results of a record, each for the main output or for a side output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import compress
from typing import Any

import numpy as np

from millstream.errors import ProgramError, TypeMismatchError
from millstream.graph.nodes import Process
from millstream.graph.notices import warn_once
from millstream.graph.tags import SideTag
from millstream.records.batch import Batch, Timestamps, is_typed
from millstream.runtime.operators.context import ElementContext
from millstream.runtime.operators.function_operators import SeveralResultsOperator, inherited_timestamps

__all__ = ["ProcessOperator"]


class ProcessOperator(SeveralResultsOperator):
    """A `ProcessFunction`: yields values, and `(tag, value)` pairs for side outputs."""

    method = "process_element"
    _has_tags = False  # whether the function has given out a tagged value

    def apply(self, batch: Batch) -> Batch | None:
        values = batch.values()
        remaining = iter(values)
        try:
            out, stamps = self._results_of(remaining, batch.timestamps)
        except Exception as error:
            raise self.call.failed(error, "process", self.call.current(values, remaining)) from error
        main: Batch | None = None
        parts = self._parts(out, stamps)
        self._pieces.learn(len(batch), sum(part.nbytes for _, part in parts))
        for tag, part in parts:
            if tag is None:
                main = part
            else:
                for output in self.side_outputs[tag]:
                    output(part)
        return main

    def _results_of(self, values: Iterator[Any], timestamps: Timestamps | None) -> tuple[list[Any], Timestamps | None]:
        """What the function gives for each of the values, one after another, with the timestamps of those."""
        function, context = self._function, self.element_context()
        if timestamps is None:
            # A comprehension, because `extend` asks every generator first how long it is: a quarter of the time.
            return [
                item for value in values if (results := function(value, context)) is not None for item in results
            ], None
        out: list[Any] = []
        ends: list[int] = []
        for value, context._timestamp in zip(values, timestamps.tolist(), strict=True):
            results = function(value, context)
            if results is not None:
                out.extend(results)
            ends.append(len(out))
        return out, inherited_timestamps(timestamps, ends)

    def element_context(self) -> Any:
        """The `ctx` of the function's calls for records."""
        return ElementContext(self.time)

    def _parts(self, out: list[Any], stamps: Timestamps | None) -> list[tuple[str | None, Batch]]:
        """Results by output: tagged values to their side outputs, the rest (None) to the main one."""
        if not self._has_tags and is_typed(self.node.output_type):
            # No type has a place for a tag: where all values fit it, none of them needs to be looked at.
            with suppress(TypeMismatchError):
                return [(None, Batch.of_values(out, self.node.output_type, stamps))]
        tagged = [type(item) is tuple and len(item) == 2 and isinstance(item[0], SideTag) for item in out]
        if not any(tagged):
            return [(None, self.typed(out, stamps, self.node.output_type))]
        self._has_tags = True
        assert isinstance(self.node.operation, Process)
        parts: list[tuple[str | None, Batch]] = []
        for tag in self.side_outputs:
            positions = [i for i, is_tagged in enumerate(tagged) if is_tagged and out[i][0].tag_id == tag]
            if positions:
                side_stamps = None if stamps is None else stamps[positions]
                parts.append((tag, self._side(tag, [out[i] for i in positions], side_stamps)))
        self._warn_of_unread({out[i][0].tag_id for i in np.flatnonzero(tagged)} - set(self.side_outputs))
        is_main = ~np.array(tagged, dtype=bool)
        main = list(compress(out, is_main))
        return [*parts, (None, self.typed(main, None if stamps is None else stamps[is_main], self.node.output_type))]

    def _warn_of_unread(self, unread: set[str]) -> None:
        """Records of a side output that nobody reads are dropped, as in Flink. Where others are read, that is often a
        slip of the pen."""
        for tag in sorted(unread) if self.side_outputs else ():
            warn_once(
                f"side output {tag} of {self.uid}",
                f"'{self.node.name}' gives records to side output '{tag}', which nobody reads: they are dropped. Read "
                f"are {', '.join(repr(name) for name in sorted(self.side_outputs))}",
                self.node.site,
            )

    def _side(self, tag: str, tagged: list[tuple[SideTag, Any]], stamps: Timestamps | None) -> Batch:
        """The records of a side output, of the type that its readers declared."""
        assert isinstance(self.node.operation, Process)
        type_info = dict(self.node.operation.tags)[tag]
        for side_tag in {id(item[0]): item[0] for item in tagged}.values():
            if is_typed(type_info) and is_typed(side_tag.type_info) and side_tag.type_info != type_info:
                error = ProgramError(
                    f"side output '{tag}' is given out as {side_tag.type_info} and read as {type_info}. Use the same "
                    "OutputTag in the function and in get_side_output()"
                )
                value = next(item[1] for item in tagged if item[0] is side_tag)
                raise self.call.failed(error, f"side output '{tag}'", (value,))
        return self.typed([item[1] for item in tagged], stamps, type_info, f"side output '{tag}'")
