"""The epoch protocol with epochs running ahead, one rule per test. Every history is in `test_running_ahead.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from test_protocol import all_events

from millstream.checkpoint import events as e
from millstream.checkpoint.ahead import Acknowledged, AheadBounds, may_run_ahead
from millstream.checkpoint.events import Action, Event
from millstream.checkpoint.failing import EXCUSED_MAX, UNAVAILABLE_IN_TASKS_MAX, UNAVAILABLE_PAUSE_MS
from millstream.checkpoint.phases import AHEAD_MOVES
from millstream.checkpoint.protocol import IllegalMoveError, Phase, ProtocolState, begin, decide
from millstream.checkpoint.restart import FixedDelay, NoRestart, RestartPolicy

BOUNDS = AheadBounds(epochs_max=2, bytes_max=100, age_max_ms=1_000)
MORE, LAST = e.InputPlanned(True, False), e.InputPlanned(True, True)
COMMITTED, STOP, UNAVAILABLE, BACK = e.Committed(), e.StopRequested(), e.StoreUnavailable(), e.StoreAvailable()


def done(bytes: int = 1, at_ms: int = 0, joins: bool = True) -> e.EpochDone:
    return e.EpochDone(bytes, at_ms, joins)


def after(
    *events: Event, policy: RestartPolicy | None = None, bounds: AheadBounds = BOUNDS
) -> tuple[ProtocolState, tuple[Action, ...]]:
    state, actions = begin(policy or NoRestart(), bounds=bounds), tuple[Action, ...]()
    for event in (e.Started(None), *events):
        state, actions = decide(state, event)
    return state, actions


def actions_of(*events: Event, **how: AheadBounds) -> tuple[Action, ...]:
    return after(*events, **how)[1]


def test_the_next_epoch_is_planned_while_the_previous_one_is_committed() -> None:
    assert actions_of(MORE, done()) == (e.Commit(1, 0, "RUNNING"), e.PlanInput(2))


def test_an_epoch_is_published_once_it_is_committed_and_not_before() -> None:
    assert actions_of(MORE, done(), MORE, COMMITTED) == (e.Publish(1),)


def test_epochs_acknowledged_during_a_commit_and_publish_become_one_commit() -> None:
    ahead = (MORE, done(), MORE, done(), COMMITTED, MORE, done())
    assert actions_of(*ahead) == ()
    assert actions_of(*ahead, e.Published(1)) == (e.Commit(2, 1, "RUNNING", steps=2),)


def test_epochs_that_do_not_join_are_committed_one_by_one() -> None:
    ahead = (MORE, done(), MORE, done(), COMMITTED, MORE, done(joins=False), e.Published(1))
    assert actions_of(*ahead) == (e.Commit(2, 1, "RUNNING"),)
    assert actions_of(*ahead, COMMITTED, e.Published(2)) == (e.Commit(3, 2, "RUNNING"),)


def test_no_epoch_is_planned_beyond_the_bound_until_a_commit() -> None:
    full = (MORE, done(), MORE, done())
    assert after(*full)[0].phase is Phase.HOLDING
    assert actions_of(*full, COMMITTED) == (e.Publish(1), e.PlanInput(3))


def test_epochs_running_ahead_are_also_bounded_by_bytes_and_age() -> None:
    assert after(MORE, done(bytes=100))[0].phase is Phase.HOLDING
    wide = replace(BOUNDS, epochs_max=9)
    assert after(MORE, done(), MORE, done(at_ms=999), bounds=wide)[0].phase is Phase.PLANNING
    assert after(MORE, done(), MORE, done(at_ms=1_000), bounds=wide)[0].phase is Phase.HOLDING


def test_while_the_store_is_unavailable_only_bytes_and_age_bound_the_epochs_running_ahead() -> None:
    assert actions_of(MORE, done(), MORE, done(), UNAVAILABLE) == (e.PlanInput(3),)
    assert after(MORE, done(), UNAVAILABLE, MORE, done(), MORE, done(), MORE, done(bytes=97))[0].phase is Phase.HOLDING
    assert after(MORE, done(), UNAVAILABLE, MORE, done(), MORE, BACK, done())[0].phase is Phase.HOLDING
    first = Acknowledged(0, 0, False, False)
    assert not may_run_ahead([first], AheadBounds(), store_unavailable=True)


def test_a_stop_waits_until_everything_is_committed_and_published() -> None:
    stopped = (MORE, done(), MORE, STOP, done())
    assert after(*stopped)[0].phase is Phase.SETTLING
    assert actions_of(*stopped, COMMITTED, e.Published(1)) == (e.Commit(2, 1, "RUNNING"),)
    closing = actions_of(*stopped, COMMITTED, e.Published(1), COMMITTED, e.Published(2))
    assert closing == (e.Commit(3, 3, "SUSPENDED"),)


def test_the_last_input_is_drained_in_the_commit_that_contains_it() -> None:
    ended = (MORE, done(), LAST, done(), COMMITTED, e.Published(1))
    assert actions_of(*ended) == (e.Commit(2, 1, "DRAINED"),)
    assert actions_of(*ended, COMMITTED, e.Published(2)) == (e.Commit(3, 3, "FINISHED"),)


def test_a_failure_abandons_the_commit_in_flight_and_waits_for_its_end() -> None:
    policy = FixedDelay(attempts=9, delay_ms=5)
    broken = e.EpochFailed("a task failed", retryable=True, at_ms=0)
    state, actions = after(MORE, done(), MORE, broken, policy=policy)
    assert (state.phase, actions) == (Phase.FAILING, (e.AbandonCommit(),))
    for end in (COMMITTED, e.CommitFailed("given up", at_ms=0)):
        ended, actions = decide(state, end)
        assert (ended.phase, actions) == (Phase.RESTARTING, (e.Restart(5, "a task failed"),))
        assert decide(ended, e.Started(None))[0].acknowledged == ()


def test_a_failed_commit_waits_for_the_running_epoch_and_discards_it() -> None:
    state, actions = after(MORE, done(), MORE, e.CommitFailed("files do not come", at_ms=0, excuse="lost"))
    assert (state.phase, actions) == (Phase.FAILING, ())
    state, actions = decide(state, done())
    assert actions == (e.Restart(0, "files do not come", tolerated=True),)


def test_an_unavailable_store_consumes_no_restart() -> None:
    unavailable = e.EpochFailed("no answer", retryable=True, at_ms=0, excuse="away")
    state, actions = after(MORE, unavailable)
    for _ in range(100):
        assert actions == (e.Restart(UNAVAILABLE_PAUSE_MS, "no answer", tolerated=True),)
        state, actions = decide(state, unavailable)
    assert actions == (e.Restart(UNAVAILABLE_PAUSE_MS, "no answer", tolerated=True),)
    state, actions = after(MORE, done(), COMMITTED, e.PublishFailed(1, "no answer", at_ms=0, excuse="away"))
    assert actions == (e.Publish(1, UNAVAILABLE_PAUSE_MS),)


def test_lost_files_are_tolerated_several_times_in_a_row() -> None:
    lost = e.EpochFailed("a file is missing", retryable=True, at_ms=0, excuse="lost")
    state, actions = after(MORE, lost)
    for _ in range(EXCUSED_MAX - 1):
        assert isinstance(actions[0], e.Restart)
        state, actions = decide(state, e.Started(None))
        state, actions = decide(state, lost)
    state, _ = decide(state, e.Started(None))
    _, actions = decide(state, lost)
    assert isinstance(actions[0], e.Fail)


def test_a_store_unavailable_only_to_tasks_is_not_tolerated_forever() -> None:
    """The driver reads the store at every start. A machine that is cut off from it may stay so, with its subtasks."""
    unavailable = e.EpochFailed("no answer", retryable=True, at_ms=0, excuse="away")
    state, actions = after(MORE, unavailable)
    for _ in range(UNAVAILABLE_IN_TASKS_MAX - 1):
        assert actions == (e.Restart(UNAVAILABLE_PAUSE_MS, "no answer", tolerated=True),)
        # At the start the driver cannot reach the store either, so the machine is not to blame.
        state, _ = decide(state, unavailable)
        for event in (e.Started(None), MORE, unavailable):
            state, actions = decide(state, event)
    for event in (e.Started(None), MORE, unavailable):
        state, actions = decide(state, event)
    assert actions == (e.Fail("no answer (the restart strategy is none)"),)
    restarted = after(MORE, unavailable, e.Started(None), MORE, done(), COMMITTED)[0]
    assert restarted.cut_off == 0, "a commit resets the count"


def test_after_a_failure_an_epoch_is_committed_before_the_next_one_runs() -> None:
    """A failure that recurs before uploads end would discard every epoch, and nothing would ever be committed."""
    lost = e.EpochFailed("a file has not come", retryable=True, at_ms=0, excuse="away")
    failed = (MORE, done(), MORE, lost, e.CommitFailed("given up", at_ms=0), e.Started(None))
    state, actions = after(*failed, MORE, done())
    assert (state.phase, actions) == (Phase.HOLDING, (e.Commit(1, 0, "RUNNING"),))
    assert decide(state, UNAVAILABLE)[0].phase is Phase.HOLDING
    state, actions = decide(state, COMMITTED)
    assert actions == (e.Publish(1), e.PlanInput(2))
    for event in (MORE, done()):
        state, actions = decide(state, event)
    assert actions == (e.PlanInput(3),), "from then on epochs run ahead again"


def test_a_change_of_the_plan_waits_until_everything_is_committed() -> None:
    state, actions = after(MORE, done(), e.CommitsAwaited())
    assert (state.phase, actions) == (Phase.HOLDING, ())
    assert decide(state, COMMITTED)[1] == (e.Publish(1), e.PlanInput(2))


# --- the table is the protocol ------------------------------------------------------------------------------


def ahead_events(state: ProtocolState) -> Iterator[Event]:
    yield from (event for event in all_events(state) if not isinstance(event, e.EpochDone))
    yield from (done(bytes=40), done(bytes=40, joins=False), UNAVAILABLE, BACK, e.CommitsAwaited())
    for retryable in (True, False):
        yield e.CommitFailed("x", at_ms=0, retryable=retryable)
    yield e.EpochFailed("x", True, at_ms=0, excuse="away")


OF_COMMITS = (e.Committed, e.CommitLost, e.CommitUnknown, e.CommitExists, e.CommitAbsent, e.CommitFailed)


@pytest.mark.slow
def test_the_table_of_running_ahead_lists_exactly_the_legal_moves() -> None:
    moves: set[tuple[str, str, str]] = set()
    seen: set[ProtocolState] = set()
    todo = [begin(policy, bounds=BOUNDS) for policy in (FixedDelay(attempts=1, delay_ms=0),)]
    while todo:
        state = todo.pop()
        for event in ahead_events(state):
            if state.phase.is_last:
                continue
            try:
                moved, _ = decide(state, event)
            except IllegalMoveError:
                is_expected = not isinstance(event, OF_COMMITS) or state.commit is not None
                is_expected = is_expected and (state.phase is not Phase.FAILING or state.working)
                assert type(event) not in AHEAD_MOVES[state.phase] or not is_expected
                continue
            moves.add((state.phase.name, type(event).__name__, moved.phase.name))
            verdict = None if moved.verdict is None else replace(moved.verdict, reason="")
            moved = replace(moved, history=(), failures=moved.failures[:1], verdict=verdict)
            if moved not in seen and moved.committed < 3 and not (moved.stopping and moved.draining):
                seen.add(moved)
                todo.append(moved)
    table_moves = {
        (phase.name, event.__name__, to.name)
        for phase, row in AHEAD_MOVES.items()
        for event, tos in row.items()
        for to in tos
    }
    assert table_moves - moves == set()
    assert moves - table_moves == set()
