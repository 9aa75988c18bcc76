"""The base class by which the engine recognises side output tags among the values that a function yields."""

from __future__ import annotations

from millstream.common.typeinfo import TypeInformation

__all__ = ["SideTag"]


class SideTag:
    """Base class of `OutputTag`: `yield tag, value` emits `value` to the side output `tag_id`."""

    tag_id: str
    type_info: TypeInformation | None  # of the values, if declared
