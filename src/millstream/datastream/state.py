"""Keyed state: the interfaces that functions use, and the descriptors that name states.

The state classes are interfaces; the task implements them. A descriptor is data: a name, a type, a time to live, and
the conversion of values saved as another type. Two descriptors with the same name in one operator refer to the same
state. `states.ttl` defines the time to live, `states.evolution` serialisers and type changes.
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
    """Access to operator state, which does not belong to a key.

    Lists (beyond PyFlink) and maps belong to a subtask; a `CheckpointedFunction` gets them here. When the parallelism
    changes, the items of a list state are redistributed evenly. At every restore each subtask receives all items of a
    union list state, and one copy of a broadcast state.
    """

    @abstractmethod
    def get_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list of this subtask: after a restore, its share of the items saved by all subtasks."""

    @abstractmethod
    def get_union_list_state(self, state_descriptor: ListStateDescriptor) -> ListState[Any]:
        """A list of this subtask that starts with the items of all subtasks. Each subtask must save only its own
        items."""

    @abstractmethod
    def get_broadcast_state(self, state_descriptor: MapStateDescriptor) -> BroadcastState[Any, Any]:
        """A map with a copy in every subtask. The function must keep the copies equal by processing the same records
        identically."""


class State(ABC):
    """Base of all kinds of state."""

    @abstractmethod
    def clear(self) -> None:
        """Removes the value of the current key."""


class ValueState(State, Generic[T]):
    """One value per key."""

    @abstractmethod
    def value(self) -> T | None:
        """The value, or None."""

    @abstractmethod
    def update(self, value: T) -> None:
        """Replaces the value."""


class AppendingState(State, Generic[IN, OUT]):
    """State that accepts one type of value and returns another."""

    @abstractmethod
    def get(self) -> OUT | None:
        """The result of all added values."""

    @abstractmethod
    def add(self, value: IN) -> None:
        """Adds a value."""


class MergingState(AppendingState[IN, OUT]):
    """State that can be merged with another, as merging windows require."""


class ReducingState(MergingState[T, T]):
    """One value per key, combined with the values added to it."""


class AggregatingState(MergingState[IN, OUT]):
    """One accumulator per key, into which values are folded."""


class ListState(MergingState[T, Iterable[T]]):
    """A list per key."""

    @abstractmethod
    def update(self, values: list[T]) -> None:
        """Replaces the list."""

    @abstractmethod
    def add_all(self, values: list[T]) -> None:
        """Appends all values."""

    def __iter__(self) -> Any:
        return iter(self.get() or ())


class MapState(State, Generic[K, V]):
    """A map per key."""

    @abstractmethod
    def get(self, key: K) -> V | None:
        """The value under `key`, or None."""

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Sets the value under `key`."""

    @abstractmethod
    def put_all(self, dict_value: dict[K, V]) -> None:
        """Sets all of them."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Removes `key`."""

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
        """Whether the map is empty."""

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
    """Broadcast state as visible to the other side's records."""

    @abstractmethod
    def get(self, key: K) -> V | None:
        """The value under `key`, or None."""

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
        """Whether the map is empty."""

    def __contains__(self, key: K) -> bool:
        return self.contains(key)

    def __iter__(self) -> Any:
        return iter(self.keys())


class BroadcastState(ReadOnlyBroadcastState[K, V]):
    """Broadcast state as visible to broadcast records. Every subtask must change it in the same way."""

    @abstractmethod
    def put(self, key: K, value: V) -> None:
        """Sets the value under `key`."""

    @abstractmethod
    def put_all(self, dict_value: dict[K, V]) -> None:
        """Sets all of them."""

    @abstractmethod
    def remove(self, key: K) -> None:
        """Removes `key`."""


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
        """The name under which the state is stored."""
        return self.name

    def enable_time_to_live(self, ttl_config: StateTtlConfig) -> None:
        """Sets the time to live of values."""
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
        """Declares how values that were saved as another type are converted to this one (beyond PyFlink).

        Fields that were added, removed, moved or widened need no declaration. `renames` maps old field names to new
        ones, `defaults` new fields to their value in old rows (by default None); a nested field is named by its path,
        `"address.street"`. For other changes, `upgrade` is a function from an old value to a new one, or a mapping from
        several old types to functions. Returns the descriptor.

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
    """Names a `ReducingState` and its reduce function."""

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
        """The reduce function as an object with `reduce`."""
        return self._reduce_function


class AggregatingStateDescriptor(StateDescriptor):
    """Names an `AggregatingState`, its function, and the type of its accumulator, to which `upgrade` applies."""

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
