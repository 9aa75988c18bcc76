"""Random queries over changing tables, in the SQL that DuckDB and Millstream share.

A query grows from the inside out: joins, aggregates (FILTER, DISTINCT, HAVING, GROUPING SETS), Top-N, OVER, set
operations, IN, EXISTS and NOT IN over nullable columns, scalar subqueries, UNNEST, LATERAL and computed columns, nested
in one another. Every order is total up to equal rows, and sums are over values that doubles hold exactly (so no mean is
summed): each query has one right answer. Aggregates with several right answers (lists in arrival order) or rounded ones
(deviations) are outermost, and `comparable` normalises their values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

__all__ = ["Query", "random_query"]

NUMBER, TEXT, REAL, MEAN, LISTED, ROUNDED = "number", "text", "real", "mean", "listed", "rounded"
DIGITS = 6
EQUALITIES = ("=", "=", "=", "IS NOT DISTINCT FROM")
TABLE_COLUMNS = (("k", NUMBER), ("v", NUMBER), ("s", TEXT), ("x", REAL))


@dataclass(frozen=True)
class Query:
    """A query and the types of its columns, which are called c0, c1, …"""

    text: str
    types: tuple[str, ...]

    def columns(self, of: str = "", type_: str | None = None) -> list[str]:
        """The column names, qualified by table `of`."""
        prefix = f"{of}." if of else ""
        return [f"{prefix}c{at}" for at, each in enumerate(self.types) if type_ in (None, each)]

    def comparable(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        """A normalised row: lists without an order, some numbers rounded, so that equal results compare equal."""
        return tuple(_comparable(value, type_) for value, type_ in zip(row, self.types, strict=True))


def _comparable(value: Any, type_: str) -> Any:
    if value is None or type_ not in (LISTED, ROUNDED):
        return value
    if type_ == ROUNDED:
        return round(value, DIGITS)
    if isinstance(value, dict):  # a multiset: the number of occurrences of each
        value = [each for each, times in value.items() for _ in range(times)]
    return tuple(sorted(value.split(",") if isinstance(value, str) else value, key=lambda each: (each is None, each)))


def random_query(random: Random, tables: Sequence[str] = ("t", "u", "w")) -> Query:
    """A query over some of the tables."""
    grower = _Grower(random, tables)
    depth = random.choice((1, 1, 2, 2, 3))
    return grower.outermost_group(depth - 1) if random.random() < 0.12 else grower.query(depth)


class _Grower:
    def __init__(self, random: Random, tables: Sequence[str]) -> None:
        self._random, self._tables, self._names = random, tables, 0

    def _name(self) -> str:
        self._names += 1
        return f"q{self._names}"

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def query(self, depth: int) -> Query:
        """A query nested at most `depth` levels deep."""
        if depth <= 0:
            return self._table()
        grow = self._random.choice(
            (
                *(self._join, self._join, self._join, self._group, self._group, self._group),
                *(self._first_rows, self._first_rows, self._over, self._over, self._set, self._set),
                *(self._within, self._within, self._scalar, self._scalar),
                *(self._computed, self._unnested, self._lateral, self._limited),
            )
        )
        return grow(depth - 1)

    def outermost_group(self, depth: int) -> Query:
        """A GROUP BY with aggregates whose values must be normalised."""
        source, q = self.query(depth), self._name()
        keys = self._random.sample(source.columns(q), min(len(source.types), self._random.choice((1, 1, 2))))
        column = self._random.choice(source.columns(q))
        choices = [(f"{name}({column})", LISTED) for name in ("ARRAY_AGG", "COLLECT")]
        choices += [(f"LISTAGG({text})", LISTED) for text in source.columns(q, TEXT)]
        choices += [(f"LISTAGG(DISTINCT {text})", LISTED) for text in source.columns(q, TEXT)]
        for number in (*source.columns(q, NUMBER), *source.columns(q, REAL)):
            kinds = ("VAR_POP", "VAR_SAMP", "STDDEV_POP", "STDDEV_SAMP")
            choices += [(f"{name}(CAST({number} AS DOUBLE))", ROUNDED) for name in kinds]
        measures = [*self._random.sample(choices, min(2, len(choices))), self._aggregate_call(source, q)]
        listed = ", ".join(f"{text} AS c{at}" for at, text in enumerate([*keys, *(text for text, _ in measures)]))
        text = f"SELECT {listed} FROM ({source.text}) {q} GROUP BY {', '.join(keys)}"
        return Query(text, (*(self._type(source, key) for key in keys), *(type_ for _, type_ in measures)))

    @staticmethod
    def _type(source: Query, column: str) -> str:
        return source.types[int(column.rsplit("c", 1)[1])]

    def _table(self) -> Query:
        columns = list(TABLE_COLUMNS)
        if self._chance(0.5):
            self._random.shuffle(columns)
            columns = columns[: self._random.randrange(2, 5)]
        if not any(type_ == NUMBER for _, type_ in columns):
            columns[0] = ("k", NUMBER)
        listed = ", ".join(f"{name} AS c{at}" for at, (name, _) in enumerate(columns))
        where = self._random.choice(("", "", "", " WHERE v > -3", " WHERE k <> 1", " WHERE s IS NOT NULL OR x < 1"))
        return Query(f"SELECT {listed} FROM {self._random.choice(self._tables)}{where}", tuple(t for _, t in columns))

    def _pick(self, query: Query, of: str, type_: str) -> str | None:
        columns = query.columns(of, type_)
        return self._random.choice(columns) if columns else None

    def _compared(self, one: Query, a: str, other: Query, b: str, signs: Sequence[str]) -> str | None:
        """A comparison of columns of two queries that have a type in common."""
        shared = sorted(set(one.types) & set(other.types))
        if not shared:
            return None
        type_ = self._random.choice(shared)
        return f"{self._pick(one, a, type_)} {self._random.choice(signs)} {self._pick(other, b, type_)}"

    def _join(self, depth: int) -> Query:
        left, right = self.query(self._random.randrange(depth + 1)), self.query(depth)
        if self._chance(0.15):
            left = right  # planned once
        a, b = self._name(), self._name()
        terms = [self._compared(left, a, right, b, EQUALITIES)]
        if self._chance(0.3):
            terms.append(self._compared(left, a, right, b, EQUALITIES))
        if self._chance(0.4):
            terms.append(self._compared(left, a, right, b, ["<", ">=", "<>"]))
        if self._chance(0.2) and left.columns(a, NUMBER):
            terms.append(f"{self._pick(left, a, NUMBER)} > 0")
        kind = self._random.choice(("INNER", "LEFT", "RIGHT", "FULL"))
        condition = " AND ".join(term for term in terms if term is not None) or "1 = 1"
        columns = [*zip(left.columns(a), left.types, strict=True), *zip(right.columns(b), right.types, strict=True)]
        self._random.shuffle(columns)
        columns = columns[: self._random.randrange(2, 6)]
        listed = ", ".join(f"{column} AS c{at}" for at, (column, _) in enumerate(columns))
        text = f"SELECT {listed} FROM ({left.text}) {a} {kind} JOIN ({right.text}) {b} ON {condition}"
        return Query(text, tuple(type_ for _, type_ in columns))

    def _aggregate_call(self, source: Query, of: str) -> tuple[str, str]:
        number, any_column = self._pick(source, of, NUMBER), self._random.choice(source.columns(of))
        type_ = self._type(source, any_column)
        choices = [("COUNT(*)", NUMBER), (f"COUNT({any_column})", NUMBER), (f"COUNT(DISTINCT {any_column})", NUMBER)]
        choices += [(f"{name}({any_column})", type_) for name in ("MIN", "MAX")] * 2
        if number is not None:
            choices += [(f"SUM({number})", NUMBER)] * 2 + [(f"SUM(DISTINCT {number})", NUMBER)]
            choices += [(f"AVG(CAST({number} AS DOUBLE))", MEAN), (f"SUM(CAST({number} AS DECIMAL(20, 2)))", NUMBER)]
        if real := self._pick(source, of, REAL):
            for each in (real, f"DISTINCT {real}"):
                choices += [(f"SUM({each})", REAL), (f"AVG({each})", MEAN)]
        text, type_ = self._random.choice(choices)
        if self._chance(0.25):
            text += f" FILTER (WHERE {self._condition(source, of)})"
        return text, type_

    def _condition(self, source: Query, of: str) -> str:
        column = self._random.choice(source.columns(of))
        type_ = self._type(source, column)
        if type_ == TEXT:
            return self._random.choice((f"{column} <> 'a'", f"{column} IS NULL", f"{column} > 'a'"))
        return self._random.choice((f"{column} > 0", f"{column} IS NOT NULL", f"{column} <= 1"))

    def _group(self, depth: int) -> Query:
        source, q = self.query(depth), self._name()
        keys = self._random.sample(source.columns(q), min(len(source.types), self._random.choice((0, 1, 1, 2))))
        types = [self._type(source, key) for key in keys]
        measures = [self._aggregate_call(source, q) for _ in range(self._random.randrange(1, 4))]
        listed = ", ".join(f"{text} AS c{at}" for at, (text, _) in enumerate([*((key, "") for key in keys), *measures]))
        by, having = (f" GROUP BY {', '.join(keys)}" if keys else ""), ""
        if len(keys) == 2 and self._chance(0.4):
            sets = self._random.choice((f"ROLLUP ({', '.join(keys)})", f"CUBE ({', '.join(keys)})"))
            by = f" GROUP BY {self._random.choice((sets, f'GROUPING SETS (({keys[0]}), ({keys[1]}))'))}"
        if not keys or "ROLLUP" in by or "CUBE" in by:  # a batch emits a row for no input, a stream none
            having = " HAVING COUNT(*) > 0"
        elif self._chance(0.25):
            having = f" HAVING {self._random.choice(('COUNT(*) > 1', 'COUNT(*) < 3'))}"
        text = f"SELECT {listed} FROM ({source.text}) {q}{by}{having}"
        return Query(text, (*types, *(type_ for _, type_ in measures)))

    def _first_rows(self, depth: int) -> Query:
        source, q = self.query(depth), self._name()
        columns = source.columns(q)
        shuffled = self._random.sample(columns, len(columns))
        part = shuffled[: self._random.choice((0, 1, 1, 2))]
        order = self._order(columns)
        kind = self._random.choice(("ROW_NUMBER", "ROW_NUMBER", "RANK", "DENSE_RANK"))
        if kind != "ROW_NUMBER":
            order = order.split(", ", 1)[0]
        partition = f"PARTITION BY {', '.join(part)} " if part else ""
        listed = ", ".join(f"{column} AS c{at}" for at, column in enumerate(columns))
        inner = f"SELECT {listed}, {kind}() OVER ({partition}ORDER BY {order}) AS n FROM ({source.text}) {q}"
        bound = self._random.choice(("n <= 1", "n <= 2", "n = 1", "n < 4", "n BETWEEN 2 AND 3"))
        given = [f"c{at}" for at in range(len(columns))]
        if self._chance(0.5):
            given.append(f"n AS c{len(columns)}")
            return Query(
                f"SELECT {', '.join(given)} FROM ({inner}) {self._name()} WHERE {bound}", (*source.types, NUMBER)
            )
        return Query(f"SELECT {', '.join(given)} FROM ({inner}) {self._name()} WHERE {bound}", source.types)

    def _order(self, columns: Sequence[str]) -> str:
        """An order by all columns: only identical rows tie."""
        return ", ".join(
            f"{column} {self._random.choice(('ASC', 'DESC'))} NULLS {self._random.choice(('FIRST', 'LAST'))}"
            for column in self._random.sample(columns, len(columns))
        )

    def _limited(self, depth: int) -> Query:
        source, q = self.query(depth), self._name()
        columns = source.columns(q)
        listed = ", ".join(f"{column} AS c{at}" for at, column in enumerate(columns))
        first = self._random.choice(("LIMIT 1", "LIMIT 3", "LIMIT 2 OFFSET 1"))
        inner = f"SELECT {listed} FROM ({source.text}) {q} ORDER BY {self._order(columns)} {first}"
        return Query(f"SELECT * FROM ({inner}) {self._name()}", source.types)

    def _over(self, depth: int) -> Query:
        source, q = self.query(depth), self._name()
        columns = source.columns(q)
        partition = f"PARTITION BY {self._random.choice(columns)} " if self._chance(0.8) else ""
        frame = self._random.choice(("", " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW", " ROWS UNBOUNDED PRECEDING"))
        column, number, real = (
            self._random.choice(columns),
            self._pick(source, q, NUMBER),
            self._pick(source, q, REAL),
        )
        choices = [(f"{name}({column})", self._type(source, column)) for name in ("MIN", "MAX")]
        choices += [("COUNT(*)", NUMBER), (f"COUNT({column})", NUMBER)]
        choices += [(f"SUM({number})", NUMBER)] * 3 if number else []
        choices += [(f"SUM({real})", REAL), (f"AVG({real})", MEAN)] if real else []
        if not frame:
            choices += [(f"{name}()", NUMBER) for name in ("ROW_NUMBER", "RANK", "DENSE_RANK")]
            choices += [(f"{name}({column})", self._type(source, column)) for name in ("LAG", "LEAD")]
        if number:  # our LAG and LEAD differ from DuckDB's for NULLs
            choices += [(f"{name}_VALUE(COALESCE({number}, -99))", NUMBER) for name in ("FIRST", "LAST")]
        measure, type_ = self._random.choice(choices)
        listed = ", ".join(f"{column} AS c{at}" for at, column in enumerate(columns))
        over = f"{measure} OVER ({partition}ORDER BY {self._order(columns)}{frame}) AS c{len(columns)}"
        return Query(f"SELECT {listed}, {over} FROM ({source.text}) {q}", (*source.types, type_))

    def _computed(self, depth: int) -> Query:
        """Columns that are computed of others."""
        source, q = self.query(depth), self._name()
        given = [(column, self._type(source, column)) for column in source.columns(q)[: self._random.randrange(1, 4)]]
        for type_, forms in (
            (NUMBER, ("COALESCE({0}, 0) + {1}", "CASE WHEN {0} > {1} THEN {0} END", "ABS({0}) - 1", "{0} * {1}")),
            (TEXT, ("COALESCE({0}, 'none')", "UPPER({0}) || {1}", "CASE WHEN {0} = {1} THEN 'same' ELSE {0} END")),
            (REAL, ("-{0}", "{0} * -2", "COALESCE({0}, 0.5) + {1}")),
        ):
            if self._pick(source, q, type_) and self._chance(0.6):
                columns = [self._pick(source, q, type_) for _ in range(2)]
                given.append((self._random.choice(forms).format(*columns), type_))
        listed = ", ".join(f"{text} AS c{at}" for at, (text, _) in enumerate(given))
        where = f" WHERE {self._condition(source, q)}" if self._chance(0.5) else ""
        return Query(f"SELECT {listed} FROM ({source.text}) {q}{where}", tuple(type_ for _, type_ in given))

    def _unnested(self, depth: int) -> Query:
        """Repeats each row for each element of an array of its columns."""
        source, q, element = self.query(depth), self._name(), self._name()
        type_ = self._random.choice(source.types)
        items = [self._pick(source, q, type_) for _ in range(self._random.randrange(1, 4))]
        listed = ", ".join(f"{column} AS c{at}" for at, column in enumerate(source.columns(q)))
        text = (
            f"SELECT {listed}, {element}.e AS c{len(source.types)} "
            f"FROM ({source.text}) {q} CROSS JOIN UNNEST(ARRAY[{', '.join(map(str, items))}]) AS {element} (e)"
        )
        return Query(text, (*source.types, type_))

    def _lateral(self, depth: int) -> Query:
        """For each row, the first rows of a query that share a value with it."""
        outer, inner = self.query(depth), self.query(self._random.randrange(depth + 1))
        a, b, found = self._name(), self._name(), self._name()
        term = self._compared(inner, b, outer, a, ["="])
        if term is None:
            return outer
        given = [f"{column} AS c{at}" for at, column in enumerate(outer.columns(a))]
        given += [f"{found}.d{at} AS c{len(outer.types) + at}" for at in range(len(inner.types))]
        columns = ", ".join(f"{column} AS d{at}" for at, column in enumerate(inner.columns(b)))
        query = f"SELECT {columns} FROM ({inner.text}) {b} WHERE {term}"
        if self._chance(0.7):
            query += f" ORDER BY {self._order(inner.columns(b))} LIMIT {self._random.choice((1, 2))}"
        join = self._random.choice(("CROSS JOIN LATERAL ({}) {}", "LEFT JOIN LATERAL ({}) {} ON TRUE"))
        text = f"SELECT {', '.join(given)} FROM ({outer.text}) {a} {join.format(query, found)}"
        return Query(text, (*outer.types, *inner.types))

    def _set(self, depth: int) -> Query:
        sides = [self.query(depth), self.query(self._random.randrange(depth + 1))]
        types = [type_ for type_ in (NUMBER, TEXT, REAL) if all(type_ in side.types for side in sides)]
        if not types:
            return sides[0]
        chosen = tuple(self._random.choice(types) for _ in range(self._random.choice((1, 2))))
        texts = []
        for side in sides:
            q = self._name()
            # The operands of a set operation have the same types.
            casts = {NUMBER: "BIGINT", TEXT: "VARCHAR", REAL: "DOUBLE"}
            listed = ", ".join(
                f"CAST({self._pick(side, q, type_)} AS {casts[type_]}) AS c{at}" for at, type_ in enumerate(chosen)
            )
            texts.append(f"SELECT {listed} FROM ({side.text}) {q}")
        operator = self._random.choice(("UNION", "UNION ALL", "INTERSECT", "INTERSECT ALL", "EXCEPT", "EXCEPT ALL"))
        return Query(f"{texts[0]} {operator} {texts[1]}", chosen)

    def _within(self, depth: int) -> Query:
        outer, inner = self.query(depth), self.query(self._random.randrange(depth + 1))
        a, b = self._name(), self._name()
        listed = ", ".join(f"{column} AS c{at}" for at, column in enumerate(outer.columns(a)))
        shared = sorted(set(outer.types) & set(inner.types))
        if not shared:
            return outer
        type_ = self._random.choice(shared)
        mine, theirs = self._pick(outer, a, type_), self._pick(inner, b, type_)
        kind = self._random.choice(("IN", "NOT IN", "NOT IN", "EXISTS", "NOT EXISTS"))
        if kind.endswith("IN"):
            condition = f"{mine} {kind} (SELECT {theirs} FROM ({inner.text}) {b})"
        else:
            more = f" AND {self._compared(outer, a, inner, b, ['<', '<>'])}" if self._chance(0.4) else ""
            equal = self._random.choice(EQUALITIES)
            condition = f"{kind} (SELECT 1 FROM ({inner.text}) {b} WHERE {theirs} {equal} {mine}{more})"
        if self._chance(0.2):
            condition += f" AND {self._condition(outer, a)}"
        return Query(f"SELECT {listed} FROM ({outer.text}) {a} WHERE {condition}", outer.types)

    def _scalar(self, depth: int) -> Query:
        outer, inner = self.query(depth), self.query(self._random.randrange(depth + 1))
        a, b = self._name(), self._name()
        mine, theirs = self._pick(outer, a, NUMBER), self._pick(inner, b, NUMBER)
        if mine is None or theirs is None:
            return outer
        measures = ("MAX({0})", "MIN({0})", "COUNT(*)", "SUM({0})", "COUNT(*) + 1", "COALESCE(MAX({0}), 0)")
        measure = self._random.choice(measures).format(theirs)
        correlated = ""
        if self._chance(0.5) and (term := self._compared(inner, b, outer, a, EQUALITIES)):
            correlated = f" WHERE {term}"
        elif self._chance(0.3):  # several values of the column equal one outside
            correlated = f" WHERE ABS({theirs}) = {mine}"
        subquery = f"(SELECT {measure} FROM ({inner.text}) {b}{correlated})"
        listed = ", ".join(f"{column} AS c{at}" for at, column in enumerate(outer.columns(a)))
        if self._chance(0.5):
            sign = self._random.choice((">", "<=", "="))
            return Query(f"SELECT {listed} FROM ({outer.text}) {a} WHERE {mine} {sign} {subquery}", outer.types)
        return Query(
            f"SELECT {listed}, {subquery} AS c{len(outer.types)} FROM ({outer.text}) {a}", (*outer.types, NUMBER)
        )
