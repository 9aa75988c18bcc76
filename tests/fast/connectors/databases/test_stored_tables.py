"""What a store says of a table: documents of older versions are read, too."""

from __future__ import annotations

import pytest

from millstream.checkpoint.sealed import seal
from millstream.common import Types
from millstream.connectors.batch_series import input_folder
from millstream.connectors.databases.captured_tables import CapturedTable, TablePart, admitted_parts
from millstream.connectors.databases.dialect import TableName
from millstream.connectors.databases.pgoutput import LoggedColumn
from millstream.connectors.databases.stored_tables import load_table, save_table
from millstream.errors import ProgramError
from millstream.state.schemas.saved_types import written_type
from millstream.storage.memory import MemoryStore

# As version 0.1.0 wrote it before tables were known by their numbers.
OLDER = {
    "series": "00ff",
    "table": "public.t",
    "type": written_type(Types.ROW_NAMED(["id"], [Types.INT()])),
    "store": "memory://s",
    "files": [{"file": "input/t/rows-00ff/00000.parquet", "rows": 3, "bytes": 10, "crc32": 7}],
    "slot": "millstream_00ff",
    "publication": "millstream_t",
    "lsn": 99,
    "columns": [{"name": "id", "type_number": 23}],
}


def test_a_document_of_an_older_version_is_read_and_written_anew() -> None:
    store = MemoryStore("older-table")
    store.put(f"{input_folder('t')}/table.json", seal("input-table", 1, OLDER))
    stored = load_table(store, "t")
    assert stored is not None
    assert (stored.slot, stored.lsn, stored.relation, stored.parts, stored.key) == ("millstream_00ff", 99, 0, (), ())
    assert stored.columns == (LoggedColumn("id", 23),) and not stored.is_partitioned
    save_table(store, "t", stored)
    assert load_table(store, "t") == stored


A, B = TablePart(1, 100), TablePart(2, 101)


def tree(*parts: TablePart, made: frozenset[int] = frozenset()) -> CapturedTable:
    names = tuple(f"p{part.relation}" for part in parts)
    return CapturedTable(9, TableName(("public", "t")), True, parts, names, made)


def test_partitions_that_were_made_as_such_join_and_others_do_not() -> None:
    assert admitted_parts((A,), tree(A, B, made=frozenset({2})), "Changes", skips_removals=False) == (A, B)
    with pytest.raises(ProgramError, match="Changes: partition p2 was attached"):
        admitted_parts((A,), tree(A, B), "Changes", skips_removals=True)
    with pytest.raises(ProgramError, match="partition p1 was attached"):
        admitted_parts((A,), tree(TablePart(1, 200), made=frozenset({1})), "Changes", skips_removals=True)


def test_a_removed_partition_is_reported_unless_removals_are_skipped() -> None:
    with pytest.raises(ProgramError, match="1 of the table's partitions were detached or dropped"):
        admitted_parts((A, B), tree(B), "Changes", skips_removals=False)
    assert admitted_parts((A, B), tree(B), "Changes", skips_removals=True) == (B,)
