"""State of a key: what functions see of it, and the descriptors that name it.

The state classes are interfaces: the task brings the objects. A descriptor is data: a name, a type, how long a value
lives, and how values saved as another type are read. Two descriptors of one name in one operator mean the same state.
How long values live is described in `states.ttl`, serialisers and changes of type in `states.evolution`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, Self, TypeVar

from millstream.common.typeinfo import MapTypeInfo, TypeInformation, Types
from millstream.common.typeinfo.composite_types import type_advice
from millstream.datastream.functions.function import AggregateFunction, ReduceFunction, ReduceFunctionWrapper
from millstream.datastream.states.evolution import StateSerializer, Upgrade, checked_evolution
from millstream.datastream.states.queryable import QueryableDescriptor
from millstream.datastream.states.ttl import StateTtlConfig
from millstream.datastream.streams.argument_checks import checked_function, checked_text, refuse
from millstream.graph.site import refuse_type
from millstream.pyflink_names import add_pyflink_names

__all__ = [
    "AggregatingState",
    "AggregatingStateDescriptor",
    "AppendingState",
    "BroadcastState",
    "ListState",
    "ListStateDescriptor",
    "MapState",
    "MapStateDescriptor",
    "MergingState",
    "OperatorStateStore",
    "ReadOnlyBroadcastState",
    "ReducingState",
    "ReducingStateDescriptor",
    "State",
    "StateDescriptor",
    "StateSerializer",
    "StateTtlConfig",
    "ValueState",
    "ValueStateDescriptor",
]

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")
IN = TypeVar("IN")
OUT = TypeVar("OUT")


class OperatorStateStore(ABC):
    """Where state that belongs to an operator, not to a key, is found.

    Lists (beyond PyFlink) and maps belong to a subtask; a `CheckpointedFunction` asks for them. When the parallelism
    changes, the items of a list state are dealt out evenly; of a union list state everybody gets everything, at every
    restore; of a broadcast state everybody gets one of the copies.
    """

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list of this subtask: after a restore, its share of what all subtasks saved."""

    @abstractmethod
    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list of this subtask that starts with what all subtasks saved. Save only this subtask's items in turn."""

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """A map that every subtask has a copy of. The function keeps them equal: all get and do the same."""


class State(ABC):
    """What every kind of state can do."""

    @abstractmethod
    def clear(self) -> None:
        """Forget the value of the current key."""


class ValueState(State, Generic[T]):
    """One value per key."""

    @abstractmethod
    def value(self) -> T | None:
        """The value; None when there is none."""

    @abstractmethod
    def update(self, value: T) -> None:
        """Replace it."""


class AppendingState(State, Generic[IN, OUT]):
    """State that takes one kind of value and gives another."""

    @abstractmethod
    def get(self) -> OUT | None:
        """What was made of everything added."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Take one more."""


class MergingState(AppendingState[IN, OUT]):
    """State of which two can become one, as merging windows need."""


class ReducingState(MergingState[T, T]):
    """One value per key, combined with what is added to it."""


class AggregatingState(MergingState[IN, OUT]):
    """One accumulator per key, into which values are folded."""


class ListState(MergingState[T, Iterable[T]]):
    """A list per key."""

    @abstractmethod
    def update(self, values: list[T]) -> None:
        """Replace the list."""

    @abstractmethod
    def add_all(self, values: list[T]) -> None:
        """Append all of them."""

    def __iter__(self) -> Any:
        return iter(self.get() or ())


class MapState(State, Generic[K, V]):
    """A map per key."""

    @abstractmethod
    def get(self, key: K) -> V | None:
        """The value under `key`; None when there is none."""

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set the value under `key`."""

    @abstractmethod
    def put_all(self, dict_value: dict[K, V]) -> None:
        """Set all of them."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Forget `key`."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Whether there is a value under `key`."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """All pairs."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """All keys."""

    @abstractmethod
    def values(self) -> Iterable[V]:
        """All values."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Whether there is nothing in it."""

    def __getitem__(self, key: K) -> V | None:
        return self.get(key)

    def __setitem__(self, key: K, value: V) -> None:
        self.put(key, value)

    def __delitem__(self, key: K) -> None:
        self.remove(key)

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Any:
        return iter(self.keys())


class ReadOnlyBroadcastState(State, Generic[K, V]):
    """Broadcast state as the other side's records see it."""

    @abstractmethod
    def get(self, key: K) -> V | None:
        """The value under `key`; None when there is none."""

    @abstractmethod
    def contains(self, key: K) -> bool:
        """Whether there is a value under `key`."""

    @abstractmethod
    def items(self) -> Iterable[tuple[K, V]]:
        """All pairs."""

    @abstractmethod
    def keys(self) -> Iterable[K]:
        """All keys."""

    @abstractmethod
    def values(self) -> Iterable[V]:
        """All values."""

    @abstractmethod
    def is_empty(self) -> bool:
        """Whether there is nothing in it."""

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Any:
        return iter(self.keys())


class BroadcastState(ReadOnlyBroadcastState[K, V]):
    """Broadcast state as broadcast records see it. Every subtask must change it in the same way."""

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Set the value under `key`."""

    @abstractmethod
    def put_all(self, dict_value: dict[K, V]) -> None:
        """Set all of them."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Forget `key`."""


class StateDescriptor(QueryableDescriptor, ABC):
    """The name and type of a state."""

    def __init__(
        self,
        name: str,
        type_info: TypeInformation,
        *,
        upgrade: Upgrade | None = None,
        serializer: StateSerializer[Any] | None = None,
    ) -> None:
        self.name = checked_text(type(self).__name__, name)
        if not isinstance(type_info, TypeInformation):
            raise refuse_type(
                f"{type(self).__name__} '{name}': found {type_info!r} as its type. {type_advice(type_info)}"
            )
        self.type_info = type_info
        self._ttl_config: StateTtlConfig | None = None
        self._evolution = checked_evolution(self.name, upgrade=upgrade, serializer=serializer)

    def get_name(self) -> str:
        """The name under which the state is kept."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Let values expire."""
        if not isinstance(ttl_config, StateTtlConfig):
            raise refuse(
                f"enable_time_to_live of '{self.name}': found {ttl_config!r}, expected a StateTtlConfig, such as "
                "StateTtlConfig.new_builder(Duration.of_hours(1)).build()"
            )
        self._ttl_config = ttl_config

    def evolve(
        self,
        *,
        renames: Mapping[str, str] | None = None,
        defaults: Mapping[str, Any] | None = None,
        upgrade: Upgrade | None = None,
    ) -> Self:
        """Say how values that were saved as another type are read as this one (beyond PyFlink).

        Fields that were added, removed, moved or widened need nothing. `renames` tells which old field a new one is,
        `defaults` what a new field is in old values (else None); a field within a field goes by its path,
        `"address.street"`. `upgrade` is a function from an old value to a new one, for changes that nothing else can
        make; or a mapping from old types to functions, where there were several. Returns the descriptor.

        >>> visit = Types.ROW_NAMED(["page", "seconds"], [Types.STRING(), Types.LONG()])
        >>> descriptor = ValueStateDescriptor("visit", visit).evolve(renames={"url": "page"}, defaults={"seconds": 0})
        """
        self._evolution = checked_evolution(
            self.name,
            renames=renames,
            defaults=defaults,
            upgrade=self._evolution.upgrade if upgrade is None else upgrade,
            serializer=self._evolution.serializer,
        )
        return self

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.name))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.type_info!r})"


class ValueStateDescriptor(StateDescriptor):
    """Names a `ValueState`.

    >>> ValueStateDescriptor("total", Types.LONG()).get_name()
    'total'
    """

    def __init__(
        self,
        name: str,
        value_type_info: TypeInformation,
        *,
        upgrade: Upgrade | None = None,
        serializer: StateSerializer[Any] | None = None,
    ) -> None:
        super().__init__(name, value_type_info, upgrade=upgrade, serializer=serializer)


class ListStateDescriptor(StateDescriptor):
    """Names a `ListState`. `upgrade` and `serializer` are for its elements."""

    def __init__(
        self,
        name: str,
        elem_type_info: TypeInformation,
        *,
        upgrade: Upgrade | None = None,
        serializer: StateSerializer[Any] | None = None,
    ) -> None:
        super().__init__(name, Types.LIST(elem_type_info), upgrade=upgrade, serializer=serializer)


class MapStateDescriptor(StateDescriptor):
    """Names a `MapState`, or a broadcast state. `upgrade` and `serializer` are for its values."""

    def __init__(
        self,
        name: str,
        key_type_info: TypeInformation,
        value_type_info: TypeInformation,
        *,
        upgrade: Upgrade | None = None,
        serializer: StateSerializer[Any] | None = None,
    ) -> None:
        super().__init__(name, MapTypeInfo(key_type_info, value_type_info), upgrade=upgrade, serializer=serializer)


class ReducingStateDescriptor(StateDescriptor):
    """Names a `ReducingState` and how it combines."""

    def __init__(
        self,
        name: str,
        reduce_function: Callable[[Any, Any], Any] | ReduceFunction,
        type_info: TypeInformation,
        *,
        upgrade: Upgrade | None = None,
        serializer: StateSerializer[Any] | None = None,
    ) -> None:
        super().__init__(name, type_info, upgrade=upgrade, serializer=serializer)
        function = checked_function(f"ReducingStateDescriptor '{name}'", reduce_function, ReduceFunction)
        self._reduce_function = function if isinstance(function, ReduceFunction) else ReduceFunctionWrapper(function)

    def get_reduce_function(self) -> ReduceFunction | ReduceFunctionWrapper:
        """The function, whatever the program gave, as an object with `reduce`."""
        return self._reduce_function


class AggregatingStateDescriptor(StateDescriptor):
    """Names an `AggregatingState`, how it folds, and the type of its accumulator, which is what `upgrade` is for."""

    def __init__(
        self,
        name: str,
        agg_function: AggregateFunction,
        state_type_info: TypeInformation,
        *,
        upgrade: Upgrade | None = None,
        serializer: StateSerializer[Any] | None = None,
    ) -> None:
        super().__init__(name, state_type_info, upgrade=upgrade, serializer=serializer)
        what = f"AggregatingStateDescriptor '{name}'"
        self._agg_function = checked_function(what, agg_function, AggregateFunction, callables=False)

    def get_agg_function(self) -> AggregateFunction:
        """The function."""
        return self._agg_function  # type: ignore[no-any-return]


add_pyflink_names(globals())
