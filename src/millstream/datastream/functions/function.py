"""Functions that process one record at a time, and functions that select keys and partitions.

A function is sent to its task by pickle, once. There `open` is called before the first record, with the task's
`RuntimeContext`, and `close` after the last one. These classes only define names and signatures. A plain callable may
replace any of the one-method functions.

`CheckpointedFunction` adds operator state, which belongs to a subtask instead of a key (beyond PyFlink; Flink has it in
Java). A function, a source or a sink's writer has operator state if it implements two methods. The content of its lists
is part of the epoch: a crash restores them as of the last committed epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from millstream.datastream.functions.runtime_context import KeyedStateStore, RuntimeContext
from millstream.graph.field_key import OneKey

if TYPE_CHECKING:
    from millstream.datastream.state import OperatorStateStore

__all__ = [
    "AggregateFunction",
    "CheckpointedFunction",
    "CoFlatMapFunction",
    "CoMapFunction",
    "FilterFunction",
    "FlatMapFunction",
    "Function",
    "FunctionInitializationContext",
    "FunctionSnapshotContext",
    "FunctionWrapper",
    "KeySelector",
    "MapFunction",
    "NullByteKeySelector",
    "Partitioner",
    "ReduceFunction",
    "ReduceFunctionWrapper",
]


class Function(ABC):  # noqa: B024 - PyFlink has it abstract, with nothing to override
    """Base class of user-defined functions: their life cycle in a task."""

    def open(self, runtime_context: RuntimeContext) -> None:
        """Called once in the task before the first record. Open connections and metrics here, not in `__init__`."""

    def close(self) -> None:
        """Called once in the task after the last record, also when the task fails."""


class MapFunction(Function):
    """Maps one value to one value.

    >>> class Double(MapFunction):
    ...     def map(self, value):
    ...         return value * 2
    >>> Double().map(21)
    42
    """

    @abstractmethod
    def map(self, value: Any) -> Any:
        """The value that replaces `value`."""


class CoMapFunction(Function):
    """A map over two connected streams, with one method for each."""

    @abstractmethod
    def map1(self, value: Any) -> Any:
        """The value that replaces a value of the first stream."""

    @abstractmethod
    def map2(self, value: Any) -> Any:
        """The value that replaces a value of the second stream."""


class FlatMapFunction(Function):
    """Maps one value to any number of values: return an iterable, or `yield` them.

    >>> class Words(FlatMapFunction):
    ...     def flat_map(self, value):
    ...         yield from value.split()
    >>> list(Words().flat_map("to be"))
    ['to', 'be']
    """

    @abstractmethod
    def flat_map(self, value: Any) -> Iterable[Any]:
        """The values that replace `value`; an empty result drops it."""


class CoFlatMapFunction(Function):
    """A flat map over two connected streams, with one method for each."""

    @abstractmethod
    def flat_map1(self, value: Any) -> Iterable[Any]:
        """The values that replace a value of the first stream."""

    @abstractmethod
    def flat_map2(self, value: Any) -> Iterable[Any]:
        """The values that replace a value of the second stream."""


class ReduceFunction(Function):
    """Combines two values of a type into one of the same type. Must be associative."""

    @abstractmethod
    def reduce(self, value1: Any, value2: Any) -> Any:
        """`value1` is the combined value so far, `value2` the next value."""


class AggregateFunction(Function):
    """Folds values into an accumulator, and derives the result from it.

    >>> class Mean(AggregateFunction):
    ...     def create_accumulator(self):
    ...         return (0, 0)
    ...     def add(self, value, accumulator):
    ...         return (accumulator[0] + value, accumulator[1] + 1)
    ...     def get_result(self, accumulator):
    ...         return accumulator[0] / accumulator[1]
    ...     def merge(self, acc_a, acc_b):
    ...         return (acc_a[0] + acc_b[0], acc_a[1] + acc_b[1])
    >>> mean = Mean()
    >>> mean.get_result(mean.add(4, mean.add(2, mean.create_accumulator())))
    3.0
    """

    @abstractmethod
    def create_accumulator(self) -> Any:
        """An empty accumulator."""

    @abstractmethod
    def add(self, value: Any, accumulator: Any) -> Any:
        """Adds `value` to the accumulator, which may be modified in place, and must be returned."""

    @abstractmethod
    def get_result(self, accumulator: Any) -> Any:
        """The result of the accumulator."""

    @abstractmethod
    def merge(self, acc_a: Any, acc_b: Any) -> Any:
        """Merges two accumulators; needed where windows merge."""


class KeySelector(Function):
    """Selects the key of a record. It must be deterministic."""

    @abstractmethod
    def get_key(self, value: Any) -> Any:
        """The key of `value`."""


class NullByteKeySelector(KeySelector, OneKey):
    """Returns the same key for every record, as windows over a whole stream require.

    >>> NullByteKeySelector().get_key("anything")
    0
    """

    def get_key(self, value: Any) -> int:
        return 0


class FilterFunction(Function):
    """Selects the values for which `filter` is true."""

    @abstractmethod
    def filter(self, value: Any) -> bool:
        """Whether to emit `value`."""


class Partitioner(Function):
    """Selects the partition of a key."""

    @abstractmethod
    def partition(self, key: Any, num_partitions: int) -> int:
        """A number from 0 to `num_partitions - 1`, deterministic in the arguments."""


class FunctionWrapper(Function):
    """A plain callable as a function object."""

    def __init__(self, func: Callable[..., Any]) -> None:
        self._func = func


class ReduceFunctionWrapper(FunctionWrapper):
    """A plain callable of two values as a `ReduceFunction`.

    >>> ReduceFunctionWrapper(max).reduce(3, 5)
    5
    """

    def reduce(self, value1: Any, value2: Any) -> Any:
        return self._func(value1, value2)


class FunctionInitializationContext(ABC):
    """Access to a function's state at its start."""

    @abstractmethod
    def is_restored(self) -> bool:
        """Whether state of an earlier epoch was restored."""

    @abstractmethod
    def get_restored_checkpoint_id(self) -> int | None:
        """The epoch whose state was restored; None if nothing was restored."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """Lists and maps of this operator: `get_list_state`, `get_union_list_state` and `get_broadcast_state`."""

    @abstractmethod
    def get_keyed_state_store(self) -> KeyedStateStore:
        """The state of the current key, on keyed streams."""


class FunctionSnapshotContext(ABC):
    """Identifies the current snapshot."""

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """The epoch that ends."""

    @abstractmethod
    def get_checkpoint_timestamp(self) -> int:
        """The epoch's processing time, in ms."""


class CheckpointedFunction(ABC):
    """Adds lists that persist across epochs to a function class.

    >>> from millstream.common import Types
    >>> from millstream.datastream.functions import MapFunction
    >>> from millstream.datastream.state import ListStateDescriptor
    >>> class Numbered(MapFunction, CheckpointedFunction):
    ...     def initialize_state(self, context):
    ...         store = context.get_operator_state_store()
    ...         self.saved = store.get_list_state(ListStateDescriptor("count", Types.LONG()))
    ...         self.count = sum(self.saved.get())
    ...     def snapshot_state(self, context):
    ...         self.saved.update([self.count])
    ...     def map(self, value):
    ...         self.count += 1
    ...         return self.count, value
    >>> from millstream.testing import CRASH, EPOCH, Collect, Script, run
    >>> out = Collect()
    >>> run(lambda env: env.add_source(Script(["a", EPOCH, "b", CRASH, "c"])).map(Numbered()).sink_to(out))[out]
    [(1, 'a'), (2, 'b'), (3, 'c')]

    Works for the functions of `map`, `flat_map`, `filter` and `process`, for Python sources, and for `TwoPhaseSink`s
    and other sinks' writers. In a sink `snapshot_state` comes after `stage`.
    """

    @abstractmethod
    def initialize_state(self, context: FunctionInitializationContext) -> None:
        """Obtains the lists and reads their content. Called once on each object, before `open`.

        An object stays open as long as its subtask stays in its worker process. When Spark moves the subtask, or an
        epoch is run again, the object is closed and a new one starts from the stored state: `is_restored()` is True.
        A sink's writer is created in every epoch.
        """

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """Called at the end of an epoch: writes everything that must survive a failure to the lists."""
