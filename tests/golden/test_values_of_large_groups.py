"""Values spilled from a group's row to rows of their own, for COUNT(DISTINCT) and for MIN and MAX: results do not
depend on the spill threshold.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pytest
from changing_tables import Changelog, RunPlan, answer, check_every_epoch, materialised, random_changelog
from group_values_of_older_versions import EPOCHS_BEFORE, GROWING_TABLE, GROWS, QUERIES, run_query
from inputs.fresh_names import fresh_name

from millstream.aggregation import distinct_arguments as arguments
from millstream.aggregation.distinct_arguments import distinct_arguments
from millstream.common.types import Row, RowKind
from millstream.errors import MillstreamError
from millstream.runtime.tables import group_extremes, group_spills, spilled_values
from millstream.storage.memory import MemoryStore
from millstream.testing import Collect

STORES = Path(__file__).resolve().parents[1] / "compatibility"
REFUSED = STORES / "group-values-4.zip"
YESTERDAY = sorted(set(STORES.glob("group-values-*.zip")) - {REFUSED})

QUERY = """SELECT k, COUNT(DISTINCT s), COUNT(DISTINCT v), COUNT(DISTINCT v) FILTER (WHERE x > 0), COUNT(DISTINCT x),
    MAX(v), SUM(DISTINCT v), SUM(DISTINCT x) FILTER (WHERE v > 0), AVG(DISTINCT x), ROUND(VAR_POP(DISTINCT x), 9),
    SUM(DISTINCT CAST(v AS DECIMAL(20, 2))), COUNT(DISTINCT v > 0), COUNT(*) FROM t GROUP BY k"""


@pytest.mark.parametrize("values_in_row", [0, 1, 3])
@pytest.mark.parametrize("only_grows", [True, False], ids=["only-grows", "changes"])
def test_distinct_counts_match_the_batch_answer_after_every_epoch(
    only_grows: bool, values_in_row: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spilled_values, "VALUES_IN_ROW_MAX", values_in_row)
    for seed in range(3):
        random = Random(f"{only_grows} {values_in_row} {seed}")
        table = random_changelog(random, 6, random.choice((4, 12, 30)), only_grows=only_grows, keys=2)
        check_every_epoch(QUERY, {"t": table}, RunPlan.random(random, 6), only_grows=only_grows)


def test_a_retraction_of_an_absent_value_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilled_values, "VALUES_IN_ROW_MAX", 0)
    gone = Row.of_kind(RowKind.DELETE, 1, 9, "z", 0.5)
    table = Changelog([[Row(1, 1, "a", 0.5), Row(1, 2, "b", 0.5)], [gone]])
    with pytest.raises(MillstreamError, match="value 'z' was retracted that was never inserted"):
        check_every_epoch("SELECT k, COUNT(DISTINCT s) FROM t GROUP BY k", {"t": table}, RunPlan(), only_grows=False)


@pytest.mark.parametrize(
    "value",
    [
        "CAST(v AS DECIMAL(10, 2))",
        "CAST(v AS SMALLINT)",
        "CASE WHEN v > 0 THEN DATE '2020-01-01' WHEN v < 0 THEN DATE '2021-01-01' END",
        "CASE WHEN v > 0 THEN TIME '10:00:00' WHEN v < 0 THEN TIME '11:00:00' END",
        "CASE WHEN v > 0 THEN TIMESTAMP '2020-01-01 00:00:00' ELSE TIMESTAMP '2021-01-01 00:00:00' END",
    ],
)
def test_values_of_any_type_are_counted(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spilled_values, "VALUES_IN_ROW_MAX", 1)
    table = random_changelog(Random(value), 4, 12, only_grows=False, keys=2)
    check_every_epoch(
        f"SELECT k, COUNT(DISTINCT {value}) FROM t GROUP BY k", {"t": table}, RunPlan(2), only_grows=False
    )


EXTREMES = """SELECT k, MIN(v), MAX(v), MAX(s), MIN(s), MIN(x), MAX(x) FILTER (WHERE v > 0), COUNT(DISTINCT v), COUNT(*)
    FROM t GROUP BY k"""


@pytest.mark.parametrize(("values", "values_max"), [(1, 1), (1, 3), (2, 4)])
@pytest.mark.parametrize("keys", [1, 3])
def test_min_and_max_match_the_batch_answer_after_every_epoch(
    keys: int, values: int, values_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_extremes, "HEAD_VALUES", values)
    monkeypatch.setattr(group_extremes, "HEAD_VALUES_MAX", values_max)
    for seed in range(3):
        random = Random(f"{keys} {values} {values_max} {seed}")
        table = random_changelog(random, 8, random.choice((6, 12, 30)), only_grows=False, keys=keys)
        check_every_epoch(EXTREMES, {"t": table}, RunPlan.random(random, 8), only_grows=False)


@pytest.mark.parametrize(
    "value",
    [
        "CAST(v AS DECIMAL(10, 2))",
        "CAST(v AS DECIMAL(38, 5))",
        "CAST(v AS SMALLINT)",
        "v > 0",
        "'a long text that begins as others do ' || s",
        "CASE WHEN v > 0 THEN DATE '2020-01-01' WHEN v < 0 THEN DATE '2021-01-01' END",
        "CASE WHEN v > 0 THEN TIME '10:00:00' WHEN v < 0 THEN TIME '11:00:00' END",
        "CASE WHEN v > 0 THEN TIMESTAMP '2020-01-01 00:00:00' ELSE TIMESTAMP '2021-01-01 00:00:00' END",
    ],
)
def test_min_and_max_of_values_of_any_type(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_extremes, "HEAD_VALUES", 1)
    monkeypatch.setattr(group_extremes, "HEAD_VALUES_MAX", 1)
    table = random_changelog(Random(value), 5, 12, only_grows=False, keys=2)
    query = f"SELECT k, MIN({value}), MAX({value}) FROM t GROUP BY k"
    check_every_epoch(query, {"t": table}, RunPlan(2), only_grows=False)


# Before decision 0040 a value deleted and inserted again within an epoch retained its position.
FIRST_AS_IT_WAS = 5


@pytest.mark.parametrize("values_max", [1, 256])
@pytest.mark.parametrize("archive", YESTERDAY, ids=lambda path: path.stem)
def test_groups_of_an_earlier_version_are_resumed(
    archive: Path, values_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    number = int(archive.stem.rsplit("-", 1)[1])
    monkeypatch.setattr(spilled_values, "VALUES_IN_ROW_MAX", values_max)
    monkeypatch.setattr(group_extremes, "HEAD_VALUES", 1)
    monkeypatch.setattr(group_extremes, "HEAD_VALUES_MAX", values_max)
    store, out, whole, first = fresh_name("yesterday"), Collect(), Collect(), Collect()
    unpack(archive, store)
    rest = run_query(number, store, out)[out]
    before = run_query(number, f"{store}-anew", first, epochs=EPOCHS_BEFORE[number])[first]
    everything = run_query(number, f"{store}-whole", whole)[whole]
    if number == FIRST_AS_IT_WAS:  # earlier output has the older definition
        before, rest, everything = (list(map(without_first, rows)) for rows in (before, rest, everything))
    assert materialised([*before, *rest]) == materialised(everything)
    assert rest, "the archive had nothing left to go on with"


def without_first(row: Row) -> Row:
    """A row of `FIRST_AS_IT_WAS` without its FIRST_VALUE."""
    left = Row(*(value for place, value in enumerate(row) if place != 2))
    left.set_row_kind(row.get_row_kind())
    return left


def unpack(archive: Path, store: str) -> None:
    with zipfile.ZipFile(archive) as files:
        for file in files.namelist():
            MemoryStore(store).put(file, files.read(file))


ADDED = """, COUNT(DISTINCT v) FILTER (WHERE x < 0), SUM(DISTINCT v) FILTER (WHERE x < 1),
    COUNT(DISTINCT s) FILTER (WHERE v < 0), COUNT(DISTINCT x) FROM t"""


@pytest.mark.parametrize("values_max", [0, 2, 256])
@pytest.mark.parametrize("is_older_version", [False, True], ids=["today", "yesterday"])
def test_an_added_aggregate_of_an_aggregated_column_counts_rows_from_then_on(
    is_older_version: bool, values_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, out = fresh_name("added"), Collect()
    monkeypatch.setattr(spilled_values, "VALUES_IN_ROW_MAX", 3)
    if is_older_version:
        unpack(STORES / f"group-values-{GROWS}.zip", store)
    else:
        run_query(GROWS, store, Collect(), epochs=EPOCHS_BEFORE[GROWS])
    monkeypatch.setattr(spilled_values, "VALUES_IN_ROW_MAX", values_max)
    query = QUERIES[GROWS]
    added = query.replace(" FROM t", ADDED)
    changes = run_query(GROWS, store, out, query=added)[out]
    last = {row[0]: tuple(row) for row in changes if row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER)}
    before, since = (
        [tuple(row) for epoch in epochs for row in epoch]
        for epochs in (GROWING_TABLE.epochs[: EPOCHS_BEFORE[GROWS]], GROWING_TABLE.epochs[EPOCHS_BEFORE[GROWS] :])
    )
    with duckdb.connect() as database:
        whole = {row[0]: row for row in answer(database, query, {"t": [*before, *since]})}
        new = {row[0]: row for row in answer(database, added, {"t": since})}
    assert last == {key: (*whole[key], *row[len(whole[key]) :]) for key, row in new.items()}
    assert len(last) > 2


def each_alone(measures: Any, ttl_ms: int | None) -> Any:
    return tuple((number,) for numbers in distinct_arguments(measures, ttl_ms) for number in numbers)


@pytest.mark.parametrize(("before", "now"), [(distinct_arguments, each_alone), (each_alone, distinct_arguments)])
def test_values_shared_by_other_aggregates_are_rejected(before: Any, now: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a planner would plan them that detects more, or fewer, equal input columns."""

    def run_with(rule: Any, epochs: int | None = None) -> None:
        for module in (arguments, group_spills):
            monkeypatch.setattr(module, "distinct_arguments", rule)
        run_query(GROWS, store, Collect(), epochs=epochs)

    monkeypatch.setattr(spilled_values, "VALUES_IN_ROW_MAX", 3)
    store = fresh_name("shared")
    run_with(before, EPOCHS_BEFORE[GROWS])
    with pytest.raises(MillstreamError, match="other DISTINCT aggregates of this query shared an argument"):
        run_with(now)


def test_values_spilled_by_an_earlier_version_are_rejected() -> None:
    store = fresh_name("refused")
    unpack(REFUSED, store)
    with pytest.raises(
        MillstreamError, match="numbered the values of a DISTINCT aggregate after a MIN or MAX differently"
    ):
        run_query(4, store, Collect())
    assert max(MemoryStore(store).list("manifests/")) == "manifests/000000000005.json", "nothing was committed"
