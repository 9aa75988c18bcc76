"""A changed query is compared with the meaning of its stored state, on every way to start it."""

from __future__ import annotations

import itertools
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from programs.changed_queries import PAIRS, ROWS, STORED, Pair, program, rows_of

from millstream.checkpoint.manifest import ManifestLog
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import StateSchemaError
from millstream.storage.memory import MemoryStore
from millstream.testing import Collect, run

_STORES = itertools.count()


def new_store() -> str:
    return f"changed-{next(_STORES)}"


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_a_restart_resumes_only_state_with_the_same_meaning(pair: Pair, caplog: pytest.LogCaptureFixture) -> None:
    store, out = new_store(), Collect()
    first = run(program(pair.old, out), store=store, epoch_records=9, epochs=2)
    assert first.status == "SUSPENDED"
    manifests = ManifestLog(MemoryStore(store)).epochs()
    caplog.clear()
    again = Collect()
    if pair.fate == "lost":
        with pytest.raises(StateSchemaError) as refused:
            run(program(pair.new, again), store=store, epoch_records=9)
        assert "lost " in str(refused.value) and pair.told in str(refused.value)
        assert ManifestLog(MemoryStore(store)).epochs() == manifests  # no epoch was committed
        # The unchanged query resumes, and emits what it would have emitted.
        rest = run(program(pair.old, again), store=store, epoch_records=9)
        assert rows_of(first[out] + rest[again]) == uninterrupted(pair.old)
        return
    rest = run(program(pair.new, again), store=store, epoch_records=9)
    if pair.fate == "kept":
        assert rest.status == "FINISHED" and "extended" not in caplog.text
    else:
        assert "extended  GroupAggregate" in caplog.text and pair.told in caplog.text


def changes_in(out: Collect) -> list[Any]:
    return [record.value for record in out.records]


def uninterrupted(query: str) -> list[tuple[object, ...]]:
    out = Collect()
    return rows_of(run(program(query, out))[out])


# --- other ways to start ----------------------------------------------------------------------------------------------

SUMS = "SELECT k, SUM(a) FROM orders GROUP BY k"
OTHER_SUMS = "SELECT k, SUM(b) FROM orders GROUP BY k"


def begun(query: str = SUMS) -> tuple[str, list[tuple[object, ...]]]:
    """A store with two epochs of a query, and the rows it has emitted."""
    store, out = new_store(), Collect()
    return store, rows_of(run(program(query, out), store=store, epoch_records=9, epochs=2)[out])


def configured(query: str, out: Collect, **settings: str) -> Callable[[StreamExecutionEnvironment], None]:
    build = program(query, out)

    def with_settings(env: StreamExecutionEnvironment) -> None:
        for key, value in settings.items():
            env._configuration.set_string(key, value)
        build(env)

    return with_settings


def test_a_fork_and_a_start_from_an_older_epoch_are_checked_before_a_store_is_claimed() -> None:
    store, _ = begun()
    before = MemoryStore(store).list("")
    for place in (new_store(), store):
        recovery = {"execution.state-recovery.path": f"memory://{store}@1"}
        with pytest.raises(StateSchemaError, match=r"it stored SUM\(a\), and would store SUM\(b\)"):
            run(configured(OTHER_SUMS, Collect(), **recovery), store=place, epoch_records=9)
    assert MemoryStore(place).list("") == before
    forked = new_store()
    out = Collect()
    assert run(configured(SUMS, out, **recovery), store=forked, epoch_records=9).status == "FINISHED"
    assert changes_in(out)


def test_unmatched_state_is_dropped_or_retained_on_request(caplog: pytest.LogCaptureFixture) -> None:
    store, _ = begun()
    out = Collect()
    run(configured(OTHER_SUMS, out, **{"millstream.sql.lost-state": "drop"}), store=store, epoch_records=9)
    read = 2 * 9
    expected = {k: sum(n % 5 for n in range(read, ROWS) if n % 3 == k) for k in range(3)}
    assert rows_of(changes_in(out)) == sorted(expected.items())
    assert "it begins empty" in caplog.text
    # From then on the store has the meaning of the new query.
    with pytest.raises(StateSchemaError, match=r"it stored SUM\(b\), and would store SUM\(a\)"):
        run(program(SUMS, Collect()), store=store, epoch_records=9)
    store, rows = begun()
    out = Collect()
    same = "SELECT k, SUM(a + 0) FROM orders GROUP BY k"
    with pytest.raises(StateSchemaError, match="'keep', if you know that its meaning is the same"):
        run(program(same, out), store=store, epoch_records=9)
    rest = run(configured(same, out, **{"millstream.sql.lost-state": "keep"}), store=store, epoch_records=9)
    assert rest.status == "FINISHED" and "used all the same" in caplog.text
    assert rows_of(changes_in(out), rows) == uninterrupted(SUMS)


def test_state_downstream_of_dropped_state_is_dropped_too() -> None:
    counted = "SELECT c, COUNT(*) FROM ({inner}) GROUP BY c"
    store, _ = begun(counted.format(inner="SELECT k, COUNT(*) AS c FROM orders GROUP BY k"))
    changed = counted.format(inner="SELECT k, COUNT(*) AS c FROM orders WHERE a > 1 GROUP BY k")
    with pytest.raises(StateSchemaError) as refused:
        run(program(changed, Collect()), store=store, epoch_records=9)
    assert str(refused.value).count("\nlost ") == 2
    out = Collect()
    run(configured(changed, out, **{"millstream.sql.lost-state": "drop"}), store=store, epoch_records=9)
    counts = Counter(Counter(n % 3 for n in range(18, ROWS) if n % 7 > 1).values())
    assert rows_of(changes_in(out)) == sorted(counts.items())


def test_an_operator_that_would_receive_retractions_of_unseen_rows_cannot_start_empty() -> None:
    store, _ = begun()
    behind = "SELECT total, COUNT(*) FROM (SELECT k, SUM(a) AS total FROM orders GROUP BY k) GROUP BY total"
    with pytest.raises(StateSchemaError, match="it cannot begin empty downstream of GroupAggregate") as refused:
        run(program(behind, Collect()), store=store, epoch_records=9)
    assert "'drop'" not in str(refused.value)  # this option does not help


def test_unmatched_state_downstream_of_resumed_state_is_not_dropped() -> None:
    counted = "SELECT {call} FROM (SELECT k, SUM(a) AS total FROM orders GROUP BY k)"
    store, _ = begun(counted.format(call="MAX(total)"))
    changed = counted.format(call="MIN(total)")
    for choice in ("refuse", "drop"):
        with pytest.raises(StateSchemaError, match="it cannot begin empty downstream of GroupAggregate") as refused:
            run(configured(changed, Collect(), **{"millstream.sql.lost-state": choice}), store=store, epoch_records=9)
        assert "'drop'" not in str(refused.value) and "'keep'" in str(refused.value)


def test_an_added_aggregate_counts_rows_from_now_on() -> None:
    store, _ = begun()
    out = Collect()
    run(program("SELECT k, SUM(a), COUNT(b) FROM orders GROUP BY k", out), store=store, epoch_records=9)
    last = {row[0]: tuple(row) for row in changes_in(out) if str(row.get_row_kind()) == "+U"}
    assert last == {
        k: (k, sum(n % 7 for n in range(ROWS) if n % 3 == k), sum(n % 3 == k for n in range(18, ROWS)))
        for k in range(3)
    }


# --- stores of other versions -----------------------------------------------------------------------------------------

FOLDER = Path(__file__).resolve().parents[1] / "compatibility"


def store_of_version(number: int) -> str:
    name = new_store()
    with zipfile.ZipFile(FOLDER / f"sql-store-{number}.zip") as archive:
        for file in archive.namelist():
            MemoryStore(name).put(file, archive.read(file))
    return name


@pytest.mark.parametrize("number", [1, 2])
def test_a_store_of_an_older_version_is_resumed(number: int, caplog: pytest.LogCaptureFixture) -> None:
    out, today = Collect(), Collect()
    begin = new_store()
    run(program(STORED, Collect()), store=begin, epoch_records=9, epochs=2, job_name="stored")
    run(program(STORED, today), store=begin, epoch_records=9, job_name="stored")
    caplog.clear()
    run(program(STORED, out), store=store_of_version(number), epoch_records=9, job_name="stored")
    assert sorted(map(str, changes_in(out))) == sorted(map(str, changes_in(today)))
    assert ("was not checked" in caplog.text) == (number == 1)


def test_a_store_without_meanings_is_accepted_once_and_checked_from_then_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = store_of_version(1)
    run(program(STORED, Collect()), store=store, epoch_records=9, epochs=5, job_name="stored")
    assert caplog.text.count("was not checked") == 1
    run(program(STORED, Collect()), store=store, epoch_records=9, epochs=7, job_name="stored")
    assert caplog.text.count("was not checked") == 1
    with pytest.raises(StateSchemaError, match=r"SUM\(b\)"):
        run(program(STORED.replace("SUM(a)", "SUM(b)"), Collect()), store=store, epoch_records=9, job_name="stored")


def test_a_stored_meaning_equals_the_current_versions_meaning_of_the_query() -> None:
    # If this fails, the text of meanings changed: every store would be rejected. Restore the text, or define a
    # new FORM, with a store under the next number.
    newest = ManifestLog(MemoryStore(store_of_version(2))).newest()
    again = new_store()
    run(program(STORED, Collect()), store=again, epoch_records=9, epochs=2, job_name="stored")
    assert newest is not None and newest.meanings == ManifestLog(MemoryStore(again)).newest().meanings  # type: ignore[union-attr]


def test_meanings_of_a_newer_form_are_not_compared(caplog: pytest.LogCaptureFixture) -> None:
    store, _ = begun()
    log = ManifestLog(MemoryStore(store))
    newest = log.newest()
    assert newest is not None
    newer = {uid: {"form": 99, "words": "others"} for uid in newest.meanings}
    assert log.commit(replace(newest, epoch=newest.epoch + 1, parent=newest.epoch, meanings=newer))
    assert run(program(OTHER_SUMS, Collect()), store=store, epoch_records=9).status == "FINISHED"
    assert "form 99" in caplog.text
