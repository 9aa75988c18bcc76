"""Random views over timed tables, and their contents after every epoch: time joins, windows, sessions, OVER.

Each is computed by its operator's slow reference, and has the columns of a changing table (two numbers, a text and a
real), so that random queries run over it as over any other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from timed_tables import TimedTable

from millstream.graph.table_nodes import OrderKey
from millstream.records.watermarks import MAX_WATERMARK, MIN_WATERMARK
from millstream.runtime.tables.references.ranks import first_rows
from millstream.runtime.tables.references.sessions import SessionTable
from millstream.runtime.tables.references.time_joins import (
    JoinEpoch,
    TimedRow,
    interval_pairs,
    temporal_pairs,
    window_pairs,
)
from millstream.runtime.tables.references.windows import windows_of
from millstream.state.windows.pane_windows import PaneWindows

__all__ = ["JOINS", "LATEST", "TimedView", "epochs_of", "in_time", "in_windows", "random_view"]

Tables = Mapping[str, TimedTable]
Given = list[tuple[int, tuple[Any, ...]]]
"""Rows, each with the number of the epoch that gives it."""

LATEST = (
    "SELECT k, v, t, ts FROM (SELECT *, ROW_NUMBER() OVER (PARTITION BY k ORDER BY ts DESC) AS n FROM u) WHERE n = 1"
)
JOINS = {"INNER": "JOIN", "LEFT": "LEFT JOIN", "RIGHT": "RIGHT JOIN", "FULL": "FULL JOIN"}
PAIR = "{0}.v AS k, {1}.v AS v, COALESCE({0}.k, {1}.k) AS s, CAST({1}.t - {0}.t AS DOUBLE) AS x"
GAP_MS = 700
WINDOWS = {
    "TUMBLE({}, INTERVAL '1' SECOND)": PaneWindows(1_000, 1_000),
    "HOP({}, INTERVAL '0.5' SECOND, INTERVAL '1' SECOND)": PaneWindows(1_000, 500),
    "CUMULATE({}, INTERVAL '0.5' SECOND, INTERVAL '1.5' SECOND)": PaneWindows(1_500, 500, step_ms=500),
}
AGGREGATES = "COUNT(*) AS k, SUM(v) AS v, k AS s, CAST(MAX(t) AS DOUBLE) AS x"
WHERE: Sequence[tuple[str, Callable[[Any], bool]]] = (
    ("", lambda row: True),
    ("", lambda row: True),
    (" WHERE v > 1", lambda row: row[1] is not None and row[1] > 1),
)
"""Which rows of a window are aggregated: those that are left out are in their windows all the same."""


@dataclass(frozen=True)
class TimedView:
    """A view. `takes_late`: the reference defines the handling of late rows."""

    query: str
    contents: Callable[[Tables], Given]
    takes_late: bool = True


def random_view(random: Random) -> TimedView:
    """A random view."""
    return random.choice((_interval_join, _window_join, _temporal_join, _windows, _window_ranks, _sessions, _over))(
        random
    )


def _is_near(left: Any, right: Any) -> bool:
    return left[1] is not None and right[1] is not None and left[1] <= right[1] + 2


def _pair(left: Any, right: Any) -> tuple[Any, ...]:
    left, right = left or (None, None, None), right or (None, None, None)
    distance = None if None in (left[2], right[2]) else float(right[2] - left[2])
    return left[1], right[1], right[0] if left[0] is None else left[0], distance


def _interval_join(random: Random) -> TimedView:
    kind, (lower, upper) = random.choice(list(JOINS)), random.choice(((-1_000, 500), (0, 0), (200, 900), (-3_000, -1)))
    query = (
        f"SELECT {PAIR.format('t', 'u')} FROM t {JOINS[kind]} u ON t.k = u.k AND t.v <= u.v + 2 "
        f"AND u.ts >= t.ts + INTERVAL '{lower / 1_000:.3f}' SECOND "
        f"AND u.ts <= t.ts + INTERVAL '{upper / 1_000:.3f}' SECOND"
    )

    def contents(tables: Tables) -> Given:
        epochs = epochs_of(tables, lambda row: [TimedRow(row[0], row[2], row)])
        return [(at, _pair(*rows)) for at, *rows in interval_pairs(epochs, kind, lower, upper, _is_near)]

    return TimedView(query, contents)


def _window_join(random: Random) -> TimedView:
    kind, shape = random.choice([*JOINS, "SEMI", "ANTI"]), random.choice(list(WINDOWS)[:2])
    left, right = (f"(SELECT * FROM TABLE({shape.format(f'TABLE {name}, DESCRIPTOR(ts)')}))" for name in ("t", "u"))
    same = "l.k = r.k AND l.window_start = r.window_start AND l.window_end = r.window_end AND l.v <= r.v + 2"
    if kind in JOINS:
        query = f"SELECT {PAIR.format('l', 'r')} FROM {left} l {JOINS[kind]} {right} r ON {same}"
    else:
        word = "EXISTS" if kind == "SEMI" else "NOT EXISTS"
        query = (
            "SELECT l.v AS k, CAST(NULL AS BIGINT) AS v, l.k AS s, CAST(NULL AS DOUBLE) AS x "
            f"FROM {left} l WHERE {word} (SELECT 1 FROM {right} r WHERE {same})"
        )

    def contents(tables: Tables) -> Given:
        epochs = epochs_of(tables, lambda row: _joinable(in_windows(row, WINDOWS[shape])))
        return [(at, _pair(*rows)) for at, *rows in window_pairs(epochs, kind, _is_near)]

    return TimedView(query, contents)


def _joinable(rows: Sequence[TimedRow]) -> list[TimedRow]:
    """Rows with the join key; the window is identified by its last timestamp."""
    return [replace(row, key=row.contents[0]) for row in rows]


def _temporal_join(random: Random) -> TimedView:
    kind = random.choice(("INNER", "LEFT"))
    query = (
        f"SELECT {PAIR.format('t', 'r')} FROM t {JOINS[kind]} latest FOR SYSTEM_TIME AS OF t.ts AS r "
        "ON t.k = r.k AND t.v <= r.v + 2"
    )

    def contents(tables: Tables) -> Given:
        epochs = epochs_of(tables, lambda row: [TimedRow(row[0], row[2], row)])
        return [(at, _pair(*rows)) for at, *rows in temporal_pairs(epochs, kind, _is_near)]

    return TimedView(query, contents, takes_late=False)


def _windows(random: Random) -> TimedView:
    shape, (where, is_taken) = random.choice(list(WINDOWS)), random.choice(WHERE)
    table = shape.format("TABLE t, DESCRIPTOR(ts)")
    query = f"SELECT {AGGREGATES} FROM TABLE({table}){where} GROUP BY k, window_start, window_end"

    def contents(tables: Tables) -> Given:
        results: Given = []
        for number, due in in_time(tables["t"], lambda row: in_windows(row, WINDOWS[shape])):
            groups: dict[Any, list[Any]] = {}
            for each in due:
                if is_taken(each.contents):
                    groups.setdefault(each.key, []).append(each.contents)
            results += [(number, _aggregated(rows)) for rows in groups.values()]
        return results

    return TimedView(query, contents)


def _window_ranks(random: Random) -> TimedView:
    shape, last = random.choice(list(WINDOWS)), random.choice((1, 2, 5))
    numbered = (
        "SELECT *, ROW_NUMBER() OVER (PARTITION BY k, window_start, window_end ORDER BY v DESC NULLS LAST, t) AS n "
        f"FROM TABLE({shape.format('TABLE t, DESCRIPTOR(ts)')})"
    )
    query = f"SELECT n AS k, v, k AS s, CAST(t AS DOUBLE) AS x FROM ({numbered}) WHERE n <= {last}"
    order = (OrderKey(1, descending=True, nulls_first=False), OrderKey(2))

    def contents(tables: Tables) -> Given:
        results: Given = []
        for number, due in in_time(tables["t"], lambda row: in_windows(row, WINDOWS[shape])):
            ranked = first_rows("ROW_NUMBER", [(*row.contents, *row.key[1:]) for row in due], (0, 3, 4), order, 1, last)
            results += [(number, (n, v, k, float(t))) for k, v, t, *_, n in ranked]
        return results

    return TimedView(query, contents)


def _sessions(random: Random) -> TimedView:
    table = f"SESSION(TABLE t PARTITION BY k, DESCRIPTOR(ts), INTERVAL '{GAP_MS / 1_000}' SECOND)"
    where, is_taken = random.choice(WHERE)
    query = f"SELECT {AGGREGATES} FROM TABLE({table}){where} GROUP BY k, window_start, window_end"

    def contents(tables: Tables) -> Given:
        sessions, before, results = SessionTable(GAP_MS), MIN_WATERMARK, Given()
        for number, (rows, watermark) in enumerate(_single_input(tables["t"])):
            over = sessions.run([(row[0], row[2], row) for row in rows], before, watermark)
            taken = [[row for row in session.rows if is_taken(row)] for session in over]
            results += [(number, _aggregated(session_rows)) for session_rows in taken if session_rows]
            before = watermark
        return results

    return TimedView(query, contents)


def _over(random: Random) -> TimedView:
    query = (
        "SELECT COUNT(*) OVER w AS k, SUM(v) OVER w AS v, k AS s, CAST(t AS DOUBLE) AS x "
        "FROM t WINDOW w AS (PARTITION BY k ORDER BY ts)"
    )

    def contents(tables: Tables) -> Given:
        told: list[Any] = []
        results: Given = []
        for number, due in in_time(tables["t"], lambda row: [TimedRow(row[0], row[2], row)]):
            told += [each.contents for each in due]
            for key, _, time in (each.contents for each in due):
                count, total, *_ = _aggregated([row for row in told if row[0] == key and row[2] <= time])
                results.append((number, (count, total, key, float(time))))
        return results

    return TimedView(query, contents)


def _aggregated(rows: Sequence[Any]) -> tuple[Any, ...]:
    """Count, sum, key and last timestamp of rows with one key."""
    values = [row[1] for row in rows if row[1] is not None]
    return len(rows), sum(values) if values else None, rows[0][0], float(max(row[2] for row in rows))


def in_windows(row: Any, windows: PaneWindows) -> list[TimedRow]:
    """A row in each of its windows, which is part of its key; its time is the window's last timestamp."""
    return [TimedRow((row[0], start, end), end - 1, row) for start, end in windows_of(row[2], windows)]


def _single_input(table: TimedTable) -> Iterator[tuple[list[Any], int]]:
    """The epochs of a table with their watermarks; the input ends with the last one."""
    watermark = MIN_WATERMARK
    for number, (rows, mark) in enumerate(table.epochs, 1):
        watermark = MAX_WATERMARK if number == len(table.epochs) else max(watermark, mark or 0)
        yield list(rows), watermark


def in_time(table: TimedTable, made: Callable[[Any], Sequence[TimedRow]]) -> Iterator[tuple[int, list[TimedRow]]]:
    """For every epoch the rows whose time the watermark has reached, mapped by `made`. Late ones are dropped."""
    waiting: list[TimedRow] = []
    before = MIN_WATERMARK
    for number, (rows, watermark) in enumerate(_single_input(table)):
        waiting += [each for row in rows for each in made(row) if each.time > before]
        yield number, [each for each in waiting if each.time <= watermark]
        waiting, before = [each for each in waiting if each.time > watermark], watermark


def epochs_of(tables: Mapping[str, TimedTable], made: Callable[[Any], Sequence[TimedRow]]) -> list[JoinEpoch]:
    """The epochs of both tables, the last of which ends the input; rows are mapped by `made`."""
    epochs, marks = [], [0, 0]
    for (lefts, first), (rights, second) in zip(tables["t"].epochs, tables["u"].epochs, strict=True):
        marks = [max(marks[0], first or 0), max(marks[1], second or 0)]
        made_rows = [[row for values in rows for row in made(values)] for rows in (lefts, rights)]
        epochs.append(JoinEpoch(made_rows[0], made_rows[1], min(marks)))
    return [*epochs[:-1], replace(epochs[-1], watermark=MAX_WATERMARK)]
