"""Groups by arrays, maps and rows with nested values survive a restart at another parallelism; their state is readable
and complete.
"""

from __future__ import annotations

from typing import Any

import pytest
from inputs.fresh_names import fresh_name

from millstream import state_reader
from millstream.common import Row, RowKind, Types
from millstream.datastream import StreamExecutionEnvironment
from millstream.state_reader.verifying import verify
from millstream.table import StreamTableEnvironment
from millstream.testing import EPOCH, Collect, Script, run

TYPE = Types.ROW_NAMED(["k", "v"], [Types.INT(), Types.LONG()])
KEYS = {
    "array": "ARRAY[k, k + 1]",
    "map": "CASE WHEN v < 0 THEN MAP['a', k, 'b', 1] ELSE MAP['b', 1, 'a', k] END",
    "row": "ROW(k, ARRAY[MAP['a', k]])",
    "multiple keys": "ARRAY[k], MAP['a', k]",
}
ROWS = [(n % 7, n if n % 3 else -n) for n in range(60)]


@pytest.mark.parametrize("keys", KEYS.values(), ids=KEYS)
def test_groups_by_nested_values_survive_a_rescale(keys: str) -> None:
    items: list[Any] = []
    for number, row in enumerate(ROWS):
        items += [Row(*row), *([EPOCH] if number % 10 == 9 else [])]
    store, out = fresh_name("nested-keys"), Collect()
    names = ", ".join(f"g{number}" for number in range(keys.count(", MAP") + 1 if keys.startswith("ARRAY[k],") else 1))

    def build(env: StreamExecutionEnvironment) -> None:
        t_env = StreamTableEnvironment.create(env)
        t_env.create_temporary_view("t", t_env.from_data_stream(env.add_source(Script(items, type_info=TYPE))))
        grouped = f"SELECT * FROM (SELECT k, v, {keys} FROM t) AS r(k, v, {names})"
        query = f"SELECT MIN(k), COUNT(*), SUM(v) FROM ({grouped}) GROUP BY {names}"
        t_env.to_changelog_stream(t_env.sql_query(query)).sink_to(out)

    changes = [*run(build, store=store, parallelism=2, epochs=2)[out], *run(build, store=store, parallelism=3)[out]]
    table: list[tuple[Any, ...]] = []
    for row in changes:
        if row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER):
            table.append(tuple(row))
        else:
            table.remove(tuple(row))
    expected = []
    for key in range(7):
        values = [v for k, v in ROWS if k == key]
        expected.append((key, len(values), sum(values)))
    assert sorted(table) == expected
    with state_reader.open(f"memory://{store}").at() as snapshot:
        for info in snapshot.states():
            assert len(list(snapshot.read(info.uid, info.name))) == len(expected)
    assert verify(f"memory://{store}").is_whole
