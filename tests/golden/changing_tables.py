"""Tables that change, for tests: random changelogs cut into epochs, a query over them, and what a batch engine says.

The oracle is DuckDB over the prefix of the changes that an epoch has read: after every epoch the rows that the query
has given so far, added and taken away, must be the rows of the same SQL text over that prefix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

import duckdb

from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.table import StreamTableEnvironment
from millstream.testing import CRASH, EPOCH, Collect, Script, run

COLUMNS = ("k", "v", "s", "x")
TYPE = Types.ROW_NAMED(list(COLUMNS), [Types.INT(), Types.LONG(), Types.STRING(), Types.DOUBLE()])
ADDED = (RowKind.INSERT, RowKind.UPDATE_AFTER)


@dataclass
class Changelog:
    """The changes of a table, in epochs."""

    epochs: list[list[Row]] = field(default_factory=list)

    def rows(self, epochs: int) -> list[tuple[Any, ...]]:
        """The table after so many epochs."""
        return list(materialised(row for epoch in self.epochs[:epochs] for row in epoch).elements())

    def script(self, crashes: Sequence[int] = ()) -> list[Any]:
        """As a script; the task fails once at the end of these epochs."""
        items: list[Any] = []
        for number, rows in enumerate(self.epochs):
            items += rows
            items += [CRASH] if number in crashes else []
            items.append(EPOCH)
        return items


def materialised(changes: Any) -> Counter[tuple[Any, ...]]:
    """The rows that remain; taking away what is not there fails."""
    rows: Counter[tuple[Any, ...]] = Counter()
    for change in changes:
        row = tuple(change)
        if change.get_row_kind() in ADDED:
            rows[row] += 1
        else:
            assert rows[row] > 0, f"{row} is taken away and is not there"
            rows[row] -= 1
    return +rows


def random_changelog(random: Random, epochs: int, rows_max: int, *, only_grows: bool, keys: int = 4) -> Changelog:
    """Changes of rows with NULLs, doubles and updates."""
    changelog, live = Changelog(), []
    for _ in range(epochs):
        changes: list[Row] = []
        for _ in range(random.randrange(rows_max + 1)):
            action = "add" if only_grows or not live else random.choice(("add", "add", "update", "delete"))
            if action != "add":
                gone = live.pop(random.randrange(len(live)))
                kind = RowKind.UPDATE_BEFORE if action == "update" else RowKind.DELETE
                changes.append(_row(gone, kind))
            if action != "delete":
                made = _random_row(random, keys)
                live.append(made)
                changes.append(_row(made, RowKind.UPDATE_AFTER if action == "update" else RowKind.INSERT))
        changelog.epochs.append(changes)
    return changelog


def _row(values: tuple[Any, ...], kind: RowKind) -> Row:
    row = Row(*values)
    row.set_row_kind(kind)
    return row


def _random_row(random: Random, keys: int) -> tuple[Any, ...]:
    def or_null(value: Any) -> Any:
        return None if random.random() < 0.12 else value

    return (
        or_null(random.randrange(keys)),
        or_null(random.randrange(-9, 10)),
        or_null(random.choice(("a", "b", "c", ""))),
        or_null(random.randrange(-4, 5) / 2),
    )


def check_every_epoch(
    query: str, tables: Mapping[str, Changelog], *, parallelism: int, crashes: Sequence[int] = (), only_grows: bool
) -> None:
    """Run the query over the tables; after every epoch its rows are those of DuckDB over what was read."""
    out = Collect()

    def build(env: Any) -> None:
        t_env = StreamTableEnvironment.create(env)
        for number, (name, table) in enumerate(tables.items()):
            script = Script(table.script(crashes if not number else ()), type_info=TYPE)
            stream = env.add_source(script, type_info=TYPE)
            made = t_env.from_data_stream(stream) if only_grows else t_env.from_changelog_stream(stream)
            t_env.create_temporary_view(name, made)
        t_env.to_changelog_stream(t_env.sql_query(query)).sink_to(out)

    result = run(build, parallelism=parallelism)
    epochs = max(len(table.epochs) for table in tables.values())
    collected = result.of(out)
    for epoch in range(1, epochs + 1):
        given = materialised(record.value for record in collected if record.epoch <= epoch)
        expected = Counter(answer(query, {name: table.rows(epoch) for name, table in tables.items()}))
        assert given == expected, f"epoch {epoch}: {given - expected} too much, {expected - given} missing"


def answer(query: str, tables: Mapping[str, Sequence[tuple[Any, ...]]]) -> list[tuple[Any, ...]]:
    """What DuckDB says."""
    with duckdb.connect() as database:
        for name, rows in tables.items():
            database.execute(f"CREATE TABLE {name} (k INTEGER, v BIGINT, s VARCHAR, x DOUBLE)")
            if rows:
                database.executemany(f"INSERT INTO {name} VALUES (?, ?, ?, ?)", rows)
        return [tuple(row) for row in database.execute(query).fetchall()]
