"""Windows, assigners, triggers and evictors under the module path PyFlink programs import them from.

These classes are pure logic; `millstream.runtime.windows` has the window operators.
"""

from __future__ import annotations

from millstream.common import constants
from millstream.datastream.window.assigners import (
    CumulativeEventTimeWindows,
    CumulativeProcessingTimeWindows,
    MergingWindowAssigner,
    SlidingEventTimeWindows,
    SlidingProcessingTimeWindows,
    TumblingEventTimeWindows,
    TumblingProcessingTimeWindows,
    WindowAssigner,
)
from millstream.datastream.window.counting import (
    CountSlidingWindowAssigner,
    CountTrigger,
    CountTumblingWindowAssigner,
    DeltaTrigger,
    GlobalWindows,
    NeverTrigger,
    PurgingTrigger,
)
from millstream.datastream.window.evictors import CountEvictor, DeltaEvictor, Evictor, TimeEvictor, TimestampedValue
from millstream.datastream.window.operation import WindowOperationDescriptor
from millstream.datastream.window.session_assigners import (
    DynamicEventTimeSessionWindows,
    DynamicProcessingTimeSessionWindows,
    EventTimeSessionWindows,
    ProcessingTimeSessionWindows,
    SessionWindowTimeGapExtractor,
)
from millstream.datastream.window.triggers import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    EventTimeTrigger,
    Min,
    ProcessingTimeTrigger,
    Trigger,
    TriggerResult,
)
from millstream.datastream.window.windows import (
    MAX_LONG_VALUE,
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
    Window,
    long_to_int_with_bit_mixing,
    mod_inverse,
)
from millstream.pyflink_names import add_pyflink_names

__all__ = [
    "MAX_LONG_VALUE",
    "ContinuousEventTimeTrigger",
    "ContinuousProcessingTimeTrigger",
    "CountEvictor",
    "CountSlidingWindowAssigner",
    "CountTrigger",
    "CountTumblingWindowAssigner",
    "CountWindow",
    "CountWindowSerializer",
    "CumulativeEventTimeWindows",
    "CumulativeProcessingTimeWindows",
    "DeltaEvictor",
    "DeltaTrigger",
    "DynamicEventTimeSessionWindows",
    "DynamicProcessingTimeSessionWindows",
    "EventTimeSessionWindows",
    "EventTimeTrigger",
    "Evictor",
    "GlobalWindow",
    "GlobalWindowSerializer",
    "GlobalWindows",
    "MergingWindowAssigner",
    "Min",
    "NeverTrigger",
    "ProcessingTimeSessionWindows",
    "ProcessingTimeTrigger",
    "PurgingTrigger",
    "SessionWindowTimeGapExtractor",
    "SlidingEventTimeWindows",
    "SlidingProcessingTimeWindows",
    "TimeEvictor",
    "TimeWindow",
    "TimeWindowSerializer",
    "TimestampedValue",
    "Trigger",
    "TriggerResult",
    "TumblingEventTimeWindows",
    "TumblingProcessingTimeWindows",
    "Window",
    "WindowAssigner",
    "WindowOperationDescriptor",
    "long_to_int_with_bit_mixing",
    "mod_inverse",
]

MIN_LONG_VALUE = constants.MIN_LONG_VALUE

add_pyflink_names(globals())
