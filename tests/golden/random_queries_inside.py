"""Random queries with subqueries in their expressions, in the SQL that DuckDB and Millstream share.

Conditions are built of EXISTS, IN, comparisons with SOME and ALL and scalar subqueries, combined by AND, OR, NOT and
CASE, in SELECT, WHERE, HAVING, ON and aggregate arguments. Subqueries are correlated by equalities or other conditions,
and may be nested. Each query has one right answer.
"""

from __future__ import annotations

from random import Random

__all__ = ["random_query_inside"]

NUMBERS, TEXT = ("k", "v"), "s"
SIGNS = ("=", "<>", "<", "<=", ">", ">=")


def random_query_inside(random: Random) -> str:
    """A query over the tables t and u."""
    return _Grower(random).query()


class _Grower:
    def __init__(self, random: Random) -> None:
        self._random, self._names = random, 0

    def _name(self) -> str:
        self._names += 1
        return f"q{self._names}"

    def _chance(self, share: float) -> bool:
        return self._random.random() < share

    def query(self) -> str:
        """A query whose clauses contain subqueries."""
        form = self._random.choice(("select", "select", "where", "where", "where", "having", "on", "argument"))
        condition = self._condition(["t"], 2)
        if form == "select":
            return f"SELECT k, v, {condition}, {self._value(['t'], 2)} FROM t"
        if form == "where":
            return f"SELECT k, v, s FROM t WHERE {condition}"
        if form == "argument":
            value, case = self._value(["t"], 1), f"CASE WHEN {condition} THEN 1 ELSE 0 END"
            return f"SELECT k, SUM({case}), MAX({value}), COUNT(*) FROM t GROUP BY k"
        if form == "on":
            kind = self._random.choice(("INNER", "INNER", "LEFT", "RIGHT", "FULL"))
            return f"SELECT t.k, t.v, b.v, b.s FROM t {kind} JOIN u b ON t.k = b.k AND {condition}"
        having = self._having()
        return f"SELECT k, COUNT(*), MAX(v) FROM t GROUP BY k HAVING {having}"

    def _having(self) -> str:
        name = self._name()
        inner = f"SELECT {name}.v FROM u {name} WHERE {name}.k {self._random.choice(SIGNS)} t.k"
        return self._random.choice(
            (
                f"COUNT(*) > (SELECT COUNT(*) FROM ({inner}) {self._name()})",
                f"MAX(v) IN ({inner})",
                f"MAX(v) NOT IN ({inner}) OR k = 1",
                f"MIN(v) {self._random.choice(SIGNS)} {self._random.choice(('ALL', 'ANY'))} ({inner})",
                f"NOT EXISTS ({inner}) OR COUNT(*) > 2",
            )
        )

    def _condition(self, around: list[str], depth: int) -> str:
        """A condition over the last of the tables in scope."""
        number = self._random.randrange(10)
        if depth > 0 and number < 3:
            parts = [self._condition(around, depth - 1) for _ in range(2)]
            return f"({self._random.choice((' AND ', ' OR ')).join(parts)})"
        if depth > 0 and number == 3:
            return f"NOT ({self._condition(around, depth - 1)})"
        if depth > 0 and number == 4:
            parts = [self._condition(around, depth - 1) for _ in range(2)]
            return f"CASE WHEN {parts[0]} THEN {parts[1]} ELSE v > 0 END".replace(" v >", f" {around[-1]}.v >")
        return self._row_condition(around, depth)

    def _row_condition(self, around: list[str], depth: int) -> str:
        """A condition on the rows of a subquery."""
        kind = self._random.choice(("EXISTS", "IN", "IN", "NOT IN", "PAIR", "SOME", "ALL", "VALUE"))
        outer, column = around[-1], self._random.choice((*NUMBERS, TEXT))
        if kind == "EXISTS":
            return f"EXISTS ({self._rows(around, '1', depth)})"
        if kind == "PAIR":
            word = self._random.choice(("IN", "NOT IN"))
            name = self._name()  # DuckDB compares pairs only with uncorrelated rows
            where = self._random.choice(("", f" WHERE {name}.v > 0", f" WHERE {name}.s IS NOT NULL"))
            return f"({outer}.k, {outer}.{column}) {word} (SELECT {name}.k, {name}.{column} FROM u {name}{where})"
        if kind in ("IN", "NOT IN"):
            return f"{outer}.{column} {kind} ({self._rows(around, f'{{0}}.{column}', depth)})"
        if kind in ("SOME", "ALL"):
            sign = self._random.choice(SIGNS)
            word = "ANY" if kind == "SOME" else kind
            return f"{outer}.{column} {sign} {word} ({self._rows(around, f'{{0}}.{column}', depth)})"
        return f"{outer}.v {self._random.choice(SIGNS)} {self._value(around, depth)}"

    def _value(self, around: list[str], depth: int) -> str:
        """A subquery as a value."""
        measure = self._random.choice(
            (
                "MAX({0}.v)",
                "COUNT(*)",
                "SUM({0}.v) + COUNT(*)",
                "COALESCE(MIN({0}.v), 0)",
                f"MAX({{0}}.v + {around[-1]}.k)",
            )
        )
        if self._chance(0.2):  # at most one row, without a global aggregate
            name = self._name()
            return f"(SELECT DISTINCT {name}.k FROM u {name} WHERE {name}.k = {around[-1]}.k)"
        return f"({self._rows(around, measure, depth)})"

    def _rows(self, around: list[str], selected: str, depth: int) -> str:
        """A query over one table, whose condition is correlated or not."""
        name, outer = self._name(), around[-1]
        terms: list[str] = []
        if self._chance(0.5):
            column = self._random.choice((*NUMBERS, TEXT))
            terms.append(f"{name}.{column} = {outer}.{column}")
        if self._chance(0.35):
            terms.append(f"{name}.v {self._random.choice(('<', '>=', '<>'))} {self._random.choice(around)}.v")
        if self._chance(0.2):
            terms.append(f"{name}.v > 0")
        if depth > 1 and self._chance(0.25):
            terms.append(self._row_condition([*around, name], depth - 2))
        where = f" WHERE {' AND '.join(terms)}" if terms else ""
        return f"SELECT {selected.format(name)} FROM {self._random.choice(('u', 'u', 't'))} {name}{where}"
