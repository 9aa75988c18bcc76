"""Retracting rows leaves the same results as never inserting them, for values at the bounds of their types.

The queries run over random changes, and again over the remaining rows as pure inserts. Both must emit the same rows,
bit by bit.
"""

from __future__ import annotations

import datetime as dt
import itertools
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from random import Random
from typing import Any

import pytest
from changing_tables import ADDED, Changelog, RunPlan
from inputs.fresh_names import fresh_name

from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.table import StreamTableEnvironment
from millstream.testing import EPOCH, Collect, Result, Script, run

SEEDS = int(os.environ.get("MILLSTREAM_CHANGELOGS", "100"))
FAMILY = os.environ.get("MILLSTREAM_CHANGELOG_FAMILY", "bounds")
VALUES: Mapping[str, tuple[Any, Sequence[Any]]] = {
    "k": (Types.INT(), (0, 1, 2)),
    "v": (Types.LONG(), (-(2**63), 2**63 - 1, -1, 0, 1, 2**53 + 1)),
    "s": (Types.STRING(), ("a", "b", "", "ä", "a ")),
    "x": (Types.DOUBLE(), (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e308, -1e308, 1e-320, 0.1, 0.2)),
    "d": (Types.DECIMAL(38, 2), tuple(map(Decimal, ("9" * 36 + ".99", "-" + "9" * 36 + ".99", "0.01", "0.00")))),
    "ts": (
        Types.SQL_TIMESTAMP(),
        (
            dt.datetime(1969, 12, 31, 23, 59, 59, 999000),
            dt.datetime(1, 1, 1),
            dt.datetime(9999, 12, 31),
            dt.datetime(2020, 1, 1),
        ),
    ),
    "dt": (Types.SQL_DATE(), (dt.date(1969, 12, 31), dt.date(1, 1, 1), dt.date(9999, 12, 31), dt.date(2020, 2, 29))),
    "b": (Types.BOOLEAN(), (True, False)),
    "f": (Types.FLOAT(), (0.0, -0.0, float("nan"), 0.1)),
    "n": (Types.DECIMAL(10, 3), tuple(map(Decimal, ("9999999.999", "-9999999.999", "0.001", "0.000")))),
    "y": (Types.PRIMITIVE_ARRAY(Types.BYTE()), (b"", b"\xff", b"a")),
    "i": (Types.SHORT(), (-32768, 32767, 0)),
}
TYPE = Types.ROW_NAMED(list(VALUES), [type_ for type_, _ in VALUES.values()])
NUMBERS = ("x", "f", "d", "n", "v", "i", "k")
SORTED = tuple(name for name in VALUES if name != "y")
# These are rounded along the way, differently in the two runs.
DEVIATIONS = tuple(f"ROUND(CAST({name}({{}}) AS DOUBLE), 3)" for name in ("STDDEV_POP", "VAR_SAMP", "STDDEV_SAMP"))


def _random_row(random: Random) -> tuple[Any, ...]:
    return tuple(None if random.random() < 0.15 else random.choice(values) for _, values in VALUES.values())


def _row(values: tuple[Any, ...], kind: RowKind) -> Row:
    return Row.of_kind(kind, *values)


def random_changes(random: Random, epochs: int, rows_max: int) -> Changelog:
    """Changes of rows; an update changes the whole row, or a part of it."""
    changelog, live = Changelog(), []
    for _ in range(epochs):
        changes: list[Row] = []
        for _ in range(random.randrange(rows_max + 1)):
            action = "add" if not live else random.choice(("add", "add", "update", "delete"))
            made = _random_row(random)
            if action != "add":
                gone = live.pop(random.randrange(len(live)))
                changes.append(_row(gone, RowKind.UPDATE_BEFORE if action == "update" else RowKind.DELETE))
                if random.random() < 0.5:
                    made = tuple(old if random.random() < 0.8 else new for old, new in zip(gone, made, strict=True))
            if action != "delete":
                live.append(made)
                changes.append(_row(made, RowKind.UPDATE_AFTER if action == "update" else RowKind.INSERT))
        changelog.epochs.append(changes)
    return changelog


def counted(changes: Iterable[Row]) -> Counter[tuple[str, ...]]:
    """The remaining rows by their textual form: zeros are distinguished, NaNs are not."""
    left: Counter[tuple[str, ...]] = Counter()
    for change in changes:
        row = tuple(map(repr, change))
        left[row] += 1 if change.get_row_kind() in ADDED else -1
        assert left[row] >= 0, f"{row} is taken away and is not there"
    return +left


def ran(
    query: str, script: Sequence[Any], parallelism: int, *, only_grows: bool, **how: Any
) -> tuple[Result, list[Row]]:
    out = Collect()

    def build(env: Any) -> None:
        t_env = StreamTableEnvironment.create(env)
        stream = env.add_source(Script(list(script), type_info=TYPE), type_info=TYPE).uid("t")
        t_env.create_temporary_view(
            "t", t_env.from_data_stream(stream) if only_grows else t_env.from_changelog_stream(stream)
        )
        t_env.to_changelog_stream(t_env.sql_query(query)).sink_to(out)

    result = run(build, parallelism=parallelism, **how)
    return result, [record.value for record in result.of(out)]


def check(query: str, table: Changelog, life: RunPlan) -> None:
    """Run a query over changes, and over the remaining rows."""
    store, given = fresh_name("bounds"), []
    for parallelism, epochs in life.phases():
        how = {"epochs": epochs, "store": store, "epoch_records": life.epoch_records}
        result, changes = ran(query, table.script(life.crashes), parallelism, only_grows=False, **how)
        given += changes
        if result.status == "FINISHED":
            break
    rows: dict[tuple[str, ...], Row] = {}
    left = counted(itertools.chain(*table.epochs))
    for row in itertools.chain(*table.epochs):
        rows[tuple(map(repr, row))] = row
    grown = [_row(tuple(rows[written]), RowKind.INSERT) for written in left.elements()]
    if grown:  # a streaming aggregate emits nothing for no rows
        _, expected = ran(query, [*grown, EPOCH], 1, only_grows=True)
        found, wanted = counted(given), counted(expected)
        assert found == wanted, f"{found - wanted} too much, {wanted - found} missing. {life}: {query}"


def random_query(random: Random) -> str:
    return random.choice((_groups, _groups, _first_rows, _over, _set, _nested))(random)


def _aggregate(random: Random) -> str:
    column = random.choice(list(VALUES))
    forms = ["COUNT(*)", "COUNT({})", "COUNT(DISTINCT {})"]
    if column not in ("b", "y"):
        forms += ["MIN({})", "MAX({})"]
    if column in NUMBERS and random.random() < 0.6:
        forms = ["SUM({})", "AVG({})", "SUM(DISTINCT {})", "AVG(DISTINCT {})"]
        forms += DEVIATIONS if column in ("k", "i") else ()
    conditions = ("b", "v > 0", "s <> 'a'", "x IS NOT NULL")
    form = random.choice(forms)
    filtered = f" FILTER (WHERE {random.choice(conditions)})" if random.random() < 0.25 and form[0] != "R" else ""
    return form.format(column) + filtered


def _groups(random: Random) -> str:
    keys = random.sample(list(VALUES), random.choice((0, 1, 1, 2)))
    items = [*keys, *(_aggregate(random) for _ in range(random.randrange(1, 5)))]
    by = f" GROUP BY {', '.join(keys)}" if keys else ""
    if len(keys) == 2 and random.random() < 0.4:
        by = f" GROUP BY {random.choice(('CUBE', 'ROLLUP'))} ({', '.join(keys)})"
    having = random.choice(("", " HAVING COUNT(*) > 1", " HAVING MAX(v) > 0"))
    return f"SELECT {', '.join(items)} FROM t{by}{having}"


def _order(random: Random, columns: Sequence[str]) -> str:
    return ", ".join(
        f"{column} {random.choice(('ASC', 'DESC'))} NULLS {random.choice(('FIRST', 'LAST'))}" for column in columns
    )


def _first_rows(random: Random) -> str:
    kind = random.choice(("ROW_NUMBER", "RANK", "DENSE_RANK"))
    by = SORTED if kind == "ROW_NUMBER" else random.sample(SORTED, 2)  # tied rows are identical, or all are emitted
    over = f"{kind}() OVER (PARTITION BY {random.choice(list(VALUES))} ORDER BY {_order(random, by)})"
    bound = random.choice(("r <= 1", "r <= 2", "r BETWEEN 2 AND 4", "r = 2"))
    number = random.choice((", r", ""))
    return f"SELECT {', '.join(SORTED)}{number} FROM (SELECT *, {over} AS r FROM t) WHERE {bound}"


def _over(random: Random) -> str:
    part, column, by = random.choice(list(VALUES)), random.choice(NUMBERS), random.choice(SORTED)
    frames = ["", " RANGE BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING"]
    if by in ("v", "k", "i", "x", "f"):
        frames += [
            " RANGE BETWEEN 1 PRECEDING AND 1 FOLLOWING",
            " RANGE BETWEEN 2 FOLLOWING AND 5 FOLLOWING",
            " RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING",
        ]
    name = random.choice(("SUM", "COUNT", "MIN", "MAX", "AVG"))
    window = f"PARTITION BY {part} ORDER BY {_order(random, [by])}{random.choice(frames)}"
    return f"SELECT {part} AS p, {by} AS o, {column} AS c, {name}({column}) OVER ({window}) AS z FROM t"


def _set(random: Random) -> str:
    columns = ", ".join(random.sample(list(VALUES), 2))
    word = random.choice(("UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL", "UNION ALL"))
    return f"SELECT {columns} FROM t WHERE v > 0 {word} SELECT {columns} FROM t WHERE b"


def _nested(random: Random) -> str:
    key = random.choice(SORTED)
    inner = f"(SELECT {key} AS c, MAX(v) AS m, COUNT(*) AS n FROM t GROUP BY {key})"
    return random.choice(
        (
            f"SELECT m, COUNT(*), SUM(n), COUNT(DISTINCT c) FROM {inner} GROUP BY m",
            f"SELECT c, n, ROW_NUMBER() OVER (ORDER BY n DESC, c NULLS FIRST) r FROM {inner} QUALIFY r BETWEEN 2 AND 3",
            f"SELECT DISTINCT m, n FROM {inner}",
            f"SELECT t.k, q.n FROM t LEFT JOIN {inner} q ON t.{key} = q.c",
        )
    )


@pytest.mark.parametrize("tens", range((SEEDS // 2 + 9) // 10))
def test_retractions_leave_the_results_of_the_remaining_rows(tens: int) -> None:
    for seed in range(10 * tens, 10 * tens + 10):
        random = Random(f"{FAMILY} {seed}")
        check(random_query(random), random_changes(random, 4, random.choice((3, 8, 15))), RunPlan.random(random, 4))
