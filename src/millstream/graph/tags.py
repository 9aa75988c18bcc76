"""The mark by which the engine knows a side output among the values a function yields."""

from __future__ import annotations

from millstream.common.typeinfo import TypeInformation

__all__ = ["SideTag"]


class SideTag:
    """What `OutputTag` is to the engine: `yield tag, value` sends `value` to the side output `tag_id`."""

    tag_id: str
    type_info: TypeInformation | None  # of the values, where it was declared
