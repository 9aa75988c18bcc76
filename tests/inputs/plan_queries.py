"""Random queries as text, over one table, and random rows for it: inputs for the plan passes."""

from __future__ import annotations

import datetime
from collections.abc import Callable

from hypothesis import strategies as st

TABLES = """
CREATE TABLE t (
  a INT, b BIGINT NOT NULL, s STRING, l ARRAY<INT>, r ROW<x INT, y STRING>, ts TIMESTAMP(3),
  d AS a + 1,
  WATERMARK FOR ts AS ts - INTERVAL '1' SECOND
) WITH ('connector' = 'datagen');
CREATE VIEW v AS SELECT a AS a1, UPPER(s) AS s1, b + 1 AS b1, ts AS ts1 FROM t WHERE b > 1;
"""
Columns = list[tuple[str, str]]  # name, and its kind: int, text, time, array, row
TABLE: Columns = [
    ("a", "int"), ("b", "int"), ("s", "text"), ("l", "array"), ("r", "row"), ("ts", "rowtime"), ("d", "int"),
]  # fmt: skip
VIEW: Columns = [("a1", "int"), ("s1", "text"), ("b1", "int"), ("ts1", "rowtime")]

WINDOWS = (
    "TUMBLE({}, INTERVAL '4' SECOND)",
    "HOP({}, INTERVAL '2' SECOND, INTERVAL '6' SECOND)",
    "CUMULATE({}, INTERVAL '3' SECOND, INTERVAL '9' SECOND)",
)
small = st.integers(-3, 6)
moments = st.integers(0, 30).map(lambda s: datetime.datetime(2026, 1, 1) + datetime.timedelta(seconds=s))
texts = st.sampled_from(["", "a", "B", "ab"])
rows = st.lists(
    st.tuples(
        st.none() | small,
        small,
        st.none() | texts,
        st.none() | st.lists(st.none() | small, max_size=3),
        st.none() | st.fixed_dictionaries({"x": st.none() | small, "y": st.none() | texts}),
        moments,
    ),
    max_size=12,
)
Draw = Callable[[st.SearchStrategy], object]


def ints(draw: st.DrawFn, columns: Columns, depth: int = 2) -> str:
    names = [name for name, kind in columns if kind == "int"]
    names += [f"{name}.x" for name, kind in columns if kind == "row"]
    shapes = ["literal", *(["column"] * 3 if names else []), *(["sum", "case", "length"] if depth else [])]
    shape = draw(st.sampled_from(shapes))
    if shape == "column":
        return draw(st.sampled_from(names))
    if shape == "sum":
        sign = draw(st.sampled_from("+-*"))
        return f"({ints(draw, columns, depth - 1)} {sign} {ints(draw, columns, depth - 1)})"
    if shape == "case":
        parts = [conditions(draw, columns, depth - 1), ints(draw, columns, depth - 1), ints(draw, columns, depth - 1)]
        return "CASE WHEN {} THEN {} ELSE {} END".format(*parts)
    if shape == "length":
        return f"CHAR_LENGTH({words(draw, columns, depth - 1)})"
    return str(draw(st.integers(0, 5)))


def words(draw: st.DrawFn, columns: Columns, depth: int = 1) -> str:
    names = [name for name, kind in columns if kind == "text"]
    names += [f"{name}.y" for name, kind in columns if kind == "row"]
    shape = draw(
        st.sampled_from(["literal", *(["column"] * 3 if names else []), *(["upper", "joined"] if depth else [])])
    )
    if shape == "column":
        return draw(st.sampled_from(names))
    if shape == "upper":
        return f"UPPER({words(draw, columns, depth - 1)})"
    if shape == "joined":
        return f"({words(draw, columns, depth - 1)} || {words(draw, columns, depth - 1)})"
    return "'" + draw(texts) + "'"


def conditions(draw: st.DrawFn, columns: Columns, depth: int = 2) -> str:
    shape = draw(st.sampled_from(["numbers", "texts", "null", *(["and", "or", "not"] if depth else [])]))
    if shape in ("and", "or"):
        return f"({conditions(draw, columns, depth - 1)} {shape.upper()} {conditions(draw, columns, depth - 1)})"
    if shape == "not":
        return f"NOT ({conditions(draw, columns, depth - 1)})"
    if shape == "texts":
        return f"{words(draw, columns)} = {words(draw, columns)}"
    if shape == "null":
        return f"{ints(draw, columns, 1)} IS NOT NULL"
    sign = draw(st.sampled_from(["=", "<", ">=", "<>"]))
    return f"{ints(draw, columns, 1)} {sign} {ints(draw, columns, 1)}"


def sources(draw: st.DrawFn, depth: int) -> tuple[str, Columns]:
    shape = draw(st.sampled_from(["t", "v", *(["query", "union", "window", "unnest"] * 2 if depth else [])]))
    if shape == "t":
        return "t", TABLE
    if shape == "v":
        return "v", VIEW
    if shape == "unnest":
        return "t CROSS JOIN UNNEST(l) AS u (el)", [*TABLE, ("el", "int")]
    inner, columns = queries(draw, depth - 1)
    if shape == "union":
        plain = [(name, "time" if kind in ("rowtime", "start", "end") else kind) for name, kind in columns]
        return f"({inner} UNION ALL {inner})", plain
    rowtimes = [name for name, kind in columns if kind == "rowtime"]
    if shape == "window" and rowtimes and not {"window_start", "window_end"} & {name for name, _ in columns}:
        window = draw(st.sampled_from(WINDOWS))
        kept = [(name, "time" if kind == "rowtime" else kind) for name, kind in columns]
        added = [("window_start", "start"), ("window_end", "end"), ("window_time", "rowtime")]
        return f"TABLE({window.format(f'({inner}), DESCRIPTOR({rowtimes[0]})')})", kept + added
    return f"({inner})", columns


def queries(draw: st.DrawFn, depth: int = 2) -> tuple[str, Columns]:
    source, columns = sources(draw, depth)
    where = f" WHERE {conditions(draw, columns)}" if draw(st.booleans()) else ""
    starts = [name for name, kind in columns if kind == "start"]
    ends = [name for name, kind in columns if kind == "end"]
    if starts and ends and draw(st.integers(0, 3)):
        return grouped(draw, source, where, columns, starts[0], ends[0])
    items: list[tuple[str, str]] = []
    for _ in range(draw(st.integers(1, 3))):
        shape = draw(st.sampled_from(["column", "column", "int", "text"]))
        if shape == "column":
            name, kind = draw(st.sampled_from(columns))
            items.append((name, kind))
        elif shape == "int":
            items.append((ints(draw, columns), "int"))
        else:
            items.append((words(draw, columns), "text"))
    for name, kind in columns:
        if kind in ("start", "end", "rowtime") and draw(st.booleans()):
            items.append((name, kind))
    named = [
        (text, f"c{depth}{i}" if kind not in ("start", "end") else text, kind) for i, (text, kind) in enumerate(items)
    ]
    unique = list({name: (text, name, kind) for text, name, kind in named}.values())
    select = ", ".join(f"{text} AS {name}" for text, name, _ in unique)
    return f"SELECT {select} FROM {source}{where}", [(name, kind) for _, name, kind in unique]


def grouped(draw: st.DrawFn, source: str, where: str, columns: Columns, start: str, end: str) -> tuple[str, Columns]:
    """An aggregation in windows."""
    keys = [name for name, kind in columns if kind in ("int", "text")]
    chosen = draw(st.lists(st.sampled_from(keys), max_size=2, unique=True)) if keys else []
    calls = []
    for i in range(draw(st.integers(0, 2))):
        argument = ints(draw, columns, 1)
        call = draw(st.sampled_from(["COUNT(*)", "SUM({})", "MAX({})", "COUNT(DISTINCT {})", "MIN({})"]))
        condition = f" FILTER (WHERE {conditions(draw, columns, 0)})" if draw(st.booleans()) else ""
        calls.append(f"{call.format(argument)}{condition} AS g{i}")
    having = " HAVING COUNT(*) > 1" if draw(st.booleans()) else ""
    kinds = dict(columns)
    names = [start, end, *chosen]
    select = ", ".join([*names, *calls])
    result = [(name, kinds[name]) for name in names] + [(call.rsplit(" ", 1)[1], "int") for call in calls]
    return f"SELECT {select} FROM {source}{where} GROUP BY {', '.join(names)}{having}", result


@st.composite
def random_queries(draw: st.DrawFn) -> str:
    """A query over the tables above."""
    return queries(draw)[0]
