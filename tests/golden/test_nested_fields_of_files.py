"""Nested field pruning: of Parquet struct columns only the fields that a query uses are read; results do not change."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream.connectors.contracts import Split
from millstream.connectors.files import row_groups
from millstream.connectors.files.parquet_rows import ParquetRows
from millstream.connectors.tables.filesystem.factory import FilesystemFactory
from millstream.expressions.nested_types import RowType
from millstream.expressions.types import IntType
from millstream.records.table_type import TableRowType
from millstream.table import EnvironmentSettings, TableEnvironment

ROWS = pa.struct(
    [
        ("price", pa.int64()),
        ("channel", pa.string()),
        ("place", pa.struct([("city", pa.string()), ("zip", pa.int32())])),
        ("tags", pa.list_(pa.string())),
    ]
)
DECLARED = "bid ROW<price BIGINT, channel STRING, place ROW<city STRING, zip INT>, tags ARRAY<STRING>>, id BIGINT"
QUERIES = (
    "SELECT bid.price FROM bids",
    "SELECT bid.place.zip, id FROM bids",
    "SELECT bid.tags, bid.channel FROM bids WHERE bid.price > 1",
    "SELECT bid.place FROM bids WHERE bid.place.city IS NOT NULL",
    "SELECT id FROM bids WHERE bid IS NOT NULL",
    "SELECT bid, bid.price FROM bids",
    "SELECT CAST(bid AS STRING) FROM bids",
)
PLACES = st.none() | st.fixed_dictionaries(
    {"city": st.none() | st.sampled_from("xy"), "zip": st.none() | st.integers(0, 9)}
)
BIDS = st.none() | st.fixed_dictionaries(
    {
        "price": st.none() | st.integers(0, 3),
        "channel": st.none() | st.sampled_from(["a", "ä"]),
        "place": PLACES,
        "tags": st.none() | st.lists(st.none() | st.sampled_from("pq"), max_size=2),
    }
)


def environment(folder: Path, declared: str = DECLARED) -> TableEnvironment:
    env = TableEnvironment.create(EnvironmentSettings.in_batch_mode())
    env.execute_sql(
        f"CREATE TABLE bids ({declared}) WITH ('connector' = 'filesystem', 'path' = '{folder}', 'format' = 'parquet')"
    )
    return env


def written(folder: Path, bids: list[Any]) -> None:
    table = pa.table({"id": pa.array(range(len(bids)), pa.int64()), "bid": pa.array(bids, ROWS)})
    pq.write_table(table, folder / "bids.parquet", row_group_size=3)


def answers(folder: Path, query: str) -> list[str]:
    return sorted(str(row) for row in environment(folder).execute_sql(query).collect())


@settings(max_examples=4, deadline=None)
@given(st.lists(BIDS, min_size=1, max_size=7), st.sampled_from(QUERIES))
def test_pruning_nested_fields_does_not_change_results(bids: list[Any], query: str) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        written(Path(folder), bids)
        pruned = answers(Path(folder), query)
        patch.setattr(FilesystemFactory, "prunes_fields", lambda self, options: False)
        assert pruned == answers(Path(folder), query)


def test_only_the_selected_leaf_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(tmp_path, [{"price": 1, "channel": "a", "place": {"city": "x", "zip": 5}, "tags": []}])
    paths: list[tuple[str, ...]] = []
    plain = row_groups.GroupReader.__init__

    def watched(self: Any, name: Any, footer: Any) -> None:
        paths.append(name.paths)
        plain(self, name, footer)

    monkeypatch.setattr(row_groups.GroupReader, "__init__", watched)
    file = tmp_path / "bids.parquet"
    place = RowType.of(["zip"], [IntType()])
    wanted = TableRowType(RowType.of(["bid"], [RowType.of(["place"], [place])]))
    split = Split("bids", 0, {"path": str(file), "size": file.stat().st_size, "end": 1})
    (batch,) = ParquetRows(wanted).read_within(split, 0, 1, None)
    assert batch.to_pylist() == [{"bid": {"place": {"zip": 5}}}]
    assert paths == [("bid.place.zip",)]


def test_a_field_missing_in_the_file_is_null_and_names_with_dots_are_not_pruned(tmp_path: Path) -> None:
    rows = pa.array([{"a.b": 1, "c": 2}], pa.struct([("a.b", pa.int64()), ("c", pa.int64())]))
    pq.write_table(pa.table({"r": rows, "r.c": pa.array([7], pa.int64())}), tmp_path / "rows.parquet")
    env = environment(tmp_path, "r ROW<`a.b` BIGINT, c BIGINT, d BIGINT>, `r.c` BIGINT")
    found = [list(row) for row in env.execute_sql("SELECT r.`a.b`, r.c, r.d, `r.c` FROM bids").collect()]
    assert found == [[1, 2, None, 7]]
    env = environment(tmp_path, "r ROW<`a.b` BIGINT, c BIGINT>, `r.c` BIGINT")
    assert [list(row) for row in env.execute_sql("SELECT r.c, `r.c` FROM bids").collect()] == [[2, 7]]
