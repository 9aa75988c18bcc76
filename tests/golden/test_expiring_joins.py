"""A join drops rows that no later row can match: results are unaffected, and its state is bounded."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from timed_tables import TimedTable, ran, random_tables, stored_rows

from millstream.planner import passes
from millstream.planner.passes.derive_expiry import derive_expiry
from millstream.state.stored.table_names import LEFT_PARTNERS

MAXIMA = (
    "SELECT MAX(v) AS v, window_start, window_end FROM TABLE(TUMBLE(TABLE u, DESCRIPTOR(ts), INTERVAL '2' SECOND)) "
    "GROUP BY window_start, window_end"
)
QUERIES = (
    f"SELECT t.k, t.v, t.t, w.window_end FROM t JOIN ({MAXIMA}) w ON t.v = w.v "
    "WHERE t.ts BETWEEN w.window_end - INTERVAL '2' SECOND AND w.window_end",
    f"SELECT t.k, t.v, t.t, w.window_end FROM t JOIN ({MAXIMA}) w ON t.v = w.v "
    "AND t.ts + INTERVAL '1' SECOND > w.window_start",
    f"SELECT t.k, t.t, w.window_end FROM ({MAXIMA}) w RIGHT JOIN t ON w.v = t.v AND w.window_end < t.ts",
    f"SELECT t.k, t.v, t.t FROM t WHERE EXISTS (SELECT 1 FROM ({MAXIMA}) w WHERE w.v = t.v AND t.ts >= w.window_start)",
    f"SELECT t.k, t.v, t.t FROM t LEFT JOIN ({MAXIMA}) w ON w.v = t.v AND w.window_end = t.ts",
    f"SELECT q.v, COUNT(*) FROM t JOIN ({MAXIMA}) q ON t.v = q.v AND q.window_end <= t.ts GROUP BY q.v",
)


def changes_of(
    query: str, tables: dict[str, TimedTable], parallelism: int, config: dict[str, str] | None = None
) -> list[Counter[Any]]:
    """The changes of each epoch."""
    result, out = ran(query, tables, parallelism=parallelism, config=config)
    epochs = max(len(table.epochs) for table in tables.values()) + 1
    given = [Counter[Any]() for _ in range(epochs + 1)]
    for record in result.of(out):
        given[min(record.epoch, epochs)][(tuple(record.value), record.value.get_row_kind())] += 1
    return given


@pytest.mark.parametrize("query", QUERIES)
def test_an_expiring_join_emits_the_same_changes_in_every_epoch(query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(3):
        random = Random(f"{query} {seed}")
        tables = random_tables(random, 7, 8)
        tables["t"].crashes = (random.randrange(7),) if seed % 2 else ()
        forgetting = changes_of(query, tables, seed % 3 + 1)
        with monkeypatch.context() as patch:
            patch.setattr(passes, "PASSES", tuple(each for each in passes.PASSES if each is not derive_expiry))
            assert forgetting == changes_of(query, tables, seed % 3 + 1)


def test_the_state_of_a_window_join_is_bounded() -> None:
    tables = {
        name: TimedTable([([("a", at % 7, at * 1_000 + n) for n in range(20)], at * 1_000) for at in range(30)])
        for name in ("t", "u")
    }
    kept, _ = ran(QUERIES[0], tables, parallelism=1)
    rows = [stored_rows(manifest) for manifest in kept.manifests]
    assert max(rows) < 150 and rows[-1] < 150, rows  # of 600 bids that arrived


TTL = {"table.exec.state.ttl": "1 d"}


@pytest.mark.parametrize("query", QUERIES[2:5])
def test_rows_that_expire_by_event_time_stay_consistent_with_processing_time_ttl(
    query: str,
) -> None:
    for seed in range(2):
        random = Random(f"{query} {seed}")
        tables = random_tables(random, 7, 8)
        tables["t"].crashes = (random.randrange(7),) if seed % 2 else ()
        assert changes_of(query, tables, seed + 1, TTL) == changes_of(query, tables, seed + 1)


def test_match_counts_expire_with_their_rows() -> None:
    tables = {
        name: TimedTable([([("a", at % 7, at * 1_000 + n) for n in range(20)], at * 1_000) for at in range(30)])
        for name in ("t", "u")
    }
    kept, _ = ran(QUERIES[4], tables, parallelism=1, config=TTL)
    rows = [stored_rows(manifest, LEFT_PARTNERS) for manifest in kept.manifests]
    assert 0 < max(rows) < 150, rows  # of 600 bids that arrived
