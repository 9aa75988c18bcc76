"""Functions with state that belongs to a subtask, not to a key (beyond PyFlink; Flink has it in Java).

A function, a source or the writer of a sink keeps operator state by having two methods. What it puts into its lists
is part of the epoch: after a crash it finds the lists as they were at the end of the last committed epoch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from millstream.datastream.functions.runtime_context import KeyedStateStore

if TYPE_CHECKING:
    from millstream.datastream.state import OperatorStateStore

__all__ = ["CheckpointedFunction", "FunctionInitializationContext", "FunctionSnapshotContext"]


class FunctionInitializationContext(ABC):
    """Where a function finds its state when it starts."""

    @abstractmethod
    def is_restored(self) -> bool:
        """Whether there is state of an earlier epoch."""

    @abstractmethod
    def get_restored_checkpoint_id(self) -> int | None:
        """The epoch at whose end the state was kept; None when nothing was restored."""

    @abstractmethod
    def get_operator_state_store(self) -> OperatorStateStore:
        """Lists and maps of this operator: `get_list_state`, `get_union_list_state` and `get_broadcast_state`."""

    @abstractmethod
    def get_keyed_state_store(self) -> KeyedStateStore:
        """The state of the current key, on keyed streams."""


class FunctionSnapshotContext(ABC):
    """Which snapshot is being made."""

    @abstractmethod
    def get_checkpoint_id(self) -> int:
        """The epoch that ends."""

    @abstractmethod
    def get_checkpoint_timestamp(self) -> int:
        """The epoch's processing time, in ms."""


class CheckpointedFunction(ABC):
    """Add it to a function class to keep lists from epoch to epoch.

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
        """Get the lists, and what is in them. Called once on each object, before `open`.

        An object stays open as long as its subtask stays in its worker process. When Spark moves the subtask, or an
        epoch is run again, the object is closed and a new one starts from what was kept: `is_restored()` is True.
        A sink's writer starts anew in every epoch.
        """

    @abstractmethod
    def snapshot_state(self, context: FunctionSnapshotContext) -> None:
        """The epoch ends: put everything that must survive into the lists."""
