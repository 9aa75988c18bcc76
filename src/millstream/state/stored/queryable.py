"""What a task tells of the states that may be queried by name, so that a reader needs no program.

An operator's account has, beside the versions of its tables, `queryable`: for each name the state, its kind, and the
types of key and value as the program declared them. For windows it tells besides how their contents are kept, which
windows there are, and what ready aggregates make of an accumulator. A function of the user's is never written down.
Manifests of older Millstreams have no such part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from millstream.common.typeinfo import TypeInformation
from millstream.state.schemas.saved_types import type_from
from millstream.state.stored import table_names
from millstream.state.stored.table_names import WINDOW_CONTENTS, WINDOW_VALUES
from millstream.state.windows.bound_aggregates import AggregateArgument, BoundAggregate
from millstream.state.windows.pane_windows import PaneWindows
from millstream.storage.json_records import Named

__all__ = ["COUNTED_ROWS", "KEYED_ROWS", "NUMBERED", "PANES", "PLACES", "WINDOW_STATES", "Queryable"]

PANES, NUMBERED, PLACES = "panes", "numbered", "places"
"""How windows are kept: sums of panes, a value by the number of the window, or rows of a key and a window."""
KEYED_ROWS, COUNTED_ROWS = "rows by key", "rows with counts"
"""How a table is kept: its rows by their primary key, or each row as a key, with how often it is there."""

WINDOW_STATES = {PANES: table_names.PANES, NUMBERED: WINDOW_VALUES, PLACES: WINDOW_CONTENTS}


@dataclass(frozen=True)
class Queryable:
    """A state that can be asked for by a name of its own.

    `kind` is value, list, map, reducing, aggregating or window. `key` and `value` are written types; the value of an
    aggregating state and of a window is that of the accumulator (or of a record). For windows, `form` says how they
    are kept, `windows` has the fields of a `PaneWindows`, `contents` is reduced, aggregated, ready, records or timed
    records, and `measures` tells of ready aggregates: name, kind, types looked at, n. For tables, `form` says how they
    are kept; `columns` have their names and written types, and `primary_key` is which of them are the key.
    `archived_by` is the column by whose time rows leave the state for an archive: "" if the clock says it, None if
    there is no archive. Of a table that has one, `born` says of each column since when it is there: "" from the
    beginning. A column that was left out and added again is another one, though archived files know its name.
    Many fields: each is one that accounts may have.
    """

    state: str
    kind: str
    key: Any
    value: Any
    form: Annotated[str, Named("kept")] = ""
    windows: tuple[Any, ...] = ()
    contents: str = ""
    measures: tuple[tuple[str, str, tuple[Any, ...], int], ...] = ()
    merges: bool = False
    columns: tuple[tuple[str, Any], ...] = ()
    primary_key: tuple[str, ...] = ()
    archived_by: str | None = None
    born: tuple[str, ...] = ()

    @property
    def is_table(self) -> bool:
        """Whether SQL can ask for it."""
        return self.form in (KEYED_ROWS, COUNTED_ROWS)

    @property
    def key_names(self) -> tuple[str, ...]:
        """Of a table, the columns that are its key, in their order there; of another state nothing."""
        return tuple(name for name, _ in self.columns) if self.form == COUNTED_ROWS else self.primary_key

    @property
    def key_type(self) -> TypeInformation | None:
        """The declared type of keys; None: they have none, and are found by their canonical form."""
        return None if self.key == "PICKLED" else type_from(self.key, f"the key of '{self.state}'")

    @property
    def pane_windows(self) -> PaneWindows:
        """The windows of panes and of numbers."""
        return PaneWindows(*self.windows)

    def typed_measures(self) -> tuple[BoundAggregate, ...]:
        """The ready aggregates, as far as results need them; those of untyped streams have no types."""
        return tuple(
            BoundAggregate(
                name, kind, tuple(AggregateArgument(None if t is None else type_from(t, name), 0) for t in types), n
            )
            for name, kind, types, n in self.measures
        )
