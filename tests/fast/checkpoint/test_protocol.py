"""The epoch protocol, one rule per test. Invariants of all histories are in `test_protocol_model.py`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from millstream.checkpoint import events as e
from millstream.checkpoint.events import Action, Event, ManifestSummary
from millstream.checkpoint.manifest import Manifest
from millstream.checkpoint.protocol import MOVES, IllegalMoveError, Phase, ProtocolState, begin, decide
from millstream.checkpoint.restart import ExponentialDelay, FixedDelay, NoRestart, RestartPolicy

FOREVER = FixedDelay(attempts=1000, delay_ms=50)


def after(*events: Event, policy: RestartPolicy = FOREVER) -> tuple[ProtocolState, tuple[Action, ...]]:
    """The state after `events` from the beginning, and the actions of the last of them."""
    state, actions = begin(policy), tuple[Action, ...]()
    for event in events:
        state, actions = decide(state, event)
    return state, actions


def actions_of(*events: Event, policy: RestartPolicy = FOREVER) -> tuple[Action, ...]:
    return after(*events, policy=policy)[1]


def newest(epoch: int, through: int, status: Any = "RUNNING") -> e.Started:
    return e.Started(ManifestSummary(epoch, through, status))


MORE, LAST, NONE = e.InputPlanned(True, False), e.InputPlanned(True, True), e.InputPlanned(False, False)
DONE, COMMITTED, STOP = e.EpochDone(), e.Committed(), e.StopRequested()
BROKEN = e.EpochFailed("a task failed", retryable=True, at_ms=7)
FIRST = (e.Started(None), MORE, DONE)


def test_an_empty_store_begins_with_epoch_one() -> None:
    assert actions_of(e.Started(None)) == (e.PlanInput(1),)
    assert actions_of(e.Started(None), MORE) == (e.RunEpoch(1, final=False),)
    assert actions_of(*FIRST) == (e.Commit(1, published_through=0, status="RUNNING"),)


def test_an_epoch_is_published_while_the_next_is_planned() -> None:
    assert actions_of(*FIRST, COMMITTED) == (e.Publish(1), e.PlanInput(2))


def test_a_completed_epoch_waits_until_the_previous_one_is_published() -> None:
    assert actions_of(*FIRST, COMMITTED, MORE, DONE) == ()
    assert actions_of(*FIRST, COMMITTED, MORE, DONE, e.Published(1)) == (e.Commit(2, 1, "RUNNING"),)


def test_unpublished_epochs_are_republished_in_order_before_input_is_planned() -> None:
    start = newest(5, 2)
    assert actions_of(start) == (e.Publish(3),)
    assert actions_of(start, e.Published(3)) == (e.Publish(4),)
    assert actions_of(start, e.Published(3), e.Published(4), e.Published(5)) == (e.PlanInput(6),)


def test_a_finished_job_that_is_restarted_ends_at_once() -> None:
    state, actions = after(newest(5, 5, "FINISHED"))
    assert actions == (e.Finish(),)
    assert state.phase is Phase.FINISHED


def test_a_suspended_job_that_is_restarted_resumes() -> None:
    assert actions_of(newest(5, 5, "SUSPENDED")) == (e.PlanInput(6),)


def test_the_last_input_ends_in_a_drained_epoch_and_a_closing_manifest() -> None:
    drained = (e.Started(None), LAST, DONE)
    assert actions_of(*drained) == (e.Commit(1, 0, "DRAINED"),)
    assert actions_of(*drained, COMMITTED) == (e.Publish(1),)
    assert actions_of(*drained, COMMITTED, e.Published(1)) == (e.Commit(2, 2, "FINISHED"),)
    assert actions_of(*drained, COMMITTED, e.Published(1), COMMITTED) == (e.Finish(),)


def test_a_crash_after_the_drained_epoch_does_not_run_a_final_epoch_again() -> None:
    assert actions_of(newest(3, 2, "DRAINED")) == (e.Publish(3),)
    assert actions_of(newest(3, 2, "DRAINED"), e.Published(3)) == (e.Commit(4, 4, "FINISHED"),)


def test_exhausted_without_input_still_runs_the_final_epoch_for_its_watermark() -> None:
    assert actions_of(newest(3, 3), e.InputPlanned(False, True)) == (e.RunEpoch(4, final=True),)


def test_without_input_no_epoch_runs_until_woken() -> None:
    assert actions_of(newest(3, 3), NONE) == (e.WaitForInput(),)
    assert actions_of(newest(3, 3), NONE, e.Woken()) == (e.PlanInput(4),)
    assert actions_of(newest(3, 3), e.Woken()) == ()


def test_a_stop_finishes_and_publishes_the_running_epoch_first() -> None:
    running = (e.Started(None), MORE, STOP)
    assert actions_of(*running) == ()
    assert actions_of(*running, DONE, COMMITTED) == (e.Publish(1),)
    assert actions_of(*running, DONE, COMMITTED, e.Published(1)) == (e.Commit(2, 2, "SUSPENDED"),)
    assert actions_of(*running, DONE, COMMITTED, e.Published(1), COMMITTED) == (e.Suspend(),)


def test_a_stop_while_waiting_or_planning_ends_without_another_epoch() -> None:
    assert actions_of(newest(3, 3), NONE, STOP) == (e.Commit(4, 4, "SUSPENDED"),)
    assert actions_of(newest(3, 3), STOP, MORE) == (e.Commit(4, 4, "SUSPENDED"),)


def test_a_stop_before_the_first_epoch_writes_nothing() -> None:
    assert actions_of(e.Started(None), STOP, MORE) == (e.Suspend(),)
    assert actions_of(newest(3, 3, "SUSPENDED"), STOP, MORE) == (e.Suspend(),)
    assert actions_of(STOP, newest(3, 3, "SUSPENDED")) == (e.Suspend(),)


def test_a_stop_during_the_last_epoch_finishes_the_job() -> None:
    last = (e.Started(None), LAST, STOP, DONE, COMMITTED, e.Published(1))
    assert actions_of(*last) == (e.Commit(2, 2, "FINISHED"),)


def test_a_cancel_ends_at_once_and_late_reports_change_nothing() -> None:
    canceled = (e.Started(None), MORE, e.CancelRequested())
    assert actions_of(*canceled) == (e.Cancel(),)
    state, actions = after(*canceled, DONE, e.Published(9), COMMITTED)
    assert (state.phase, actions) == (Phase.CANCELED, ())


def test_a_lost_race_stops_the_driver_and_publishes_nothing() -> None:
    state, actions = after(*FIRST, e.CommitLost())
    assert actions == (e.StopFenced(1),)
    assert state.phase is Phase.FENCED


def test_an_unacknowledged_commit_is_inspected_before_anything_else() -> None:
    unknown = (*FIRST, e.CommitUnknown("time-out", at_ms=0))
    assert actions_of(*unknown) == (e.InspectCommit(1),)
    assert actions_of(*unknown, e.CommitExists(is_own=True)) == (e.Publish(1), e.PlanInput(2))
    assert actions_of(*unknown, e.CommitExists(is_own=False)) == (e.StopFenced(1),)
    assert isinstance(actions_of(*unknown, e.CommitAbsent(at_ms=0))[0], e.Restart)
    assert isinstance(actions_of(*unknown, e.CommitUnknown("still", at_ms=0))[0], e.Restart)


def test_a_failed_epoch_restarts_from_the_state_of_the_store() -> None:
    failed = (newest(3, 3), MORE, BROKEN)
    assert actions_of(*failed) == (e.Restart(50, "a task failed"),)
    # Another driver may have continued in the meantime; the state in memory is not used.
    assert actions_of(*failed, newest(8, 7)) == (e.Publish(8),)


def test_a_restart_waits_for_the_publish_in_flight() -> None:
    failed = (*FIRST, COMMITTED, MORE, BROKEN)
    assert actions_of(*failed) == ()
    assert actions_of(*failed, e.Published(1)) == (e.Restart(50, "a task failed"),)
    sink_too = actions_of(*failed, e.PublishFailed(1, "away", at_ms=8))
    assert sink_too == (e.Restart(50, "epoch 1 could not be published: away"),)


def test_a_permanent_failure_ends_the_job_after_the_publish_in_flight() -> None:
    failed = (*FIRST, COMMITTED, MORE, replace(BROKEN, retryable=False))
    assert actions_of(*failed) == ()
    assert actions_of(*failed, e.Published(1)) == (e.Fail("a task failed"),)
    assert actions_of(*failed, e.PublishFailed(1, "away", at_ms=8)) == (e.Fail("a task failed"),)


def test_the_failures_of_all_restarts_count() -> None:
    twice = (e.Started(None), MORE, BROKEN, e.Started(None), MORE, BROKEN)
    assert actions_of(*twice, policy=FixedDelay(2, 0)) == (e.Restart(0, "a task failed"),)
    assert actions_of(*twice, policy=FixedDelay(1, 0)) == (e.Fail("a task failed (all 1 restarts are used up)"),)
    assert actions_of(*twice, policy=ExponentialDelay(100, 1000, 2.0)) == (e.Restart(200, "a task failed"),)


def test_an_unreadable_store_at_the_start_is_retried() -> None:
    assert actions_of(BROKEN) == (e.Restart(50, "a task failed"),)
    assert actions_of(BROKEN, BROKEN, e.Started(None)) == (e.PlanInput(1),)


def test_a_failed_publish_is_repeated_concurrently_with_the_running_epoch_and_never_skipped() -> None:
    failed = (*FIRST, COMMITTED, MORE, e.PublishFailed(1, "away", at_ms=3))
    assert actions_of(*failed) == (e.Publish(1, delay_ms=50),)
    assert actions_of(*failed, DONE) == ()
    assert actions_of(*failed, DONE, e.Published(1)) == (e.Commit(2, 1, "RUNNING"),)
    abandoned = actions_of(*failed, policy=NoRestart())
    assert abandoned == (e.Fail("epoch 1 could not be published: away (the restart strategy is none)"),)


def test_a_stop_survives_a_restart() -> None:
    assert actions_of(newest(3, 3), MORE, STOP, BROKEN, newest(3, 3)) == (e.Commit(4, 4, "SUSPENDED"),)


def test_an_illegal_move_reports_the_history_that_led_to_it() -> None:
    with pytest.raises(IllegalMoveError) as caught:
        after(e.Started(None), MORE, COMMITTED)
    assert str(caught.value).splitlines()[0].startswith("Epoch protocol: Committed cannot happen in phase RUNNING")
    assert [line.split()[0] for line in str(caught.value).splitlines()[1:]] == ["NEW", "PLANNING", "RUNNING"]


def test_a_report_about_another_epochs_publish_is_illegal() -> None:
    for report in (e.Published(7), e.PublishFailed(7, "away", at_ms=0)):
        with pytest.raises(IllegalMoveError, match="was not requested"):
            after(*FIRST, COMMITTED, report)


def test_an_ended_driver_is_not_restarted() -> None:
    with pytest.raises(IllegalMoveError):
        after(*FIRST, e.CommitLost(), e.Started(None))


def test_the_history_stays_short_over_many_epochs() -> None:
    events: list[Event] = [e.Started(None)]
    for epoch in range(1, 200):
        events += [MORE, DONE, COMMITTED, e.Published(epoch)]
    state, _ = after(*events)
    assert state.committed == 199
    assert len(state.history) == 20


def test_a_manifest_is_summarized_by_what_the_protocol_needs() -> None:
    manifest = Manifest("clicks", "j1", 4, 3, 0, "a1", status="DRAINED", published_through=3)
    assert ManifestSummary.of(manifest) == ManifestSummary(4, 3, "DRAINED")


# --- the table is the protocol ------------------------------------------------------------------------------


def all_events(state: ProtocolState) -> Iterator[Event]:
    yield e.Started(None)
    for status in ("RUNNING", "DRAINED", "FINISHED", "SUSPENDED"):
        yield newest(2, 0, status)
        yield newest(2, 1, status)
        yield newest(2, 2, status)
    for has_input in (True, False):
        for exhausted in (True, False):
            yield e.InputPlanned(has_input, exhausted)
            yield e.InputPlanned(has_input, exhausted, drains=True)
    for retryable in (True, False):
        yield e.EpochFailed("x", retryable, at_ms=0)
    yield from (DONE, COMMITTED, STOP, e.StopRequested(drain=True), e.CommitLost(), e.CancelRequested(), e.Woken())
    yield from (e.CommitUnknown("x", at_ms=0), e.CommitAbsent(at_ms=0), e.CommitExists(True), e.CommitExists(False))
    yield e.CommitAbsent(at_ms=0, retryable=False)
    if state.publishing is not None:
        yield e.Published(state.publishing)
        yield e.PublishFailed(state.publishing, "x", at_ms=0)
        yield e.PublishFailed(state.publishing, "x", at_ms=0, retryable=False)
        yield e.PublishFenced(state.publishing, state.publishing + 1)


@pytest.mark.slow
def test_the_table_lists_exactly_the_legal_moves() -> None:
    moves: set[tuple[str, str, str]] = set()
    seen: set[ProtocolState] = set()
    todo = [begin(FixedDelay(attempts=2, delay_ms=0)), begin(NoRestart())]
    while todo:
        state = todo.pop()
        for event in all_events(state):
            if state.phase.is_last:
                continue
            try:
                moved, _ = decide(state, event)
            except IllegalMoveError:
                assert type(event) not in MOVES[state.phase]
                continue
            moves.add((state.phase.name, type(event).__name__, moved.phase.name))
            moved = replace(moved, history=(), failures=moved.failures[:3])
            if moved not in seen and moved.committed < 5:
                seen.add(moved)
                todo.append(moved)
    table_moves = {
        (phase.name, event.__name__, to.name)
        for phase, row in MOVES.items()
        for event, tos in row.items()
        for to in tos
    }
    assert table_moves == moves


def test_an_epoch_with_a_receipt_is_not_published_again() -> None:
    for receipted, action in ((0, e.Publish(2)), (1, e.Publish(2)), (2, e.PlanInput(3)), (9, e.PlanInput(3))):
        started = e.Started(e.ManifestSummary(2, 1, "RUNNING"), receipted)
        _, actions = decide(begin(NoRestart()), started)
        assert actions == (action,)


def test_damaged_output_is_not_retried_by_any_restart_strategy() -> None:
    state, _ = decide(begin(FixedDelay(attempts=9, delay_ms=0)), e.Started(e.ManifestSummary(2, 1, "RUNNING")))
    state, actions = decide(state, e.PublishFailed(2, "it was changed", at_ms=0, retryable=False))
    assert state.phase is Phase.FAILED and isinstance(actions[0], e.Fail)


def test_a_driver_that_detects_its_replacement_while_publishing_stops() -> None:
    state, _ = decide(begin(FixedDelay(attempts=9, delay_ms=0)), e.Started(e.ManifestSummary(2, 1, "RUNNING")))
    state, actions = decide(state, e.PublishFenced(2, 5))
    assert state.phase is Phase.FENCED and actions == (e.StopFenced(5),)
