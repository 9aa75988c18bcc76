"""Aggregates added to a query over a changing table: their result is exact, or NULL while unknown.

In an existing group an added aggregate becomes known when none of its earlier rows is left; only COUNT(*) is known
immediately.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from random import Random
from typing import Any

import duckdb
import pytest
from changing_tables import _add_query, _read, answer, materialised, random_changelog, rows_left
from inputs.fresh_names import fresh_name

from millstream.common.types import Row
from millstream.runtime.tables import group_extremes, spilled_values
from millstream.runtime.tables.references.groups import known_groups
from millstream.testing import Collect, run

OLD = ("SUM(v)",)
ADDED = ("COUNT(v)", "COUNT(*)", "SUM(DISTINCT v)", "COUNT(DISTINCT s)", "MIN(v)", "MAX(s)", "SUM(x)", "AVG(x)")
COUNTED = 1 + len(OLD) + ADDED.index("COUNT(*)")


def query(*calls: str) -> str:
    return f"SELECT k, {', '.join(calls)} FROM t GROUP BY k"


def padded(row: Row) -> Row:
    """A row of the old query as one of the new."""
    whole = Row(*row, *[None] * len(ADDED))
    whole.set_row_kind(row.get_row_kind())
    return whole


@pytest.mark.parametrize("values_in_row", [0, 256])
@pytest.mark.parametrize("seed", range(4))
def test_an_added_aggregate_is_exact_or_null(
    seed: int, values_in_row: int, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(spilled_values, "VALUES_IN_ROW_MAX", values_in_row)
    monkeypatch.setattr(group_extremes, "HEAD_VALUES", 1)
    monkeypatch.setattr(group_extremes, "HEAD_VALUES_MAX", 1)
    random = Random(f"added aggregates {seed}")
    table = random_changelog(random, 7, random.choice((4, 8)), only_grows=False, keys=3)
    scripts, store, first, then = {"t": table.script()}, fresh_name("added"), Collect(), Collect()
    begun = run(partial(_add_query, query(*OLD), scripts, first, False), epochs=2, store=store)
    rest = run(partial(_add_query, query(*OLD, *ADDED), scripts, then, False), parallelism=2, store=store)
    assert "NULL in existing groups until they are removed" in caplog.text
    given = [padded(record.value) for record in begun.of(first)]
    changes = [*rest.of(then)]
    begin = begun.manifests[-1].sources["t"]["script-0"].offset
    with duckdb.connect() as database:
        groups = [{row[0] for row in rows_left(_read(begun.manifests[-1], "t", scripts["t"]))}]
        for manifest in rest.manifests:
            if manifest.status not in ("RUNNING", "DRAINED"):  # it read nothing
                continue
            answers = answer(database, query(*OLD, *ADDED), {"t": rows_left(_read(manifest, "t", scripts["t"]))})
            groups.append({row[0] for row in answers})
            since = scripts["t"][begin : manifest.sources["t"]["script-0"].offset]
            touched, known = {item[0] for item in since if isinstance(item, Row)}, known_groups(groups)
            expected = [row if row[0] in known else _unknown(row, is_touched=row[0] in touched) for row in answers]
            so_far = [*given, *(record.value for record in changes if record.epoch <= manifest.epoch)]
            assert materialised(so_far) == Counter(expected)


def _unknown(row: tuple[Any, ...], *, is_touched: bool) -> tuple[Any, ...]:
    """The row of an existing group. Known aggregates are emitted when the group changes."""
    cells: list[Any] = [*row[: 1 + len(OLD)], *[None] * len(ADDED)]
    if is_touched:
        cells[COUNTED] = row[COUNTED]
    return tuple(cells)
