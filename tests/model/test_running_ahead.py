"""Epochs that run ahead of commits under every possible failure, exhaustively.

The world is that of `test_protocol_model.py`, with these additions: the files of an epoch are on the machines that ran
it and reach the store one by one, at any time; a machine may be lost with its files; commits are written concurrently
with running epochs, and are retried while the store does not respond; a rescale waits until everything is committed.
The last tests break the protocol, the driver and the store on purpose.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest
from test_protocol_model import (
    CLOSING,
    Budget,
    Decide,
    Driver,
    Model,
    Record,
    Step,
    Violation,
    World,
    explore,
)

from millstream.checkpoint import events as e
from millstream.checkpoint.ahead import AheadBounds
from millstream.checkpoint.events import Action, Event
from millstream.checkpoint.protocol import Phase, ProtocolState, begin, decide
from millstream.checkpoint.restart import NoRestart

LARGE = 10**9


class Epoch(NamedTuple):
    """An acknowledged epoch: the records it covers, the file of their output, and the number under which it ran."""

    start: int
    end: int
    staged: str
    number: int
    joins: bool

    @property
    def file(self) -> tuple[str, int, int]:
        return self.staged, self.start, self.end


class AheadModel(Model):
    """The driver that performs the protocol's decisions when epochs run ahead; a subclass breaks it by a class
    attribute.
    """

    epochs_max = 2
    joins = True
    awaits_files = True
    plans_from_committed = False
    believes_acknowledged = False
    loses_merged_output = False
    numbers_by_newest = False
    commits_newest_first = False

    def first_state(self) -> ProtocolState:
        return begin(self.policy, bounds=AheadBounds(self.epochs_max, LARGE, LARGE))

    def steps(self, world: World) -> Iterator[Step]:
        yield from super().steps(world)
        for file in sorted(world.unsent):
            rest = world._replace(unsent=world.unsent - {file})
            yield f"file {file[0]} reaches the store", rest._replace(files=world.files | {file})
            if world.budget.losses:
                yield f"file {file[0]} is lost with its machine", rest._replace(budget=world.budget.spend("losses"))

    def feed(self, world: World, index: int, driver: Driver, event: Event | None) -> World:
        """As before; files that no driver waits for any longer are dropped."""
        if isinstance(event, e.EpochDone):
            start, end = driver.planned
            number = driver.state.running
            joins = event.joins and len(driver.ahead) > driver.state.sealed
            epoch = Epoch(start, end, driver.staged, number, joins)
            driver = driver._replace(ahead=(*driver.ahead, epoch), position=end)
        world = super().feed(world, index, driver, event)
        awaited = {epoch.file for other in world.drivers for epoch in other.ahead}
        return world._replace(unsent=world.unsent & awaited)

    # --- the operations of a driver ---

    def read_newest(self, world: World, driver: Driver, data: object) -> Iterator[Any]:
        for label, changed, fresh, event in super().read_newest(world, driver, data):
            if self.believes_acknowledged and driver.ahead:
                yield label, changed, fresh._replace(ahead=driver.ahead, position=driver.position), event
            else:
                yield label, changed, fresh._replace(ahead=(), rescaling=False), event

    def plan(self, world: World, driver: Driver, action: e.PlanInput) -> Iterator[Any]:
        if driver.rescaling:
            if driver.ahead:
                raise Violation("the plan changes while epochs are ahead")
            driver = driver._replace(rescaling=False)
        elif world.budget.rescales and driver.ahead:
            asked = world._replace(budget=world.budget.spend("rescales"))
            yield "is to be rescaled", asked, driver._replace(rescaling=True), e.CommitsAwaited()
        if self.plans_from_committed:
            driver = driver._replace(position=driver.known[-1].end if driver.known else 0)
        yield from super().plan(world, driver, action)

    def run(self, world: World, driver: Driver, action: e.RunEpoch) -> Iterator[Any]:
        for label, changed, moved, event in super().run(world, driver, action):
            new = changed.files - world.files
            renamed = {(f"{name}-{start}", start, end) for name, start, end in new}
            moved = moved._replace(staged=f"{moved.staged}-{driver.planned[0]}" if moved.staged else "")
            event = replace(event, joins=self.joins) if isinstance(event, e.EpochDone) else event
            yield label, changed._replace(files=world.files, unsent=world.unsent | renamed), moved, event
        if any(epoch.file not in world.files | world.unsent for epoch in driver.ahead):
            lost = e.EpochFailed("a file is missing", retryable=True, at_ms=0, excuse="lost")
            yield "misses a file of an epoch before", world, driver, lost

    def commit(self, world: World, driver: Driver, action: e.Commit) -> Iterator[Any]:
        if action.status in CLOSING:
            if driver.ahead:
                raise Violation("the job is closed before all that was acknowledged is committed")
            yield from super().commit(world, driver, action)
            return
        epochs = driver.ahead[-action.steps :] if self.commits_newest_first else driver.ahead[: action.steps]
        if any(epoch.number < action.epoch for epoch in epochs):
            raise Violation(f"{epochs} were run under numbers before that of their manifest, {action.epoch}")
        if len(epochs) == 1 and epochs[0].number != action.epoch:
            raise Violation(f"{epochs} cannot be replayed: its manifest is {action.epoch}")
        names = [epoch.staged for epoch in epochs]
        if self.loses_merged_output:
            names = names[-1:]
        start, end = epochs[0].start, epochs[-1].end
        number = epochs[-1].number if self.numbers_by_newest else action.epoch
        mine = Record(number, start, end, action.published_through, action.status, driver.run, "+".join(names))
        driver = driver._replace(known=(*driver.known[-1:], mine))
        yield f"is to commit {mine}", world, driver._replace(ops=(("await_files", mine), *driver.ops)), None

    def await_files(self, world: World, driver: Driver, mine: Record) -> Iterator[Any]:
        names = mine.staged.split("+")
        missing = [epoch for epoch in driver.ahead if epoch.staged in names and epoch.file not in world.files]
        if driver.state.phase is Phase.FAILING:
            yield "gives the commit up", world, driver, e.CommitFailed("given up", at_ms=0)
        if not missing or not self.awaits_files:
            yield "finds all files", world, driver._replace(ops=(("create", mine), *driver.ops)), None
        elif any(epoch.file not in world.unsent for epoch in missing):
            lost = e.CommitFailed("files do not come", at_ms=0, excuse="lost")
            yield "waits for files that never come", world, driver, lost

    def create(self, world: World, driver: Driver, mine: Record) -> Iterator[Any]:
        again = driver._replace(ops=(("create", mine), *driver.ops))
        if driver.state.unavailable:
            yield "finds the store back", world, again, e.StoreAvailable()
            return
        there = world.manifest(mine.epoch)
        if there and there != mine:
            yield f"loses the race for {mine}", world, driver, e.CommitLost()
            return
        stored = world if there else self.store(world, mine)
        looking = driver._replace(ops=(("check_for_newer", mine), *driver.ops))
        yield f"creates {mine}", stored, looking, None
        if world.budget.lost_answers:
            spent = world.budget.spend("lost_answers")
            late = world._replace(late_puts=(*world.late_puts, mine))
            for label, after in (("which is there", stored), ("which is not", world), ("which comes late", late)):
                heard_nothing = f"hears nothing of {mine}, {label}"
                yield heard_nothing, after._replace(budget=spent), again, e.StoreUnavailable()
                if driver.state.phase is Phase.FAILING:
                    yield heard_nothing, after._replace(budget=spent), driver, e.CommitFailed("given up", at_ms=0)

    def restart(self, world: World, driver: Driver, action: e.Restart) -> Iterator[Any]:
        if any(name != "wait" for name, _ in driver.ops):
            raise Violation(f"the driver begins anew beside {driver.ops}")
        yield from super().restart(world, driver, action)

    # --- invariants of the world ---

    def store(self, world: World, record: Record) -> World:
        if record.status not in CLOSING and not self.is_staged(world, record):
            raise Violation(f"{record} names files that are not in the store")
        return super().store(world, record)

    def owner(self, world: World, driver: Driver, mine: Record) -> Driver:
        owner = super().owner(world, driver, mine)
        left = tuple(epoch for epoch in driver.ahead if epoch.staged not in mine.staged.split("+"))
        return owner if mine.status in CLOSING else owner._replace(position=driver.position, ahead=left)

    def is_staged(self, world: World, record: Record) -> bool:
        """Whether the files that a manifest references are in the store, with all of its records."""
        files = {name: (start, end) for name, start, end in world.files}
        at = record.start
        for name in record.staged.split("+"):
            start, end = files.get(name, (None, None))
            if start != at or end is None:
                return False
            at = end
        return at == record.end


class Deep(AheadModel):
    epochs_max = 3


class OneByOne(AheadModel):
    joins = False


SCENARIOS: dict[str, tuple[Model, Budget, int | None]] = {
    "nothing goes wrong": (Deep(records=4), Budget(), None),
    "nothing goes wrong, nothing is merged": (OneByOne(records=4), Budget(), None),
    "input arrives while running": (AheadModel(), Budget(), 0),
    "the driver is killed": (Deep(records=4), Budget(crashes=1), None),
    "the driver is killed twice": (AheadModel(), Budget(crashes=2), None),
    "the driver is killed, nothing is merged": (OneByOne(), Budget(crashes=1), 1),
    "the driver is killed, input arrives": (AheadModel(), Budget(crashes=1), 1),
    "tasks fail, are retried and speculated": (AheadModel(), Budget(epoch_failures=1, losing_attempts=1), None),
    "tasks fail and the driver is killed": (AheadModel(), Budget(crashes=1, epoch_failures=1), None),
    "tasks fail without a restart strategy": (AheadModel(policy=NoRestart()), Budget(epoch_failures=2), None),
    "a machine is lost with its files": (Deep(), Budget(losses=1), None),
    "machines are lost, the driver is killed": (AheadModel(), Budget(losses=1, crashes=1), None),
    "machines are lost without a restart strategy": (AheadModel(policy=NoRestart()), Budget(losses=2), None),
    "sinks fail": (AheadModel(), Budget(crashes=1, publish_failures=1), None),
    "sinks and tasks fail": (AheadModel(), Budget(epoch_failures=1, publish_failures=1), None),
    "the store is away": (Deep(), Budget(lost_answers=2), None),
    "the store is away and the driver is killed": (AheadModel(), Budget(crashes=1, lost_answers=1), None),
    "the store is away and tasks fail": (AheadModel(), Budget(lost_answers=1, epoch_failures=1), None),
    "stopped and started again": (AheadModel(), Budget(stops=1), 1),
    "stopped, killed and started again": (AheadModel(), Budget(crashes=1, stops=1), None),
    "stopped, canceled and started again": (AheadModel(records=2), Budget(stops=1, cancels=1), None),
    "stopped while failing": (AheadModel(records=2), Budget(stops=1, epoch_failures=1, publish_failures=1), None),
    "stopped while the store is away": (AheadModel(records=2), Budget(stops=1, lost_answers=1), None),
    "drained": (AheadModel(), Budget(drains=1), 0),
    "drained, killed and started again": (AheadModel(records=2), Budget(crashes=1, drains=1), 1),
    "rescaled": (Deep(), Budget(rescales=2), None),
    "rescaled while failing": (AheadModel(), Budget(rescales=1, epoch_failures=1), None),
    "rescaled and stopped": (AheadModel(records=2), Budget(rescales=1, stops=1), None),
    "a second driver": (AheadModel(records=2), Budget(second_drivers=1), None),
    "a second driver, old manifests are trimmed": (AheadModel(trims=True), Budget(second_drivers=1), None),
    "a second driver and lost answers": (AheadModel(records=2), Budget(second_drivers=1, lost_answers=1), None),
    "a consumer takes published output away": (AheadModel(), Budget(crashes=1, consumptions=1), None),
    "a stalled driver wakes up, upserts": (AheadModel(records=2, upserts=True), Budget(second_drivers=1), None),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_history_of_running_ahead_publishes_every_record_once_and_in_order(name: str) -> None:
    histories, states = explore(*SCENARIOS[name])
    assert histories >= 48
    assert states >= 65


def test_the_model_of_running_ahead_kills_the_driver_at_every_step() -> None:
    _, states = explore(AheadModel(), Budget(crashes=1))
    _, calm_states = explore(AheadModel(), Budget())
    # A kill is possible in every state in which a driver lives, so each quiescent state has at least one.
    assert states > 2 * calm_states


def test_with_bound_zero_the_protocol_behaves_like_one_that_never_runs_ahead() -> None:
    bounded, plain = begin(NoRestart(), bounds=AheadBounds(0, LARGE, LARGE)), begin(NoRestart())
    events: list[Event] = [e.Started(None)]
    for number in (1, 2, 3):
        events += [e.InputPlanned(True, False), e.EpochDone(bytes=1, at_ms=number, joins=True), e.Committed()]
        events += [e.Published(number)]
    for event in events:
        bounded, actions = decide(bounded, event)
        plain, expected = decide(plain, event)
        assert actions == expected


# --- broken on purpose: the protocol ------------------------------------------------------------------------

Decision = tuple[ProtocolState, tuple[Action, ...]]


def publish_before_commit(state: ProtocolState, event: Event) -> Decision:
    after, actions = decide(state, event)
    commits = [action for action in actions if isinstance(action, e.Commit) and action.status not in CLOSING]
    if commits:
        return replace(after, publishing=commits[0].epoch), (e.Publish(commits[0].epoch), *actions)
    return after, actions


def commit_before_the_last_is_published(state: ProtocolState, event: Event) -> Decision:
    return decide(replace(state, published=state.committed) if isinstance(event, e.EpochDone) else state, event)


def restart_during_a_commit(state: ProtocolState, event: Event) -> Decision:
    after, actions = decide(state, event)
    if after.phase is Phase.FAILING and isinstance(after.verdict, e.Restart):
        restarted = replace(after, phase=Phase.RESTARTING, verdict=None, commit=None, publishing=None, working=False)
        return restarted, (after.verdict,)
    return after, actions


def restart_during_a_running_epoch(state: ProtocolState, event: Event) -> Decision:
    after, actions = decide(state, event)
    if isinstance(event, e.CommitFailed) and after.working and isinstance(after.verdict, e.Restart):
        return replace(after, phase=Phase.RESTARTING, verdict=None, working=False), (after.verdict,)
    return after, actions


def believe_acknowledged_epochs_after_a_failure(state: ProtocolState, event: Event) -> Decision:
    after, actions = decide(state, event)
    if isinstance(event, e.Started) and state.acknowledged:
        return replace(after, acknowledged=state.acknowledged), actions
    return after, actions


def close_before_all_is_committed(state: ProtocolState, event: Event) -> Decision:
    after, actions = decide(state, event)
    if after.phase is Phase.SETTLING and after.acknowledged and after.commit is None:
        commit = e.Commit(after.committed + 1, after.committed + 1, "SUSPENDED")
        return replace(after, phase=Phase.CLOSING, commit=commit), (commit, *actions)
    return after, actions


def accept_a_failed_commit(state: ProtocolState, event: Event) -> Decision:
    is_taken = isinstance(event, e.CommitFailed) and state.phase is not Phase.FAILING
    return decide(state, e.Committed() if is_taken else event)


def continue_after_a_lost_race(state: ProtocolState, event: Event) -> Decision:
    return decide(state, e.Committed() if isinstance(event, e.CommitLost) else event)


def wait_forever(state: ProtocolState, event: Event) -> Decision:
    after, actions = decide(state, event)
    if state.phase is Phase.HOLDING and isinstance(event, e.Committed) and after.phase is Phase.PLANNING:
        return replace(after, phase=Phase.HOLDING), tuple(a for a in actions if not isinstance(a, e.PlanInput))
    return after, actions


def skip_the_commit_after_publishing(state: ProtocolState, event: Event) -> Decision:
    after, actions = decide(state, event)
    if isinstance(event, e.Published) and any(isinstance(a, e.Commit) and a.steps == 1 for a in actions):
        return replace(after, commit=None), ()
    return after, actions


def rescale_while_ahead(state: ProtocolState, event: Event) -> Decision:
    if isinstance(event, e.CommitsAwaited) and state.phase is Phase.PLANNING:
        return state, (e.PlanInput(state.running),)
    return decide(state, event)


MUTANTS: list[tuple[Decide, Budget, str]] = [
    (publish_before_commit, Budget(), "no manifest names it"),
    (commit_before_the_last_is_published, Budget(), "published which are not|Published cannot happen|was not asked"),
    (restart_during_a_commit, Budget(epoch_failures=1), "begins anew beside"),
    (restart_during_a_running_epoch, Budget(losses=1), "begins anew beside"),
    (believe_acknowledged_epochs_after_a_failure, Budget(epoch_failures=1), "IndexError|does not start|cannot be|were"),
    (close_before_all_is_committed, Budget(stops=1), "closed before all"),
    (accept_a_failed_commit, Budget(losses=1), "no manifest names it"),
    (continue_after_a_lost_race, Budget(second_drivers=1), "no manifest names it"),
    (wait_forever, Budget(), "stuck|not allowed"),
    (skip_the_commit_after_publishing, Budget(), "stuck"),
    (rescale_while_ahead, Budget(rescales=1), "the plan changes while epochs are ahead"),
]


@pytest.mark.parametrize(("broken", "budget", "says"), MUTANTS, ids=lambda value: getattr(value, "__name__", ""))
def test_the_model_detects_a_broken_protocol_of_running_ahead(broken: Decide, budget: Budget, says: str) -> None:
    with pytest.raises(Violation, match=says):
        explore(AheadModel(decide=broken), budget)


# --- broken on purpose: the driver --------------------------------------------------------------------------


class CommitsBeforeFilesArrive(AheadModel):
    awaits_files = False


class PlansFromCommittedEpochs(AheadModel):
    plans_from_committed = True


class TrustsItsMemoryAfterAFailure(AheadModel):
    believes_acknowledged = True


class LosesMergedOutput(AheadModel):
    loses_merged_output = True


class NumbersACommitByItsNewestEpoch(AheadModel):
    """Two drivers that merged differently would use different numbers, and both would own the job."""

    numbers_by_newest = True


class CommitsTheNewestFirst(OneByOne):
    commits_newest_first = True


BROKEN_DRIVERS: list[tuple[type[AheadModel], Budget, str]] = [
    (CommitsBeforeFilesArrive, Budget(), "files that are not in the store"),
    (PlansFromCommittedEpochs, Budget(), "does not start where|not in the store"),
    (TrustsItsMemoryAfterAFailure, Budget(epoch_failures=1), "does not start where|closed before all"),
    (LosesMergedOutput, Budget(), "not in the store"),
    (NumbersACommitByItsNewestEpoch, Budget(), "skips an epoch"),
    (CommitsTheNewestFirst, Budget(), "does not start where|cannot be replayed"),
]


@pytest.mark.parametrize(("broken", "budget", "says"), BROKEN_DRIVERS, ids=lambda value: getattr(value, "__name__", ""))
def test_the_model_detects_a_broken_driver(broken: type[AheadModel], budget: Budget, says: str) -> None:
    with pytest.raises(Violation, match=says):
        explore(broken(records=4), budget)


def test_the_model_of_running_ahead_detects_a_driver_that_publishes_without_checking() -> None:
    with pytest.raises(Violation, match="goes backwards"):
        explore(AheadModel(upserts=True, looks_before_publishing=False), Budget(second_drivers=1))


def test_the_model_of_running_ahead_detects_a_commit_into_a_gap_left_by_trimming() -> None:
    with pytest.raises(Violation, match="committed twice"):
        explore(AheadModel(trims=True, looks_for_newer=False), Budget(second_drivers=1))
