"""Queryable states: the program's declarations.

`set_queryable` gives a descriptor a name; `KeyedStream.as_queryable_state` ends a stream in a queryable state;
`WindowedStream.queryable` names the windows of an operator. A state has one such name, set once. Names must be unique
in a job, which the compiler checks. docs/operate/queries.md describes the requests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from millstream.datastream.functions.process import KeyedProcessFunction
from millstream.datastream.streams.argument_checks import checked_text, refuse
from millstream.datastream.streams.stream_edges import OperatorControls
from millstream.graph.nodes import Edge

if TYPE_CHECKING:
    from millstream.datastream.state import ReducingStateDescriptor, ValueStateDescriptor
    from millstream.datastream.stream_execution_environment import StreamExecutionEnvironment

__all__ = ["KeepLast", "QueryableDescriptor", "QueryableStateStream", "checked_queryable_name"]


class QueryableDescriptor:
    """The part of a `StateDescriptor` that concerns queries (docs/operate/queries.md)."""

    _queryable_name: str | None = None

    def set_queryable(self, queryable_state_name: str) -> None:
        """Makes the state queryable from outside under this name, which must be unique in the job.

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
        """Whether the state is queryable."""
        return self._queryable_name is not None

    def get_queryable_state_name(self) -> str | None:
        """The name under which the state is queryable."""
        return self._queryable_name


def checked_queryable_name(method: str, name: Any, before: str | None = None) -> str:
    """Returns `name`; rejects other types than strings, and a second name for the state."""
    new_name = checked_text(method, name)
    if before not in (None, new_name):
        raise refuse(f"{method}: it is already queryable as '{before}', and a state has only one such name")
    return new_name


class KeepLast(KeyedProcessFunction):
    """Stores the last record of every key, or its records reduced to one value; emits nothing."""

    def __init__(self, descriptor: ValueStateDescriptor | ReducingStateDescriptor) -> None:
        self._descriptor = descriptor

    def open(self, runtime_context: Any) -> None:
        if hasattr(self._descriptor, "get_reduce_function"):
            self._update = runtime_context.get_reducing_state(self._descriptor).add
        else:
            self._update = runtime_context.get_state(self._descriptor).update

    def process_element(self, value: Any, ctx: Any) -> Any:
        self._update(value)
        return ()


class QueryableStateStream(OperatorControls):
    """The result of `KeyedStream.as_queryable_state`: the end of a stream, with methods to set its name and
    placement."""

    def __init__(
        self,
        *,
        environment: StreamExecutionEnvironment,
        edges: tuple[Edge, ...],
        descriptor: ValueStateDescriptor | ReducingStateDescriptor,
    ) -> None:
        self._environment = environment
        self._edges = edges
        self._descriptor = descriptor

    def get_queryable_state_name(self) -> str:
        """The name under which the state is queryable."""
        name = self._descriptor.get_queryable_state_name()
        assert name is not None
        return name

    def get_state_descriptor(self) -> ValueStateDescriptor | ReducingStateDescriptor:
        """The descriptor of the state."""
        return self._descriptor
