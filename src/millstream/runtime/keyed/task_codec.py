"""The codecs of a task: those that open pickles.

A task runs its owner's functions on what they stored, so it may open what they pickled. Readers of a store make their
codecs without (`state_codec.StateCodec`), and may not import this module.
"""

from __future__ import annotations

from typing import Any

from millstream.common.typeinfo import TypeInformation
from millstream.records.unpickling import unpickled
from millstream.state.stored.state_codec import StateCodec
from millstream.state.tables.map_keys import MapKeyCodec

__all__ = ["task_codec", "task_map_keys"]


def task_codec(type_info: TypeInformation | None, what: str, serializer: Any = None) -> StateCodec:
    """The codec of a state's values in a task."""
    return StateCodec(type_info, what, serializer, unpickled)


def task_map_keys(type_info: TypeInformation | None, what: str) -> MapKeyCodec:
    """The codec of a map's keys in a task."""
    return MapKeyCodec(type_info, what, open_pickle=unpickled)
