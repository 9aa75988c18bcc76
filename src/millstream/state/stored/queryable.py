"""Describes the states that can be queried by name; written by tasks, so that readers do not need the program.

An operator's account has `queryable` next to the versions of its tables: for each name the state, its kind, and the
declared types of key and value. For windows it also records the form of their contents, the window parameters, and the
result types of built-in aggregates. User functions are never stored. Manifests of older versions lack this field.
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
"""The forms of stored windows: sums of panes, a value by window number, or rows by key and window."""
KEYED_ROWS, COUNTED_ROWS = "rows by key", "rows with counts"
"""The forms of stored tables: rows by primary key, or each row as a key with its multiplicity."""

WINDOW_STATES = {PANES: table_names.PANES, NUMBERED: WINDOW_VALUES, PLACES: WINDOW_CONTENTS}


@dataclass(frozen=True)
class Queryable:
    """A state that can be queried under its own name.

    `kind` is value, list, map, reducing, aggregating or window. `key` and `value` are written types; the value type of
    an aggregating state and of a window is the type of the accumulator (or record). For windows, `form` is how they are
    stored, `windows` has the fields of a `PaneWindows`, `contents` is reduced, aggregated, ready, records or timed
    records, and `measures` lists the built-in aggregates: name, kind, argument types, n. For tables, `form` is how they
    are stored; `columns` are their names and written types, and `primary_key` names the key columns. `archived_by` is
    the column that determines when rows are archived: "" for processing time, None without an archive. For a table with
    an archive, `births` holds the time when each column was added: "" if it always existed. A column that was dropped
    and added again is a new column, even though archived files know its name. Many fields: each corresponds to a field
    of accounts.
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
    births: Annotated[tuple[str, ...], Named("born")] = ()

    @property
    def is_table(self) -> bool:
        """Whether SQL can query it."""
        return self.form in (KEYED_ROWS, COUNTED_ROWS)

    @property
    def key_names(self) -> tuple[str, ...]:
        """The primary key columns of a table in column order; empty for other states."""
        return tuple(name for name, _ in self.columns) if self.form == COUNTED_ROWS else self.primary_key

    @property
    def key_type(self) -> TypeInformation | None:
        """The declared type of keys; None if they have none and are looked up by their canonical form."""
        return None if self.key == "PICKLED" else type_from(self.key, f"the key of '{self.state}'")

    @property
    def pane_windows(self) -> PaneWindows:
        """The window parameters of pane windows and numbered windows."""
        return PaneWindows(*self.windows)

    def typed_measures(self) -> tuple[BoundAggregate, ...]:
        """The built-in aggregates, with the attributes that results need; arguments of untyped streams have no
        types."""
        return tuple(
            BoundAggregate(
                name, kind, tuple(AggregateArgument(None if t is None else type_from(t, name), 0) for t in types), n
            )
            for name, kind, types, n in self.measures
        )
