"""Windows over two keyed streams: the general window operator with two inputs.

Records are tagged with their side on arrival, and windows then treat them alike. The function splits a window's
contents by side again (`tagged_rows`). So everything that applies to windows applies here: any assigner, trigger and
evictor, merging, lateness.

Within an epoch all records of the first stream precede those of the second (`connected_operators`), each in their own
order. Counting triggers see this order in every repetition of an epoch.
"""

from __future__ import annotations

from typing import Any

from millstream.graph.nodes import CoGroupWindow
from millstream.graph.tagged_rows import tag_records
from millstream.records.batch import Batch
from millstream.runtime.operators.connected_operators import TwoKeyedInputs
from millstream.runtime.operators.operator import OperatorSetting
from millstream.runtime.windows.operator import WindowOperator

__all__ = ["CoGroupOperator"]


class CoGroupOperator(TwoKeyedInputs, WindowOperator):
    """One window node of two streams in one subtask."""

    methods = ("process", "process")  # one function for both inputs, called with whole windows

    def __init__(self, setting: OperatorSetting) -> None:
        super().__init__(setting)
        operation = setting.node.operation
        assert isinstance(operation, CoGroupWindow)
        self._late_tags = operation.late_tags

    def records(self, batch: Batch) -> list[Any]:
        return tag_records(batch.values(), self.current_input == 1)

    def emit_late(self, value: Any, stamp: int, out: list[Any], stamps: list[int]) -> None:
        is_first, first, second = value
        tag = self._late_tags[0 if is_first else 1]
        if tag is None:
            self._dropped.inc()
        else:
            out.append((tag, first if is_first else second))
            stamps.append(stamp)
