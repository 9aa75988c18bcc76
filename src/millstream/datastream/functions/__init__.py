"""All function classes under the module path PyFlink programs import them from, one module per concept.

`RuntimeContext` and the contexts of process functions are interfaces, which the task implements.
"""

from __future__ import annotations

from millstream.datastream.functions.asynchronous import (
    AsyncFunction,
    AsyncFunctionDescriptor,
    AsyncRetryPredicate,
    AsyncRetryStrategy,
)
from millstream.datastream.functions.function import (
    AggregateFunction,
    CheckpointedFunction,
    CoFlatMapFunction,
    CoMapFunction,
    FilterFunction,
    FlatMapFunction,
    Function,
    FunctionInitializationContext,
    FunctionSnapshotContext,
    FunctionWrapper,
    KeySelector,
    MapFunction,
    NullByteKeySelector,
    Partitioner,
    ReduceFunction,
    ReduceFunctionWrapper,
)
from millstream.datastream.functions.internal_window import (
    InternalIterableAllWindowFunction,
    InternalIterableProcessAllWindowFunction,
    InternalIterableProcessWindowFunction,
    InternalIterableWindowFunction,
    InternalProcessAllWindowContext,
    InternalProcessWindowContext,
    InternalSingleValueAllWindowFunction,
    InternalSingleValueProcessAllWindowFunction,
    InternalSingleValueProcessWindowFunction,
    InternalSingleValueWindowFunction,
    InternalWindowFunction,
)
from millstream.datastream.functions.joining import CoGroupFunction, FlatJoinFunction, JoinFunction, ProcessJoinFunction
from millstream.datastream.functions.keyed_batch import KeyedBatch, KeyedBatchFunction, KeyedBatchResult
from millstream.datastream.functions.process import (
    BaseBroadcastProcessFunction,
    BroadcastProcessFunction,
    CoProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ProcessFunction,
)
from millstream.datastream.functions.runtime_context import KeyedStateStore, RuntimeContext
from millstream.datastream.functions.source_and_sink import JavaFunctionWrapper, SinkFunction, SourceFunction
from millstream.datastream.functions.window import (
    AllWindowFunction,
    PassThroughAllWindowFunction,
    PassThroughWindowFunction,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    WindowFunction,
)
from millstream.datastream.timerservice import TimerService
from millstream.pyflink_names import add_pyflink_names

__all__ = [
    "AggregateFunction",
    "AllWindowFunction",
    "AsyncFunction",
    "AsyncFunctionDescriptor",
    "AsyncRetryPredicate",
    "AsyncRetryStrategy",
    "BaseBroadcastProcessFunction",
    "BroadcastProcessFunction",
    "CheckpointedFunction",
    "CoFlatMapFunction",
    "CoGroupFunction",
    "CoMapFunction",
    "CoProcessFunction",
    "FilterFunction",
    "FlatJoinFunction",
    "FlatMapFunction",
    "Function",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "FunctionWrapper",
    "InternalIterableAllWindowFunction",
    "InternalIterableProcessAllWindowFunction",
    "InternalIterableProcessWindowFunction",
    "InternalIterableWindowFunction",
    "InternalProcessAllWindowContext",
    "InternalProcessWindowContext",
    "InternalSingleValueAllWindowFunction",
    "InternalSingleValueProcessAllWindowFunction",
    "InternalSingleValueProcessWindowFunction",
    "InternalSingleValueWindowFunction",
    "InternalWindowFunction",
    "JavaFunctionWrapper",
    "JoinFunction",
    "KeySelector",
    "KeyedBatch",
    "KeyedBatchFunction",
    "KeyedBatchResult",
    "KeyedBroadcastProcessFunction",
    "KeyedCoProcessFunction",
    "KeyedProcessFunction",
    "KeyedStateStore",
    "MapFunction",
    "NullByteKeySelector",
    "Partitioner",
    "PassThroughAllWindowFunction",
    "PassThroughWindowFunction",
    "ProcessAllWindowFunction",
    "ProcessFunction",
    "ProcessJoinFunction",
    "ProcessWindowFunction",
    "ReduceFunction",
    "ReduceFunctionWrapper",
    "RuntimeContext",
    "SinkFunction",
    "SourceFunction",
    "TimerService",
    "WindowFunction",
]

add_pyflink_names(globals())
