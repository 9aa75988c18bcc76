"""Random queries over tables that change, in the SQL that DuckDB and we both speak.

A query is grown from the inside: joins of tables or of queries, aggregates (FILTER, DISTINCT, HAVING, GROUPING SETS),
first rows of an order, OVER, set operations, IN, EXISTS and NOT IN over columns with NULLs, scalar subqueries; each
over the others. Every order is total up to equal rows, sums are of values that doubles hold exactly: there is one right
answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

__all__ = ["random_query"]

NUMBER, TEXT, REAL = "number", "text", "real"
TABLE_COLUMNS = (("k", NUMBER), ("v", NUMBER), ("s", TEXT), ("x", REAL))


@dataclass(frozen=True)
class Query:
    """A query and the types of its columns, which are called c0, c1, …"""

    text: str
    types: tuple[str, ...]

    def columns(self, of: str = "", type_: str | None = None) -> list[str]:
        """The names of its columns, as those of table `of`."""
        prefix = f"{of}." if of else ""
        return [f"{prefix}c{at}" for at, each in enumerate(self.types) if type_ in (None, each)]


def random_query(random: Random, tables: Sequence[str] = ("t", "u", "w")) -> str:
    """A query over some of the tables."""
    return _Grower(random, tables).query(random.choice((1, 2, 2, 3))).text


class _Grower:
    def __init__(self, random: Random, tables: Sequence[str]) -> None:
        self._random, self._tables, self._names = random, tables, 0

    def _name(self) -> str:
        self._names += 1
        return f"q{self._names}"

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def query(self, depth: int) -> Query:
        """A query that nests at most so deep."""
        if depth <= 0:
            return self._table()
        grow = self._random.choice(
            (
                *(self._join, self._join, self._group, self._group),
                *(self._first_rows, self._over, self._set, self._within, self._scalar),
            )
        )
        return grow(depth - 1)

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
        a, b = self._name(), self._name()
        terms = [self._compared(left, a, right, b, ["="])]
        if self._chance(0.3):
            terms.append(self._compared(left, a, right, b, ["="]))
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

    def _measure(self, source: Query, of: str) -> tuple[str, str]:
        number, any_column = self._pick(source, of, NUMBER), self._random.choice(source.columns(of))
        type_ = source.types[int(any_column.rsplit("c", 1)[1])]
        choices = [("COUNT(*)", NUMBER), (f"COUNT({any_column})", NUMBER), (f"COUNT(DISTINCT {any_column})", NUMBER)]
        choices += [(f"{name}({any_column})", type_) for name in ("MIN", "MAX")] * 2
        if number is not None:
            choices += [(f"SUM({number})", NUMBER)] * 2 + [(f"SUM(DISTINCT {number})", NUMBER)]
        if real := self._pick(source, of, REAL):
            choices += [(f"SUM({real})", REAL), (f"AVG({real})", REAL)]
        text, type_ = self._random.choice(choices)
        if self._chance(0.25):
            text += f" FILTER (WHERE {self._condition(source, of)})"
        return text, type_

    def _condition(self, source: Query, of: str) -> str:
        column = self._random.choice(source.columns(of))
        type_ = source.types[int(column.rsplit("c", 1)[1])]
        if type_ == TEXT:
            return self._random.choice((f"{column} <> 'a'", f"{column} IS NULL", f"{column} > 'a'"))
        return self._random.choice((f"{column} > 0", f"{column} IS NOT NULL", f"{column} <= 1"))

    def _group(self, depth: int) -> Query:
        source, q = self.query(depth), self._name()
        keys = self._random.sample(source.columns(q), min(len(source.types), self._random.choice((0, 1, 1, 2))))
        types = [source.types[int(key.rsplit("c", 1)[1])] for key in keys]
        measures = [self._measure(source, q) for _ in range(self._random.randrange(1, 4))]
        listed = ", ".join(f"{text} AS c{at}" for at, (text, _) in enumerate([*((key, "") for key in keys), *measures]))
        by, having = (f" GROUP BY {', '.join(keys)}" if keys else ""), ""
        if len(keys) == 2 and self._chance(0.4):
            sets = self._random.choice((f"ROLLUP ({', '.join(keys)})", f"CUBE ({', '.join(keys)})"))
            by = f" GROUP BY {self._random.choice((sets, f'GROUPING SETS (({keys[0]}), ({keys[1]}))'))}"
        if not keys or "ROLLUP" in by or "CUBE" in by:  # of nothing at all a batch has a row, a stream has none
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
        order = ", ".join(
            f"{column} {self._random.choice(('ASC', 'DESC'))} NULLS {self._random.choice(('FIRST', 'LAST'))}"
            for column in self._random.sample(columns, len(columns))
        )
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

    def _over(self, depth: int) -> Query:
        source, q = self.query(depth), self._name()
        columns = source.columns(q)
        partition = self._random.choice(columns)
        order = ", ".join(
            f"{column} {self._random.choice(('ASC', 'DESC'))} NULLS {self._random.choice(('FIRST', 'LAST'))}"
            for column in self._random.sample(columns, len(columns))
        )
        frame = self._random.choice(("", " ROWS BETWEEN 1 PRECEDING AND CURRENT ROW", " ROWS UNBOUNDED PRECEDING"))
        column = self._pick(source, q, NUMBER)
        measure = "COUNT(*)" if column is None else f"{self._random.choice(('SUM', 'MIN', 'MAX', 'COUNT'))}({column})"
        listed = ", ".join(f"{column} AS c{at}" for at, column in enumerate(columns))
        over = f"{measure} OVER (PARTITION BY {partition} ORDER BY {order}{frame}) AS c{len(columns)}"
        return Query(f"SELECT {listed}, {over} FROM ({source.text}) {q}", (*source.types, NUMBER))

    def _set(self, depth: int) -> Query:
        sides = [self.query(depth), self.query(self._random.randrange(depth + 1))]
        types = [type_ for type_ in (NUMBER, TEXT, REAL) if all(type_ in side.types for side in sides)]
        if not types:
            return sides[0]
        chosen = tuple(self._random.choice(types) for _ in range(self._random.choice((1, 2))))
        texts = []
        for side in sides:
            q = self._name()
            # What stands below a set operation has the same type on both sides.
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
            condition = f"{kind} (SELECT 1 FROM ({inner.text}) {b} WHERE {theirs} = {mine}{more})"
        if self._chance(0.2):
            condition += f" AND {self._condition(outer, a)}"
        return Query(f"SELECT {listed} FROM ({outer.text}) {a} WHERE {condition}", outer.types)

    def _scalar(self, depth: int) -> Query:
        outer, inner = self.query(depth), self.query(self._random.randrange(depth + 1))
        a, b = self._name(), self._name()
        mine, theirs = self._pick(outer, a, NUMBER), self._pick(inner, b, NUMBER)
        if mine is None or theirs is None:
            return outer
        measure = self._random.choice((f"MAX({theirs})", f"MIN({theirs})", "COUNT(*)", f"SUM({theirs})"))
        correlated = ""
        if self._chance(0.5) and (term := self._compared(inner, b, outer, a, ["="])):
            correlated = f" WHERE {term}"
        subquery = f"(SELECT {measure} FROM ({inner.text}) {b}{correlated})"
        listed = ", ".join(f"{column} AS c{at}" for at, column in enumerate(outer.columns(a)))
        if self._chance(0.5):
            sign = self._random.choice((">", "<=", "="))
            return Query(f"SELECT {listed} FROM ({outer.text}) {a} WHERE {mine} {sign} {subquery}", outer.types)
        return Query(
            f"SELECT {listed}, {subquery} AS c{len(outer.types)} FROM ({outer.text}) {a}", (*outer.types, NUMBER)
        )
