"""`millstream state`: prints a job's state, read by `millstream.state_reader`.

Tables in a terminal, aligned text in a pipe, one JSON object per line or CSV for machines. Exit code 2 if the requested
state does not exist, 1 if it is damaged.
"""

from __future__ import annotations

import ast
import csv
import datetime as dt
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict
from itertools import islice
from typing import Any, TextIO

import pyarrow as pa

from millstream import state_reader
from millstream.checkpoint.leases import system_ms
from millstream.cli.refusals import refuse
from millstream.cli.tables import print_table
from millstream.errors import MillstreamError, ProgramError, StoreDamagedError
from millstream.jobs.console.amounts import bytes_text, count_text, span_text
from millstream.state_reader import Snapshot, StateRows
from millstream.state_reader.forms import decoder_of

__all__ = ["show_catalog", "show_difference", "show_rows"]

_ROWS_SHOWN = 100
_CELL_CHARACTERS_MAX = 120


class _NotShown:
    """The placeholder of a pickle, which is not unpickled for display."""

    def __init__(self, data: bytes) -> None:
        self._bytes = len(data)

    def __str__(self) -> str:
        return f"(pickle of {bytes_text(self._bytes)}, not shown)"


def show_catalog(
    name: str, *, as_json: bool, read_only: bool = False, screen: TextIO | None = None, now_ms: int | None = None
) -> int:
    """Print operators and states; returns the exit code."""
    now_ms = now_ms or system_ms()
    return _explained(lambda: _catalog(name, as_json, read_only, screen or sys.stdout, now_ms))


def _catalog(name: str, as_json: bool, read_only: bool, screen: TextIO, now_ms: int) -> None:
    with state_reader.open(name, read_only=read_only).at() as snapshot:
        states = snapshot.states()
        if as_json:
            for state in states:
                print(json.dumps(asdict(state)), file=screen)
            return
        manifest = snapshot.manifest
        ago = span_text(max(0, now_ms - manifest.created_ms))
        print(f"job '{manifest.job}', epoch {manifest.epoch}, {manifest.status}, committed {ago} ago", file=screen)
        if not states:
            print("it has no state", file=screen)
            return
        headings = ["operator", "uid", "state", "kind", "key", "value", "rows", "size", "files"]
        cells = [
            [
                state.operator,
                state.uid,
                state.name,
                state.kind,
                state.key_type or "-",
                state.value_type or "-",
                count_text(state.rows),
                bytes_text(state.bytes),
                count_text(state.segments),
            ]
            for state in states
        ]
        right = ("rows", "size", "files")
        texts = [heading for heading in headings if heading not in right]
        print_table(headings, cells, screen, right=right, texts=texts, styles={"state": "bold"})


def show_rows(
    name: str,
    operator: str,
    state: str,
    *,
    key: str | None = None,
    limit: int | None = None,
    as_json: bool = False,
    as_csv: bool = False,
    read_only: bool = False,
    screen: TextIO | None = None,
) -> int:
    """Print the rows of a state; returns the exit code."""

    def show() -> None:
        with state_reader.open(name, read_only=read_only).at() as snapshot:
            rows = snapshot.read(operator, state, unpickle=_NotShown)
            if key is not None:
                if "key" not in rows.schema.names:
                    raise ProgramError(f"state '{state}' of '{operator}' has no keys. Remove --key.")
                typed = key_from_text(rows.schema.field("key"), key)
                rows = snapshot.read(operator, state, key=typed, unpickle=_NotShown)
            _print_rows(rows, limit, as_json, as_csv, screen or sys.stdout)

    return _explained(show)


def show_difference(
    before: str,
    after: str,
    operator: str | None,
    state: str | None,
    *,
    limit: int | None = None,
    as_json: bool = False,
    read_only: bool = False,
    screen: TextIO | None = None,
) -> int:
    """Print the differences; returns the exit code."""

    def show() -> None:
        out = screen or sys.stdout
        with ExitStack() as stack:
            snapshots = (state_reader.open(name, read_only=read_only).at() for name in (before, after))
            old, new = map(stack.enter_context, snapshots)
            if operator is not None and state is not None:
                _print_rows(old.diff(new, operator, state, unpickle=_NotShown), limit, as_json, False, out)
                return
            changes = list(_counted(old, new, operator))
            if as_json:
                for change in changes:
                    print(json.dumps(change), file=out)
                return
            if not any(change[kind] for change in changes for kind in _CHANGES):
                print("no state has changed", file=out)
                return
            headings = ["operator", "uid", "state", *_CHANGES]
            cells = [
                [change["operator"], change["uid"], change["state"], *(count_text(change[c]) for c in _CHANGES)]
                for change in changes
            ]
            texts = [heading for heading in headings if heading not in _CHANGES]
            print_table(headings, cells, out, right=_CHANGES, texts=texts, styles={"state": "bold"})

    return _explained(show)


_CHANGES = ("added", "removed", "changed")


def _counted(old: Snapshot, new: Snapshot, operator: str | None) -> Iterator[dict[str, Any]]:
    """The number of changed rows, for every state that either snapshot has."""
    infos = {(info.uid, info.name): info for snapshot in (old, new) for info in snapshot.states()}
    if operator is not None:
        infos = {place: info for place, info in infos.items() if operator in (info.uid, info.operator)}
        if not infos:
            new.states(operator)  # raises with the existing operators
    for uid, name in sorted(infos):
        counts = old.diff(new, uid, name).counts()
        yield {"operator": infos[uid, name].operator, "uid": uid, "state": name, **counts}


# --- rows -----------------------------------------------------------------------------------------------------------


def _print_rows(rows: StateRows, limit: int | None, as_json: bool, as_csv: bool, screen: TextIO) -> None:
    shown_max = limit if limit is not None else 0 if as_json or as_csv else _ROWS_SHOWN
    remaining = iter(rows)
    first_rows: Iterable[dict[str, Any]] = islice(remaining, shown_max) if shown_max else remaining
    names = rows.schema.names
    if as_json:
        for row in first_rows:
            print(json.dumps(_plain(row)), file=screen)
    elif as_csv:
        writer = csv.writer(screen, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([_cell(row[name], "") for name in names] for row in first_rows)
    else:
        cells = [[_cut(_cell(row[name], "-")) for name in names] for row in first_rows]
        numbers = [field.name for field in rows.schema if pa.types.is_integer(field.type) and field.name != "key"]
        texts = [name for name in names if name not in numbers]
        print_table(names, cells, screen, right=numbers, texts=texts, styles={"key": "bold", "change": "bold"})
    if shown_max and next(remaining, None) is not None:
        print(f"({shown_max:,} rows shown; there are more: --limit 0 shows all)", file=sys.stderr)


def _cell(value: Any, absent: str) -> str:
    if value is None:
        return absent
    if isinstance(value, (dict, list)):
        return json.dumps(_plain(value), ensure_ascii=False)
    return value.hex() if isinstance(value, bytes) else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= _CELL_CHARACTERS_MAX else text[: _CELL_CHARACTERS_MAX - 1] + "…"


def _plain(value: Any) -> Any:
    """The JSON form of a value: values without one become text, bytes become hexadecimal."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value.hex() if isinstance(value, bytes) else str(value)


def key_from_text(field: pa.Field, text: str) -> Any:
    """The typed key of a command-line argument, by the type of the key column.

    >>> key_from_text(pa.field("key", pa.int64()), "7"), key_from_text(pa.field("key", pa.string()), "7")
    (7, '7')
    """
    t, kind = pa.types, field.type
    try:
        if decoder_of(field) is not None:  # mixed types: anything other than a Python literal is a string
            try:
                return ast.literal_eval(text)
            except (ValueError, SyntaxError):
                return text
        if t.is_string(kind):
            return text
        if t.is_integer(kind):
            return int(text)
        if t.is_floating(kind):
            return float(text)
        if t.is_boolean(kind):
            return {"true": True, "false": False}[text.lower()]
        if t.is_binary(kind):
            return text.encode()
        if t.is_timestamp(kind):
            return dt.datetime.fromisoformat(text)
        if t.is_date(kind):
            return dt.date.fromisoformat(text)
        return json.loads(text)
    except (ValueError, KeyError) as error:
        raise ProgramError(f"--key {text!r} is not of type {kind}, the key type of this state. ({error})") from error


def _explained(show: Callable[[], None]) -> int:
    try:
        show()
    except StoreDamagedError as error:
        return refuse(error, 1)
    except MillstreamError as error:
        return refuse(error)
    except BrokenPipeError:
        return 0
    return 0
