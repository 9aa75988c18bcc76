"""The codec of a task: the one that opens pickles.

A task runs its owner's functions on what they stored, so it may open what they pickled. Readers of a store make their
codecs without (`state_codec.StateCodec`), and may not import this module.
"""

from __future__ import annotations

from typing import Any

from millstream.common.typeinfo import TypeInformation
from millstream.records.unpickling import unpickled
from millstream.runtime.state_codec import StateCodec

__all__ = ["task_codec"]


def task_codec(type_info: TypeInformation | None, what: str, serializer: Any = None) -> StateCodec:
    """The codec of a state, or of map keys, in a task."""
    return StateCodec(type_info, what, serializer, unpickled)
