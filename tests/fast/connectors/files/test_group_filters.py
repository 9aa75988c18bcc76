"""Row group pruning skips row groups that cannot match and never changes the result."""

from __future__ import annotations

import datetime as dt
import operator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from millstream.connectors.files import parquet_rows
from millstream.connectors.files.group_filters import GroupFilter, may_hold
from millstream.table import EnvironmentSettings, TableEnvironment
from millstream.testing.local_jobs import jobs_in_memory

COMPARISONS = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def footer_of(table: pa.Table, rows: int) -> pq.FileMetaData:
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=rows)
    return pq.read_metadata(pa.BufferReader(sink.getvalue()))


def takes(condition: GroupFilter, value: Any) -> bool:
    """The reference implementation: NULL equals only NULL."""
    if condition.comparison == "IS NULL":
        return value is None
    if condition.comparison == "IS NOT NULL" or value is None:
        return value is not None
    if condition.comparison == "IN":
        return value in condition.constant
    return bool(COMPARISONS[condition.comparison](value, condition.constant))


VALUES = {
    "number": (pa.int64(), st.integers(-5, 5)),
    "text": (pa.string(), st.text("aZé\U0001f600", max_size=2)),
    "day": (pa.date32(), st.dates(dt.date(2026, 1, 1), dt.date(2026, 1, 6))),
    "truth": (pa.bool_(), st.booleans()),
}


@given(data=st.data(), name=st.sampled_from(sorted(VALUES)))
def test_no_row_group_with_a_matching_row_is_pruned(data: st.DataObject, name: str) -> None:
    kind, values = VALUES[name]
    column = data.draw(st.lists(st.none() | values, min_size=1, max_size=12))
    comparison = data.draw(st.sampled_from([*COMPARISONS, "IN", "IS NULL", "IS NOT NULL"]))
    constant = data.draw(st.lists(values, max_size=2).map(tuple) if comparison == "IN" else values)
    condition = GroupFilter("c", comparison, constant)
    footer = footer_of(pa.table({"c": pa.array(column, kind)}), 3)
    for group in range(footer.num_row_groups):
        held = column[3 * group : 3 * group + 3]
        if any(takes(condition, value) for value in held):
            assert may_hold([condition], footer.row_group(group))


def test_statistics_of_another_type_and_missing_columns_prune_nothing() -> None:
    group = footer_of(pa.table({"c": [1, 2], "s": [{"a": 1}, {"a": 2}]}), 9).row_group(0)
    for condition in (
        GroupFilter("c", "=", "7"),
        GroupFilter("c", "=", 7.5),
        GroupFilter("d", "=", 7),
        GroupFilter("s.a", "=", 7),
    ):
        assert may_hold([condition], group)
    assert not may_hold([GroupFilter("c", "=", 7)], group)


def test_a_query_reads_only_the_row_groups_that_may_match(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"id": list(range(1000)), "word": [f"w{n // 100}" for n in range(1000)], "x": [1.5] * 1000})
    pq.write_table(rows, tmp_path / "rows.parquet", row_group_size=100)
    opened: list[int] = []
    plain = parquet_rows.group_reader

    def counting(name: Any, footer: Any, row: int) -> Any:
        opened.append(name.group)
        return plain(name, footer, row)

    monkeypatch.setattr(parquet_rows, "group_reader", counting)
    answers = {}
    with jobs_in_memory():
        t_env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
        t_env.execute_sql(
            "CREATE TABLE r (id BIGINT, word STRING, x DOUBLE) "
            f"WITH ('connector' = 'filesystem', 'path' = '{tmp_path}', 'format' = 'parquet')"
        )
        for condition in (
            "id >= 250 AND id < 310 AND x > 1",
            "word = 'w7' AND id <> 700",
            "id IN (5, 905)",
            "id > 5000",
        ):
            opened.clear()
            with t_env.execute_sql(f"SELECT id FROM r WHERE {condition}").collect() as results:
                answers[condition] = sorted(row[0] for row in results), sorted(set(opened))
    assert answers == {
        "id >= 250 AND id < 310 AND x > 1": (list(range(250, 310)), [2, 3]),
        "word = 'w7' AND id <> 700": (list(range(701, 800)), [7]),
        "id IN (5, 905)": ([5, 905], [0, 9]),
        "id > 5000": ([], []),
    }
