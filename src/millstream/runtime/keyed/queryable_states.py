"""What an operator tells of its queryable states: made of descriptors and of windows, for the account.

The form itself, and how it is read again, is `state.stored.queryable`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millstream.common.typeinfo import TypeInformation
from millstream.errors import ProgramError
from millstream.graph.nodes import Window
from millstream.graph.window_traits import MergingAssigner
from millstream.plan.operations import FoldedWindow, PaneAggregate
from millstream.runtime.keyed.collection_states import ListHandle, MapHandle
from millstream.runtime.keyed.states import Aggregating, Reducing
from millstream.state.schemas.saved_types import written_type
from millstream.state.stored.queryable import NUMBERED, PANES, PLACES, WINDOW_STATES, Queryable
from millstream.state.windows.measures import Measure
from millstream.state.windows.pane_windows import PaneWindows

__all__ = ["queryable_of_panes", "queryable_of_windows", "queryables_told"]


def queryables_told(
    descriptors: Mapping[str, Any], kinds: Mapping[str, type[Any]], key_type: TypeInformation | None, operator: str
) -> dict[str, Queryable]:
    """What an account tells of the states whose descriptors were made queryable, by that name."""
    told: dict[str, Queryable] = {}
    for state, descriptor in descriptors.items():
        name = getattr(descriptor, "_queryable_name", None)
        if name is None:
            continue
        if name in told:
            raise ProgramError(
                f"the states '{told[name].state}' and '{state}' of '{operator}' are both queryable as '{name}'. "
                "Give one of them another name by set_queryable"
            )
        kind, declared = kinds[state], descriptor.type_info
        shape, value = "value", declared
        if issubclass(kind, MapHandle):
            shape, value = "map", declared.value_type
        elif issubclass(kind, ListHandle):
            shape, value = "list", declared.element_type
        elif issubclass(kind, Reducing):
            shape = "reducing"
        elif issubclass(kind, Aggregating):
            shape = "aggregating"
        told[name] = Queryable(state, shape, written_type(key_type), written_type(value))
    return told


def queryable_of_panes(operation: PaneAggregate, key_type: TypeInformation) -> Queryable:
    """What an account tells of columnar windows."""
    return Queryable(
        WINDOW_STATES[PANES],
        "window",
        written_type(key_type),
        "PICKLED",
        PANES,
        _fields(operation.windows),
        "ready",
        _measures(operation.measures),
    )


def queryable_of_windows(operation: Window, key_type: TypeInformation | None) -> Queryable:
    """What an account tells of the windows of the two other operators."""
    panes = operation.panes if isinstance(operation, FoldedWindow) else None
    kept = PLACES if panes is None else NUMBERED
    measures: Any = getattr(operation.aggregate, "measures", ())
    if operation.evictor is not None:
        contents = "timed records"
    elif operation.reduce is not None:
        contents = "reduced"
    elif operation.aggregate is not None:
        contents = "ready" if measures else "aggregated"
    else:
        contents = "records"
    return Queryable(
        WINDOW_STATES[kept],
        "window",
        written_type(key_type),
        written_type(operation.contents_type),
        kept,
        () if panes is None else _fields(panes),
        contents,
        _measures(measures) if contents == "ready" else (),
        isinstance(operation.assigner, MergingAssigner),
    )


def _fields(windows: PaneWindows) -> tuple[Any, ...]:
    return (*windows.lengths_ms, windows.is_event_time, windows.lateness_ms)


def _measures(measures: Sequence[Measure]) -> tuple[tuple[str, str, tuple[Any, ...], int], ...]:
    return tuple(
        (
            measure.name,
            measure.kind,
            tuple(None if look.type_info is None else written_type(look.type_info) for look in measure.looks),
            measure.n,
        )
        for measure in measures
    )
