"""Entries of an operator's account for its queryable states: made from descriptors and windows.

`state.stored.queryable` defines the format, and reads it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from millstream.common.typeinfo import TypeInformation
from millstream.errors import ProgramError
from millstream.graph.nodes import Window
from millstream.graph.window_traits import MergingAssigner
from millstream.plan.operations import FoldedWindow, PaneAggregate
from millstream.state.schemas.saved_types import written_type
from millstream.state.stored.queryable import NUMBERED, PANES, PLACES, WINDOW_STATES, Queryable
from millstream.state.windows.bound_aggregates import BoundAggregate
from millstream.state.windows.pane_windows import PaneWindows

__all__ = ["queryable_of_panes", "queryable_of_windows", "queryables_of_states"]


def queryables_of_states(
    descriptors: Mapping[str, Any], shapes: Mapping[str, str], key_type: TypeInformation | None, operator: str
) -> dict[str, Queryable]:
    """The account entries of the states whose descriptors were made queryable, by that name."""
    queryables: dict[str, Queryable] = {}
    for state, descriptor in descriptors.items():
        name = getattr(descriptor, "_queryable_name", None)
        if name is None:
            continue
        if name in queryables:
            raise ProgramError(
                f"the states '{queryables[name].state}' and '{state}' of '{operator}' are both queryable as '{name}'. "
                "Give one of them another name by set_queryable"
            )
        shape, value = shapes[state], descriptor.type_info
        if shape == "map":
            value = value.value_type
        elif shape == "list":
            value = value.element_type
        queryables[name] = Queryable(state, shape, written_type(key_type), written_type(value))
    return queryables


def queryable_of_panes(operation: PaneAggregate, key_type: TypeInformation) -> Queryable:
    """The account entry of columnar windows."""
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
    """The account entry of the windows of the two other operators."""
    panes = operation.panes if isinstance(operation, FoldedWindow) else None
    form = PLACES if panes is None else NUMBERED
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
        WINDOW_STATES[form],
        "window",
        written_type(key_type),
        written_type(operation.contents_type),
        form,
        () if panes is None else _fields(panes),
        contents,
        _measures(measures) if contents == "ready" else (),
        isinstance(operation.assigner, MergingAssigner),
    )


def _fields(windows: PaneWindows) -> tuple[Any, ...]:
    return (*windows.lengths_ms, windows.is_event_time, windows.lateness_ms)


def _measures(measures: Sequence[BoundAggregate]) -> tuple[tuple[str, str, tuple[Any, ...], int], ...]:
    return tuple(
        (
            measure.name,
            measure.kind,
            tuple(
                None if argument.type_info is None else written_type(argument.type_info)
                for argument in measure.arguments
            ),
            measure.n,
        )
        for measure in measures
    )
