"""What a task tells of the states that may be queried by name, so that a reader needs no program.

An operator's account has, beside the versions of its tables, `queryable`: for each name the state, its kind, and the
types of key and value as the program declared them. For windows it tells besides how their contents are kept, which
windows there are, and what ready aggregates make of an accumulator. A function of the user's is never written down.

Invariant: `Queryable.from_json(q.to_json())` is `q`. Manifests of older Millstreams have no such part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from millstream.common.typeinfo import TypeInformation
from millstream.errors import ProgramError, StoreDamagedError
from millstream.graph.measures import Look, Measure
from millstream.graph.nodes import PaneAggregate, Window
from millstream.graph.pane_windows import PaneWindows
from millstream.runtime.collection_states import ListHandle, MapHandle
from millstream.runtime.states import Aggregating, Reducing
from millstream.state.saved_types import type_from, written_type

__all__ = ["NUMBERED", "PANES", "PLACES", "Queryable", "queryable_of_panes", "queryable_of_windows", "queryables_told"]

PANES, NUMBERED, PLACES = "panes", "numbered", "places"
"""How windows are kept: sums of panes, a value by the number of the window, or rows of a key and a window."""

_STATES = {PANES: "panes", NUMBERED: "window values", PLACES: "window contents"}


@dataclass(frozen=True)
class Queryable:
    """A state that can be asked for by a name of its own.

    `kind` is value, list, map, reducing, aggregating or window. `key` and `value` are written types; the value of an
    aggregating state and of a window is that of the accumulator (or of a record). For windows, `kept` says how,
    `windows` has the fields of a `PaneWindows`, `contents` is reduced, aggregated, ready, records or timed records,
    and `measures` tells of ready aggregates: name, kind, types looked at, n.
    """

    state: str
    kind: str
    key: Any
    value: Any
    kept: str = ""
    windows: tuple[Any, ...] = ()
    contents: str = ""
    measures: tuple[tuple[str, str, tuple[Any, ...], int], ...] = ()
    merges: bool = False

    def to_json(self) -> dict[str, Any]:
        """As an account has it; what does not apply is left out."""
        return {name: value for name, value in asdict(self).items() if value not in ("", (), False)}

    @classmethod
    def from_json(cls, written: Mapping[str, Any], name: str) -> Queryable:
        """What `to_json` gave; StoreDamagedError naming the state if it did not."""
        try:
            told = dict(written)
            told["windows"] = tuple(told.get("windows", ()))
            told["measures"] = tuple((n, kind, tuple(types), k) for n, kind, types, k in told.get("measures", ()))
            return cls(**told)
        except (TypeError, ValueError) as error:
            raise StoreDamagedError(
                f"what the manifest tells of queryable state '{name}' cannot be read ({error}). Was it written by a "
                "newer Millstream? Upgrade, then ask again."
            ) from error

    @property
    def key_type(self) -> TypeInformation | None:
        """The declared type of keys; None: they have none, and are found by their canonical form."""
        return None if self.key == "PICKLED" else type_from(self.key, f"the key of '{self.state}'")

    @property
    def pane_windows(self) -> PaneWindows:
        """The windows of panes and of numbers."""
        return PaneWindows(*self.windows)

    def typed_measures(self) -> tuple[Measure, ...]:
        """The ready aggregates, as far as results need them; those of untyped streams have no types."""
        return tuple(
            Measure(name, kind, tuple(Look(None if t is None else type_from(t, name), 0) for t in types), n)
            for name, kind, types, n in self.measures
        )


def queryables_told(
    descriptors: Mapping[str, Any], kinds: Mapping[str, type[Any]], key_type: TypeInformation | None, operator: str
) -> dict[str, Any]:
    """What an account tells of the states whose descriptors were made queryable, by that name."""
    told: dict[str, Any] = {}
    for state, descriptor in descriptors.items():
        name = getattr(descriptor, "_queryable_name", None)
        if name is None:
            continue
        if name in told:
            raise ProgramError(
                f"the states '{told[name]['state']}' and '{state}' of '{operator}' are both queryable as '{name}'. "
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
        told[name] = Queryable(state, shape, written_type(key_type), written_type(value)).to_json()
    return told


def queryable_of_panes(operation: PaneAggregate, key_type: TypeInformation) -> dict[str, Any]:
    """What an account tells of columnar windows."""
    return Queryable(
        _STATES[PANES],
        "window",
        written_type(key_type),
        "PICKLED",
        PANES,
        _fields(operation.windows),
        "ready",
        _measures(operation.measures),
    ).to_json()


def queryable_of_windows(operation: Window, key_type: TypeInformation | None) -> dict[str, Any]:
    """What an account tells of the windows of the two other operators."""
    kept = PLACES if operation.panes is None else NUMBERED
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
        _STATES[kept],
        "window",
        written_type(key_type),
        written_type(operation.contents_type),
        kept,
        () if operation.panes is None else _fields(operation.panes),
        contents,
        _measures(measures) if contents == "ready" else (),
        operation.merges,
    ).to_json()


def _fields(windows: PaneWindows) -> tuple[Any, ...]:
    own = (windows.size_ms, windows.slide_ms, windows.offset_ms, windows.step_ms)
    return (*own, windows.is_event_time, windows.lateness_ms)


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
