"""Makes states from their descriptors: the handle, its codecs and its lifetime.

States of keys and of places are created alike; the caller's scope and table distinguish them.

A task's codecs unpickle: a task runs its owner's functions on their stored values, so it may open what they pickled.
Readers of a store use codecs that do not (`state_codec.StateCodec`), and may not import this module.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from millstream.common.typeinfo import TypeInformation
from millstream.errors import ProgramError
from millstream.records.unpickling import unpickled
from millstream.runtime.keyed.states import PairHandle, StateHandle, ValueHandle
from millstream.state.schemas.evolution import Evolution
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.map_keys import MapKeyCodec
from millstream.state.tables.state_table import StateTable

__all__ = ["declared_state", "evolution_of", "name_conflict", "task_codec", "task_map_keys"]


def task_codec(type_info: TypeInformation | None, what: str, serializer: Any = None) -> StateCodec:
    """The codec of a state's values in a task."""
    return StateCodec(type_info, what, serializer, unpickled)


def task_map_keys(type_info: TypeInformation | None, what: str) -> MapKeyCodec:
    """The codec of a map's keys in a task."""
    return MapKeyCodec(type_info, what, open_pickle=unpickled)


def declared_state(
    kind: type[Any], descriptor: Any, what: str, scope: Any, make_table: Callable[..., StateTable]
) -> StateHandle:
    """A handle of this kind. `what` names the state in errors; `make_table` gets the codec of its values, that of map
    keys, and further settings of a `StateTable`."""
    options, renews = _lifetime(descriptor)
    options["evolution"] = evolution = evolution_of(descriptor)
    serializer = None if evolution is None else evolution.serializer
    declared = descriptor.type_info
    handle: StateHandle
    if kind.shape == "map":
        key = task_map_keys(declared.key_type, f"the map keys of {what}")
        value = task_codec(declared.value_type, what, serializer)
        handle = kind(make_table(value, key, **options), scope, renews, key, value)
        return handle
    if kind.shape == "list":
        value = task_codec(declared.element_type, what, serializer)
        handle = kind(make_table(value, sub_type=pa.int64(), **options), scope, renews, value)
        return handle
    function: dict[str, Any] = {}
    if kind.shape == "reducing":
        function["reduce"] = descriptor.get_reduce_function().reduce
    elif kind.shape == "aggregating":
        function["function"] = descriptor.get_agg_function()
    value = task_codec(declared, what, serializer)
    if kind is ValueHandle and value.exact_pair is not None:
        kind = PairHandle
    handle = kind(make_table(value, **options), scope, renews, value, **function)
    return handle


def evolution_of(descriptor: Any) -> Evolution | None:
    """A descriptor's declaration of previous types; None for the operator's own states."""
    evolution: Any = getattr(descriptor, "_evolution", None)
    return evolution if isinstance(evolution, Evolution) else None


def name_conflict(name: str, operator: str) -> ProgramError:
    """The error for a state with the name of one of the operator's own."""
    return ProgramError(f"state '{name}' of '{operator}': the operator has a table of that name. Choose another one")


def _lifetime(descriptor: Any) -> tuple[dict[str, Any], bool]:
    """The settings of a descriptor's `StateTtlConfig`: options for its table, and whether reads renew the
    time-to-live."""
    ttl: Any = getattr(descriptor, "_ttl_config", None)
    if ttl is None or not ttl.is_enabled():
        return {}, False
    sees_expired = ttl.get_state_visibility().name == "ReturnExpiredIfNotCleanedUp"
    options = {"ttl_ms": ttl.get_ttl().to_millis(), "sees_expired": sees_expired}
    return options, ttl.get_update_type().name == "OnReadAndWrite"
