"""The name under which a state can be asked for from outside, as its descriptor has it.

A state has one such name, set once. That no two states of a job share one is checked where all are known.
"""

from __future__ import annotations

from typing import Any

from millstream.datastream.streams.argument_checks import checked_text, refuse

__all__ = ["QueryableDescriptor", "checked_queryable_name"]


class QueryableDescriptor:
    """The part of a `StateDescriptor` that is about queries (docs/queries.md)."""

    _queryable_name: str | None = None

    def set_queryable(self, queryable_state_name: str) -> None:
        """Let the state be asked for from outside under this name, which no other state of the job may have.

        >>> from millstream.common import Types
        >>> from millstream.datastream.state import ValueStateDescriptor
        >>> descriptor = ValueStateDescriptor("total", Types.LONG())
        >>> descriptor.set_queryable("total-by-user")
        >>> descriptor.is_queryable(), descriptor.get_queryable_state_name()
        (True, 'total-by-user')
        """
        method = f"set_queryable of '{getattr(self, 'name', '')}'"
        self._queryable_name = checked_queryable_name(method, queryable_state_name, self._queryable_name)

    def is_queryable(self) -> bool:
        """Whether it can be asked for."""
        return self._queryable_name is not None

    def get_queryable_state_name(self) -> str | None:
        """The name it can be asked for under."""
        return self._queryable_name


def checked_queryable_name(method: str, name: Any, before: str | None = None) -> str:
    """`name`, if it is a text and the state has no other such name already."""
    new_name = checked_text(method, name)
    if before not in (None, new_name):
        raise refuse(f"{method}: it is queryable as '{before}' already, and a state has one such name")
    return new_name
