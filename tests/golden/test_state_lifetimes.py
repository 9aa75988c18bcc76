"""State time-to-live by processing time: groups and Top-N, set by a hint or by the session, epoch by epoch."""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millstream import query, state_reader
from millstream.common.typeinfo import Types
from millstream.common.types import Row, RowKind
from millstream.datastream import StreamExecutionEnvironment
from millstream.errors import MillstreamError
from millstream.runtime.tables import spilled_values
from millstream.runtime.tables.references.expiry import ExpiringGroups, ExpiringJoin, ExpiringRows
from millstream.state.stored.table_names import LEFT_PARTNERS, RIGHT_PARTNERS
from millstream.table import StreamTableEnvironment
from millstream.testing import EPOCH, Collect, ManualClock, Pause, Script, run

TYPE = Types.ROW_NAMED(["k", "v"], [Types.INT(), Types.LONG()])
TTL_MS = 1_000
GROUPS = "SELECT {hint} k, COUNT(*), SUM(v) FROM t GROUP BY k"
RANKS = (
    "SELECT k, v FROM (SELECT {hint} k, v, ROW_NUMBER() OVER (PARTITION BY k ORDER BY v DESC) AS n FROM t) WHERE n <= 2"
)
HINT = "/*+ STATE_TTL('t' = '1 s') */"
_STORES = itertools.count()
Epochs = list[tuple[int, list[tuple[RowKind, tuple[int, int]]]]]
"""How long the clock goes on before an epoch, and its changes."""


def _row(kind: RowKind, values: tuple[int, int]) -> Row:
    row = Row(*values)
    row.set_row_kind(kind)
    return row


def _job(
    query: str, epochs: Epochs, ttl: str | None = None, *, only_grows: bool = False
) -> tuple[Callable[[StreamExecutionEnvironment], None], Collect, ManualClock]:
    """A program of the query, its sink and its clock."""
    out, clock, items = Collect(), ManualClock(10_000), []
    for pause_ms, changes in epochs:
        items += [Pause(pause_ms), *(_row(kind, values) for kind, values in changes)]

    def build(env: StreamExecutionEnvironment) -> None:
        t_env = StreamTableEnvironment.create(env)
        if ttl is not None:
            t_env.get_config().set("table.exec.state.ttl", ttl)
        stream = env.add_source(Script(items, type_info=TYPE, clock=clock), type_info=TYPE).uid("source")
        table = t_env.from_data_stream(stream) if only_grows else t_env.from_changelog_stream(stream)
        t_env.create_temporary_view("t", table)
        t_env.to_changelog_stream(t_env.sql_query(query)).sink_to(out).uid("sink")

    return build, out, clock


def _emitted(
    query: str,
    epochs: Epochs,
    parallelism: int = 1,
    ttl: str | None = None,
    *,
    only_grows: bool = False,
    stopped_after: int | None = None,
) -> list[list[Any]]:
    """The net changes of each epoch. With `stopped_after` the job stops after that many epochs and is restored in three
    subtasks.
    """
    build, out, clock = _job(query, epochs, ttl, only_grows=only_grows)
    store = f"lifetimes-{next(_STORES)}"
    records = run(build, parallelism=parallelism, clock=clock, store=store, epochs=stopped_after).of(out)
    if stopped_after is not None:
        rest = run(build, parallelism=3, clock=clock, store=store).of(out)
        records = [*records, *(record for record in rest if record.epoch > stopped_after)]
    numbers = sorted({record.epoch for record in records})
    return [[record.value for record in records if record.epoch == number] for number in numbers]


@st.composite
def histories(draw: st.DrawFn, *, only_grows: bool) -> Epochs:
    """Changes of rows with few keys; only existing rows are retracted."""
    live: list[tuple[int, int]] = []
    epochs: Epochs = []
    for _ in range(draw(st.integers(1, 6))):
        changes: list[tuple[RowKind, tuple[int, int]]] = []
        for _ in range(draw(st.integers(1, 5))):
            if live and not only_grows and draw(st.booleans()):
                changes.append((RowKind.DELETE, live.pop(draw(st.integers(0, len(live) - 1)))))
            else:
                live.append((draw(st.integers(0, 2)), draw(st.integers(-3, 3))))
                changes.append((RowKind.INSERT, live[-1]))
        epochs.append((draw(st.sampled_from([0, 1, 400, 999, 1_000, 1_500])), changes))
    return epochs


def _times(epochs: Epochs) -> list[tuple[int, list[tuple[RowKind, tuple[int, int]]]]]:
    now_ms, timed = 10_000, []
    for pause_ms, changes in epochs:
        now_ms += pause_ms
        timed.append((now_ms, changes))
    return timed


def _check(epochs: Epochs, query: str, expected: Callable[[Any, int], Counter[Any]], by_kind: bool, **how: Any) -> None:
    reference = [found for now_ms, changes in _times(epochs) if (found := expected(changes, now_ms))]
    shown = [
        Counter(
            (
                row.get_row_kind() if by_kind else row.get_row_kind() in (RowKind.INSERT, RowKind.UPDATE_AFTER),
                tuple(row),
            )
            for row in rows
        )
        for rows in _emitted(query, epochs, **how)
    ]
    assert shown == reference


@settings(max_examples=15)
@given(epochs=histories(only_grows=False), parallelism=st.integers(1, 2))
def test_groups_expire_when_they_are_not_updated(epochs: Epochs, parallelism: int) -> None:
    groups = ExpiringGroups(TTL_MS)
    query = GROUPS.format(hint=HINT)
    _check(epochs, query, lambda changes, now: Counter(groups.apply(changes, now)), True, parallelism=parallelism)


def _largest(rows: list[Any]) -> list[Any]:
    """The numbers of the two rows with the largest second columns; ties go to the earlier row."""
    order = sorted(range(len(rows)), key=lambda at: -rows[at][1])
    return [order.index(at) + 1 if order.index(at) < 2 else None for at in range(len(rows))]


@pytest.mark.parametrize("only_grows", [True, False])
@settings(max_examples=15)
@given(data=st.data())
def test_top_n_rows_expire_after_their_insertion(data: st.DataObject, only_grows: bool) -> None:
    epochs = data.draw(histories(only_grows=only_grows))
    ranks = ExpiringRows(TTL_MS, _largest, keeps_all=not only_grows)

    def expected(changes: Any, now_ms: int) -> Counter[Any]:
        return _counted(ranks.apply(changes, now_ms))

    query = RANKS.format(hint=HINT).replace("SELECT k, v FROM", "SELECT k, v, n FROM")
    _check(epochs, query, expected, False, only_grows=only_grows)


OVER = "SELECT k, SUM(v) OVER (PARTITION BY k ORDER BY v) FROM t"
JOIN = (
    "SELECT a.k, a.v, b.k, b.v FROM (SELECT k, v FROM t WHERE v >= 0) a {kind} JOIN (SELECT k, v FROM t WHERE v < 0) b "
    "ON a.k = b.k AND a.v + b.v <> 0"
)
EXISTS = (
    "SELECT k, v FROM t WHERE v >= 0 AND {negation}EXISTS (SELECT 1 FROM (SELECT k, v FROM t WHERE v < 0) b "
    "WHERE t.k = b.k AND t.v + b.v <> 0)"
)
JOINS = {
    **{kind: JOIN.format(kind=kind) for kind in ("INNER", "LEFT", "RIGHT", "FULL")},
    "SEMI": EXISTS.format(negation=""),
    "ANTI": EXISTS.format(negation="NOT "),
}


@pytest.mark.parametrize("kind", JOINS)
@settings(max_examples=8)
@given(data=st.data())
def test_a_join_is_consistent_with_its_emitted_results_after_expiry_rescale_and_restart(
    data: st.DataObject, kind: str
) -> None:
    epochs, parallelism = data.draw(histories(only_grows=data.draw(st.booleans()))), data.draw(st.integers(1, 2))
    join = ExpiringJoin(kind, (TTL_MS, TTL_MS), (2, 2), lambda a, b: a[1] + b[1] != 0)

    def expected(changes: Any, now_ms: int) -> Counter[Any]:
        sides = [change for change in changes if change[1][1] >= 0], [change for change in changes if change[1][1] < 0]
        return _counted(join.apply(sides, now_ms))

    stopped_after = data.draw(st.none() | st.integers(1, len(epochs)))
    _check(epochs, JOINS[kind], expected, False, parallelism=parallelism, ttl="1 s", stopped_after=stopped_after)


def _counted(net: Counter[Any]) -> Counter[Any]:
    """Changes in the form that `_check` compares."""
    return Counter({(count > 0, row): abs(count) for row, count in net.items()})


def test_the_session_ttl_applies_to_all_operators_and_a_hint_to_its_own() -> None:
    epochs: Epochs = [(0, [(RowKind.INSERT, (1, 5))]), (2_000, [(RowKind.INSERT, (1, 7))])]
    begins_anew = [[(1, 1, 5)], [(1, 1, 7)]]

    def told(query: str, ttl: str | None = None) -> list[list[tuple[Any, ...]]]:
        return [[tuple(row) for row in rows] for rows in _emitted(query, epochs, ttl=ttl)]

    assert told(GROUPS.format(hint=""), "1 s") == told(GROUPS.format(hint=HINT), "1 d") == begins_anew
    for hint, ttl in (("", None), ("/*+ STATE_TTL('t' = '1 d') */", "1 s"), ("/*+ STATE_TTL('t' = '0') */", "1 s")):
        assert told(GROUPS.format(hint=hint), ttl) == [[(1, 1, 5)], [(1, 1, 5), (1, 2, 12)]]
    assert told(f"SELECT {HINT} DISTINCT k FROM t") == [[(1,)], [(1,)]]
    assert told("SELECT DISTINCT k FROM t") == [[(1,)]]


def test_a_time_to_live_is_reported_before_the_job_starts(caplog: pytest.LogCaptureFixture) -> None:
    epochs: Epochs = [(0, [(RowKind.INSERT, (1, 5))])]
    with caplog.at_level(logging.WARNING):
        _emitted(GROUPS.format(hint="/*+ STATE_TTL('t' = '17 s') */"), epochs)
        assert "a group expires when no row has arrived for it in 17000 ms" in caplog.text
        _emitted(RANKS.format(hint="/*+ STATE_TTL('t' = '18 s') */"), epochs)
        assert "rows of a Top-N or a deduplication expire 18000 ms" in caplog.text


def test_a_retraction_of_an_expired_join_row_is_ignored_and_counted() -> None:
    epochs: Epochs = [(0, [(RowKind.INSERT, (1, 5))]), (2_000, [(RowKind.DELETE, (1, 5)), (RowKind.INSERT, (1, 6))])]
    build, out, clock = _job("SELECT a.v, b.v FROM t AS a JOIN t AS b ON a.k = b.k", epochs, "1 s")
    result = run(build, clock=clock)
    assert [(str(record.value.get_row_kind()), tuple(record.value)) for record in result.of(out)] == [
        ("+I", (5, 5)),
        ("+I", (6, 6)),
    ]
    counters = [metric for name, metric in result.metrics.items() if name.endswith("numForgottenRowsRetracted")]
    assert counters == [{"counter": 2}]  # on both sides


def _changes(query: str, epochs: Epochs, ttl: str | None = None) -> list[list[tuple[str, tuple[Any, ...]]]]:
    return [[(str(row.get_row_kind()), tuple(row)) for row in rows] for rows in _emitted(query, epochs, ttl=ttl)]


def test_a_matched_row_is_not_emitted_as_unmatched_when_its_match_expires() -> None:
    kept_left = JOINS["LEFT"].replace("SELECT", "SELECT /*+ STATE_TTL('b' = '1 s') */", 1)
    epochs: Epochs = [
        (0, [(RowKind.INSERT, (1, 5)), (RowKind.INSERT, (1, -1))]),
        (2_000, [(RowKind.INSERT, (1, -2))]),  # -1 has expired, but is still emitted
        (0, [(RowKind.DELETE, (1, -2))]),
        (0, [(RowKind.DELETE, (1, -1))]),  # now it is not, but its pair is not retracted
        (0, [(RowKind.INSERT, (1, -3))]),
    ]
    assert _changes(kept_left, epochs) == [
        [("+I", (1, 5, 1, -1))],
        [("+I", (1, 5, 1, -2))],
        [("-D", (1, 5, 1, -2))],
        [("+I", (1, 5, None, None))],
        [("-D", (1, 5, None, None)), ("+I", (1, 5, 1, -3))],
    ]


def test_a_row_under_the_other_sides_unique_key_replaces_an_expired_row() -> None:
    sums = "(SELECT k, COUNT(*) AS c FROM t WHERE v < 0 GROUP BY k) b"
    left = "(SELECT k, v FROM t WHERE v >= 0) a"
    query = f"SELECT /*+ STATE_TTL('a' = '0') */ a.k, a.v, b.c FROM {left} LEFT JOIN {sums} ON a.k = b.k"
    epochs: Epochs = [
        (0, [(RowKind.INSERT, (1, 5)), (RowKind.INSERT, (1, -1))]),
        (
            2_000,
            [(RowKind.INSERT, (1, -2))],
        ),  # the group has expired, too: it emits no retraction of its previous result
        (0, [(RowKind.DELETE, (1, -2))]),
    ]
    assert _changes(query, epochs, "1 s") == [
        [("+I", (1, 5, 1))],
        [("+I", (1, 5, 1))],
        [("-D", (1, 5, 1)), ("+I", (1, 5, None))],  # an upsert sink has the current row
    ]


@pytest.mark.parametrize("query", [JOINS["FULL"], RANKS.format(hint=""), OVER])
@pytest.mark.parametrize("lifetimes", [(None, "1 h"), ("1 h", None)])
def test_state_without_ttl_cannot_be_restored_with_ttl_nor_vice_versa(query: str, lifetimes: Any) -> None:
    epochs: Epochs = [(0, [(RowKind.INSERT, (1, 5)), (RowKind.INSERT, (1, -5))]), (1, [(RowKind.INSERT, (1, 6))])]
    store = f"lifetimes-{next(_STORES)}"
    for ttl, is_refused in zip(lifetimes, (False, True), strict=True):
        build, _, clock = _job(query, epochs, ttl)
        if is_refused:
            with pytest.raises(MillstreamError, match=r"was retained (for .*|forever), and is now to be retained for"):
                run(build, store=store, clock=clock)
        else:
            run(build, store=store, clock=clock, epochs=1)


def test_match_counts_live_as_long_as_their_rows_when_a_ttl_is_shortened() -> None:
    epochs: Epochs = [
        (0, [(RowKind.INSERT, (1, 5))]),
        (100, [(RowKind.INSERT, (1, -1))]),
        (1_400, [(RowKind.INSERT, (1, -2))]),  # -1 has expired, 5 has not
    ]
    store, emitted_rows = f"lifetimes-{next(_STORES)}", []
    for ttl, stop in (("2 s", 1), ("1 s", None)):
        build, out, clock = _job(JOINS["LEFT"], epochs, ttl)
        emitted_rows += [
            str(record.value.get_row_kind()) for record in run(build, store=store, clock=clock, epochs=stop).of(out)
        ]
    assert emitted_rows[-3:] == ["-D", "+I", "+I"]


def test_match_counts_can_be_read() -> None:
    build, _, clock = _job(JOINS["FULL"], [(0, [(RowKind.INSERT, (1, value)) for value in (5, 4, -1)])], "1 h")
    run(build, store="standings", clock=clock)
    with state_reader.open("memory://standings").at() as snapshot:
        tables = {info.name: snapshot.read(info.uid, info.name) for info in snapshot.states()}
    assert [(row["row_number"], row["value"]) for row in tables[LEFT_PARTNERS]] == [(0, 1), (1, 1)]
    assert [(row["row_number"], row["value"]) for row in tables[RIGHT_PARTNERS]] == [(0, 2)]


def _restarted(store: str, query: str, second: list[Any], ttl: str | None) -> None:
    """A job over many rows without TTL, restored with other rows and a TTL."""
    first = [_row(RowKind.INSERT, (1, number)) for number in range(2 * spilled_values.VALUES_IN_ROW_MAX)]

    def build(items: list[Any], ttl: str | None) -> Callable[[StreamExecutionEnvironment], None]:
        def built(env: StreamExecutionEnvironment) -> None:
            t_env = StreamTableEnvironment.create(env)
            if ttl is not None:
                t_env.get_config().set("table.exec.state.ttl", ttl)
            stream = env.add_source(Script(items, type_info=TYPE), type_info=TYPE).uid("source")
            t_env.create_temporary_view("t", t_env.from_changelog_stream(stream))
            t_env.to_changelog_stream(t_env.sql_query(query)).sink_to(Collect()).uid("sink")

        return built

    run(build([*first, EPOCH, EPOCH], None), store=store, epochs=1)
    run(build([*first, EPOCH, *second, EPOCH], ttl), store=store)


@pytest.mark.parametrize("call", ["COUNT(DISTINCT v)", "MIN(v)", "LAST_VALUE(v)"])
def test_groups_with_spilled_values_cannot_be_restored_with_ttl(call: str) -> None:
    query, second = f"SELECT k, {call} FROM t GROUP BY k", [_row(RowKind.DELETE, (1, 0))]
    _restarted(f"kept-for-ever-{call}", query, second, None)
    with pytest.raises(MillstreamError, match="values of its large groups are stored separately"):
        _restarted(f"to-expire-{call}", query, second, "1 h")


def test_groups_without_spilled_values_can_be_restored_with_ttl() -> None:
    _restarted("whole-groups", "SELECT k, SUM(v) FROM t GROUP BY k", [_row(RowKind.DELETE, (1, 0))], "1 h")


def test_a_retraction_of_an_expired_row_of_a_keyless_table_is_ignored() -> None:
    clock, store = ManualClock(10_000), "kept-and-forgotten"
    gone = [Pause(2_000), _row(RowKind.DELETE, (1, 5)), _row(RowKind.INSERT, (2, 6)), EPOCH]
    items = [_row(RowKind.INSERT, (1, 5)), _row(RowKind.INSERT, (1, 5)), EPOCH, *gone]

    def build(env: StreamExecutionEnvironment) -> None:
        t_env = StreamTableEnvironment.create(env)
        stream = env.add_source(Script(items, type_info=TYPE, clock=clock), type_info=TYPE)
        t_env.create_temporary_view("t", t_env.from_changelog_stream(stream))
        t_env.execute_sql("CREATE TABLE kept (k INT, v BIGINT) WITH ('connector' = 'state', 'ttl' = '1 s')")
        statements = t_env.create_statement_set()
        statements.add_insert_sql("INSERT INTO kept SELECT k, v FROM t")
        statements.attach_as_datastream()

    assert run(build, store=store, clock=clock).status == "FINISHED"
    assert query.open(f"memory://{store}").newest().table("kept").all().to_pylist() == [{"k": 2, "v": 6}]
