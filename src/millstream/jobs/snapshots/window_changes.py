"""Compares the windows of a program with the stored ones of a manifest, before anything runs.

Windows are stored in the form that is fastest for the program: panes, values by window number, rows by key and window,
or rows of a join. Another trigger, evictor or function may need another form, and a number denotes another window if
size, slide or offset differ. None of this changes a type, so no other check would detect it: open windows would be lost
silently, or counted as other windows. So a change with this effect is rejected as long as there are open windows, with
advice.
"""

from __future__ import annotations

from millstream.checkpoint.manifest import Manifest
from millstream.errors import StateSchemaError
from millstream.graph.nodes import Node, Operation, Window
from millstream.plan.operations import FoldedWindow, PaneAggregate, WindowJoin
from millstream.plan.stages import Plan
from millstream.state.segments.open_segments import OpenSegments
from millstream.state.stored.accounts import OperatorAccount, accounts_of
from millstream.state.stored.table_names import JOIN_ROWS, PANES, WINDOW_CONTENTS, WINDOW_VALUES
from millstream.state.windows.pane_windows import PaneWindows
from millstream.state_reader.catalog import StoredState, states_of
from millstream.state_reader.table_source import layout_of, view_of
from millstream.storage.store import Store

__all__ = ["check_windows"]

_FORMS = {
    PANES: "ready aggregates by pane",
    WINDOW_VALUES: "one value by the number of a window",
    WINDOW_CONTENTS: "windows one by one",
    JOIN_ROWS: "rows of a join in columns",
}


def check_windows(manifest: Manifest, store: Store, plan: Plan, name: str) -> None:
    """Raises StateSchemaError for windows that could not continue unchanged; `name`: the manifest's name in errors."""
    stored: dict[str, list[StoredState]] = {}
    accounts = accounts_of(manifest)
    for state in states_of(manifest):
        if _form_of(state) is not None:
            stored.setdefault(state.uid, []).append(state)
    for node in plan.nodes():
        wanted = _wanted_form(node.operation)
        if wanted is None:
            continue
        for state in stored.get(node.uid or "", ()):
            change = _change(state, wanted, node.operation, _is_by_clock(accounts[state.uid]))
            if change is not None and _has_rows(state, store):
                raise StateSchemaError(_refusal(node, name, change))


def _form_of(state: StoredState) -> str | None:
    if state.scope != "keyed" or not state.refs:
        return None
    form = state.kind if state.kind == JOIN_ROWS else state.name
    return form if form in _FORMS else None


def _wanted_form(operation: Operation) -> str | None:
    """The form in which the windows of an operation are stored; None if it has none."""
    if isinstance(operation, FoldedWindow):
        return WINDOW_VALUES
    if isinstance(operation, Window):
        return WINDOW_CONTENTS
    if isinstance(operation, PaneAggregate):
        return PANES
    return JOIN_ROWS if isinstance(operation, WindowJoin) else None


def _is_by_clock(account: OperatorAccount) -> bool | None:
    clocks = [subtask.by_clock for subtask in account.subtasks.values() if subtask.by_clock is not None]
    return clocks[0] if clocks else None


def _change(state: StoredState, wanted: str, operation: Operation, by_clock: bool | None) -> str | None:
    """The difference from the stored windows. Operators themselves check that panes and rows of joins fit their
    windows."""
    form = _form_of(state)
    assert form is not None
    if form != wanted:
        return f"are stored as {_FORMS[form]}, and would now be stored as {_FORMS[wanted]}"
    if isinstance(operation, FoldedWindow) and state.windows_ms not in (None, operation.panes.lengths_ms):
        before, now = (_lengths_text(*lengths) for lengths in (state.windows_ms or (), operation.panes.lengths_ms))
        return f"are {before}, and would now be {now}"
    windows = _windows_of(operation)
    if windows is not None and by_clock not in (None, not windows.is_event_time):
        before, now = ("processing", "event") if by_clock else ("event", "processing")
        return f"are of {before} time, and would now be of {now} time"
    return None


def _windows_of(operation: Operation) -> PaneWindows | None:
    """The windows of an operation that computes them arithmetically."""
    if isinstance(operation, FoldedWindow):
        return operation.panes
    return operation.windows if isinstance(operation, PaneAggregate | WindowJoin) else None


def _lengths_text(size_ms: int, slide_ms: int, offset_ms: int, step_ms: int | None) -> str:
    """
    >>> _lengths_text(60, 20, 5, None)
    'of 60 ms every 20 ms from 5 ms on'
    """
    step = "" if step_ms is None else f", growing by {step_ms} ms"
    return f"of {size_ms} ms every {slide_ms} ms from {offset_ms} ms on{step}"


def _has_rows(state: StoredState, store: Store) -> bool:
    segments = OpenSegments(store, maps=False, is_foreign=True)
    return any(block.num_rows for block in view_of(segments, state, layout_of(segments, state)).scan())


def _refusal(node: Node, name: str, change: str) -> str:
    return (
        f"{name} has open windows of '{node.name}' (uid {node.uid}), which {change}: continuing would lose them, or "
        "count them as others. Nothing was changed. Restore the size, trigger, evictor and function of the windows; "
        "or set another uid, with which they begin empty, and drop the open ones with "
        "--allow-non-restored-state"
    )
