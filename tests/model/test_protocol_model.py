"""The epoch protocol under every possible failure, exhaustively.

The world below is a value: a store of manifests, a replayable source of numbered records, a sink whose publishing can
be repeated, and any number of drivers that run the real `decide`. One step is one effect (a manifest created, half an
epoch published, …), so a crash or another driver can make a difference exactly between steps. `Model.histories` follows
*every* choice from every state: which driver moves, which of its pending actions continues, how much input an epoch
reads, and, within the scenario's budget, crashes, stops, failing or speculative tasks, lost acknowledgements, puts that
arrive late, and a second driver. States reached twice are explored once; the number of histories is the number of
distinct paths.

In every state the invariants of `World` are checked, and every history must end with the job finished and all records
published once, in order. The last tests break the protocol and the store on purpose and expect a violation.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from millstream.checkpoint import events as e
from millstream.checkpoint.events import Action, Event
from millstream.checkpoint.protocol import IllegalMoveError, Phase, ProtocolState, begin, decide
from millstream.checkpoint.restart import FixedDelay, NoRestart, RestartPolicy

Decide = Callable[[ProtocolState, Event], tuple[ProtocolState, tuple[Action, ...]]]
CLOSING = ("FINISHED", "SUSPENDED")


class Violation(AssertionError):
    """The world is in a forbidden state."""


class Record(NamedTuple):
    """A manifest: epoch, the records [start, end) it covers, and the staged file that holds their output."""

    epoch: int
    start: int
    end: int
    through: int
    status: str
    run: int
    staged: str


class Budget(NamedTuple):
    """The remaining budget of failures."""

    crashes: int = 0
    second_drivers: int = 0
    epoch_failures: int = 0
    losing_attempts: int = 0
    lost_answers: int = 0
    publish_failures: int = 0
    stops: int = 0
    drains: int = 0
    cancels: int = 0
    consumptions: int = 0
    losses: int = 0
    rescales: int = 0

    def spend(self, name: str) -> Budget:
        return self._replace(**{name: getattr(self, name) - 1})


class Driver(NamedTuple):
    """One driver process: the protocol's state, the pending operations, and its memory."""

    run: int
    state: ProtocolState
    ops: tuple[tuple[str, Any], ...]
    position: int = 0
    planned: tuple[int, int] = (0, 0)
    staged: str = ""
    known: tuple[Record, ...] = ()
    ahead: tuple[Any, ...] = ()  # what ran ahead, and whether a rescale is pending; only in `test_running_ahead.py`
    rescaling: bool = False


class World(NamedTuple):
    """The complete state. `committed` is the truth as seen by an observer: epoch i at index i - 1."""

    budget: Budget
    arrived: int
    drivers: tuple[Driver, ...] = ()
    manifests: tuple[Record, ...] = ()
    committed: tuple[Record, ...] = ()
    late_puts: tuple[Record, ...] = ()
    files: frozenset[tuple[str, int, int]] = frozenset()
    unsent: frozenset[tuple[str, int, int]] = frozenset()
    sink: tuple[tuple[int, int, int, int], ...] = ()
    receipts: frozenset[int] = frozenset()
    consumed: frozenset[int] = frozenset()
    runs: int = 0
    finished: bool = False
    drained: bool = False

    def manifest(self, epoch: int) -> Record | None:
        return next((record for record in self.manifests if record.epoch == epoch), None)

    def newest(self) -> Record | None:
        return max(self.manifests, default=None)

    def is_published_through(self, epoch: int) -> bool:
        shown = {(part[0], part[1]) for part in self.sink}
        due = [record.epoch for record in self.committed[:epoch] if record.status not in CLOSING]
        return all((epoch, half) in shown for epoch in due for half in (0, 1))


Step = tuple[str, World]


class Model(NamedTuple):
    """A scenario: the protocol under test, the store's behaviour, and the source's length."""

    decide: Decide = decide
    records: int = 3
    policy: RestartPolicy = FixedDelay(attempts=100, delay_ms=0)
    trims: bool = False
    create_overwrites: bool = False
    looks_for_newer: bool = True
    upserts: bool = False
    looks_before_publishing: bool = True
    refuses_older: bool = False
    receipt_first: bool = False

    # --- the search ---

    def histories(self, world: World, seen: dict[World, int | None], trail: list[str]) -> int:
        """The number of histories from `world` on, each followed to its end; Violation with the steps that led to
        it.
        """
        known = seen.get(world, 0)
        if known is None:
            raise Violation("the job goes round in circles:\n  " + "\n  ".join(trail))
        if known:
            return known
        seen[world] = None
        total = 0
        if world.finished and not world.drivers:
            self.check_end(world)
            total = 1
        stuck = not total
        steps = self.steps(world)
        while True:
            try:
                label, after = next(steps, ("", None))
            except Violation as violation:
                if not trail:
                    raise
                raise Violation("\n  ".join([str(violation), *trail])) from None
            if after is None:
                break
            stuck = False
            total += self.histories(after, seen, [*trail, label])
        if stuck:
            raise Violation("\n  ".join(["the job is stuck", *trail]))
        seen[world] = total
        return total

    def check_end(self, world: World) -> None:
        shown = [record for _, _, start, end in world.sink for record in range(start, end)]
        # A drained job ends early; the records it has read by then are still published.
        last = world.committed[-1].end if world.drained else self.records
        if shown != list(range(last)):
            raise Violation(f"published {shown}, expected each of {last} records once and in order")
        if world.committed[-1].status != "FINISHED":
            raise Violation("the job ended without saying so in its last manifest")

    # --- one step ---

    def steps(self, world: World) -> Iterator[Step]:
        for index, driver in enumerate(world.drivers):
            for at, (name, data) in enumerate(driver.ops):
                rest = driver._replace(ops=driver.ops[:at] + driver.ops[at + 1 :])
                for label, changed, moved, event in getattr(self, name)(world, rest, data):
                    yield f"driver {driver.run}: {label}", self.feed(changed, index, moved, event)
            yield from self.interventions(world, index, driver)
        for record in world.late_puts:
            landed = world._replace(late_puts=tuple(put for put in world.late_puts if put != record))
            yield "a late put is lost", landed
            yield "a late put lands", landed if world.manifest(record.epoch) else self.store(landed, record)
        if world.budget.consumptions:
            for epoch in sorted(world.receipts - world.consumed):
                taken = world._replace(consumed=world.consumed | {epoch}, budget=world.budget.spend("consumptions"))
                yield f"a consumer takes away the output of epoch {epoch}", taken
        if world.arrived < self.records:
            yield "a record arrives", world._replace(arrived=world.arrived + 1)
        if not world.drivers and not world.finished:
            yield "a driver starts", self.start(world)
        elif len(world.drivers) < 2 and world.budget.second_drivers:
            yield "a second driver starts", self.start(world._replace(budget=world.budget.spend("second_drivers")))

    def interventions(self, world: World, index: int, driver: Driver) -> Iterator[Step]:
        others = world.drivers[:index] + world.drivers[index + 1 :]
        if world.budget.crashes:
            yield (
                f"driver {driver.run} is killed",
                world._replace(drivers=others, budget=world.budget.spend("crashes")),
            )
        requests = (("stops", e.StopRequested()), ("drains", e.StopRequested(drain=True)))
        for name, event in (*requests, ("cancels", e.CancelRequested())):
            if getattr(world.budget, name):
                told = world._replace(budget=world.budget.spend(name), drained=world.drained or name == "drains")
                yield f"driver {driver.run}: {event}", self.feed(told, index, driver, event)

    def start(self, world: World) -> World:
        driver = Driver(world.runs, self.first_state(), (("read_newest", None),))
        return world._replace(drivers=(*world.drivers, driver), runs=world.runs + 1)

    def first_state(self) -> ProtocolState:
        return begin(self.policy)

    def feed(self, world: World, index: int, driver: Driver, event: Event | None) -> World:
        """Pass the event to the protocol, and make its answers pending."""
        actions: tuple[Action, ...] = ()
        if event is not None:
            try:
                state, actions = self.decide(driver.state, event)
            except IllegalMoveError as error:
                raise Violation(str(error).splitlines()[0]) from None
            driver = driver._replace(state=replace(state, history=()))
        ends = [a for a in actions if isinstance(a, (e.Finish, e.Suspend, e.Cancel, e.Fail, e.StopFenced))]
        if ends:
            rest = world.drivers[:index] + world.drivers[index + 1 :]
            return world._replace(drivers=rest, finished=world.finished or isinstance(ends[0], e.Finish))
        # A message to abandon a commit takes no time; the commit sees it by the driver's phase.
        acts = [action for action in actions if not isinstance(action, e.AbandonCommit)]
        ops = tuple((OPERATIONS[type(action)], action) for action in acts)
        driver = driver._replace(ops=(*ops, *driver.ops))
        return world._replace(drivers=(*world.drivers[:index], driver, *world.drivers[index + 1 :]))

    # --- the operations of a driver: (label, world, driver, event), one per possible outcome ---

    def read_newest(self, world: World, driver: Driver, _: object) -> Iterator[Any]:
        newest = world.newest()
        fresh = driver._replace(position=newest.end if newest else 0, known=(newest,) if newest else ())
        if driver.state.phase is not Phase.NEW:
            fresh, world = fresh._replace(run=world.runs), world._replace(runs=world.runs + 1)
        summary = e.ManifestSummary(newest.epoch, newest.through, newest.status) if newest else None  # type: ignore[arg-type]
        yield f"reads newest {newest}", world, fresh, e.Started(summary, max(world.receipts, default=0))

    def plan(self, world: World, driver: Driver, action: e.PlanInput) -> Iterator[Any]:
        at, available = driver.position, world.arrived - driver.position
        if action.drains:
            yield "plans to read nothing", world, driver._replace(planned=(at, at)), e.InputPlanned(False, False, True)
            return
        for count in range(1, min(available, 2) + 1):
            planned = driver._replace(planned=(at, at + count))
            yield f"plans [{at}, {at + count})", world, planned, e.InputPlanned(True, at + count == self.records)
        if not available:
            idle = driver._replace(planned=(at, at))
            yield "finds no input", world, idle, e.InputPlanned(False, at == self.records)

    def wait(self, world: World, driver: Driver, _: e.WaitForInput) -> Iterator[Any]:
        if world.arrived > driver.position:
            yield "wakes", world, driver, e.Woken()

    def run(self, world: World, driver: Driver, action: e.RunEpoch) -> Iterator[Any]:
        def staged(*attempts: str) -> tuple[World, list[str]]:
            names = [f"{action.epoch}-{driver.run}-{attempt}" for attempt in attempts]
            return world._replace(files=world.files | {(name, *driver.planned) for name in names}), names

        changed, names = staged("a")
        yield f"runs epoch {action.epoch}", changed, driver._replace(staged=names[0]), e.EpochDone()
        if world.budget.losing_attempts:
            spent = world.budget.spend("losing_attempts")
            changed, names = staged("a", "b")
            for winner, how in ((names[1], "a retried task"), (names[0], "a speculated task")):
                won = driver._replace(staged=winner)
                yield f"runs epoch {action.epoch} with {how}", changed._replace(budget=spent), won, e.EpochDone()
        if world.budget.epoch_failures:
            spent = world.budget.spend("epoch_failures")
            failed = e.EpochFailed("a task failed", retryable=True, at_ms=0)
            yield "fails before staging", world._replace(budget=spent), driver, failed
            yield "fails after staging", staged("x")[0]._replace(budget=spent), driver, failed

    def commit(self, world: World, driver: Driver, action: e.Commit) -> Iterator[Any]:
        start, end = (driver.position, driver.position) if action.status in CLOSING else driver.planned
        name = "" if action.status in CLOSING else driver.staged
        own = Record(action.epoch, start, end, action.published_through, action.status, driver.run, name)
        driver = driver._replace(known=(*driver.known[-1:], own))
        there = world.manifest(own.epoch)
        stored = world if there and not self.create_overwrites else self.store(world, own)
        if there and there != own and not self.create_overwrites:
            yield f"loses the race for {own}", world, driver, e.CommitLost()
        else:
            yield f"creates {own}", stored, driver._replace(ops=(("check_for_newer", own), *driver.ops)), None
        if world.budget.lost_answers:
            spent, unknown = world.budget.spend("lost_answers"), e.CommitUnknown("time-out", at_ms=0)
            late = world._replace(late_puts=(*world.late_puts, own))
            for label, after in (("which is there", stored), ("which is not", world), ("which comes late", late)):
                yield f"hears nothing of {own}, {label}", after._replace(budget=spent), driver, unknown

    def check_for_newer(self, world: World, driver: Driver, own: Record) -> Iterator[Any]:
        newest = world.newest()
        if newest and newest.epoch > own.epoch and self.looks_for_newer:
            yield "finds a newer manifest", world, driver, e.CommitLost()
        else:
            yield "has committed", world, self.owner(world, driver, own), e.Committed()

    def inspect(self, world: World, driver: Driver, _: e.InspectCommit) -> Iterator[Any]:
        newest, own = world.newest(), driver.known[-1]
        there = world.manifest(own.epoch)
        if (newest and newest.epoch > own.epoch) or (there and there != own):
            yield "finds another's manifest", world, driver, e.CommitExists(is_own=False)
        elif there:
            yield "finds its manifest", world, self.owner(world, driver, own), e.CommitExists(is_own=True)
        else:
            yield "finds no manifest", world, driver, e.CommitAbsent(at_ms=0)
        if world.budget.lost_answers:
            spent = world._replace(budget=world.budget.spend("lost_answers"))
            yield "cannot read the store", spent, driver, e.CommitUnknown("time-out", at_ms=0)

    def publish(self, world: World, driver: Driver, action: e.Publish) -> Iterator[Any]:
        record = next((r for r in reversed(driver.known) if r.epoch == action.epoch), world.manifest(action.epoch))
        if record is None:
            raise Violation(f"epoch {action.epoch} is to be published and no manifest names it")
        yield from self.publish_failures(world, driver, record)
        if self.is_fenced(world, driver):
            yield "finds that it is replaced", world, driver, e.PublishFenced(record.epoch, max(world.manifests).epoch)
            return
        if self.receipt_first:
            world = world._replace(receipts=world.receipts | {record.epoch})
        shown = self.show(world, record, 0, record.start, (record.start + record.end) // 2)
        halfway = driver._replace(ops=(("publish_rest", record), *driver.ops))
        yield f"publishes half of epoch {record.epoch}", shown, halfway, None

    def publish_rest(self, world: World, driver: Driver, record: Record) -> Iterator[Any]:
        """The check for a newer manifest and the sink's action are one step: only a sink that rejects older epochs
        is safe from a driver that stalls between the two.
        """
        if self.is_fenced(world, driver):
            yield "finds that it is replaced", world, driver, e.PublishFenced(record.epoch, max(world.manifests).epoch)
            return
        shown = self.show(world, record, 1, (record.start + record.end) // 2, record.end)
        if self.trims:
            keep = tuple(r for r in shown.manifests if r.epoch >= record.epoch)
            shown = shown._replace(manifests=keep)
        last = driver._replace(ops=(("write_receipt", record), *driver.ops))
        yield f"publishes epoch {record.epoch}", shown, last, None
        yield from self.publish_failures(world, driver, record)

    def is_fenced(self, world: World, driver: Driver) -> bool:
        newest = world.newest()
        known = max((record.epoch for record in driver.known), default=0)
        return self.looks_before_publishing and newest is not None and newest.epoch > known

    def write_receipt(self, world: World, driver: Driver, record: Record) -> Iterator[Any]:
        written = world._replace(receipts=world.receipts | {record.epoch})
        yield f"writes the receipt of epoch {record.epoch}", written, driver, e.Published(record.epoch)

    def publish_failures(self, world: World, driver: Driver, record: Record) -> Iterator[Any]:
        if world.budget.publish_failures:
            spent = world._replace(budget=world.budget.spend("publish_failures"))
            failed = e.PublishFailed(record.epoch, "the sink is away", at_ms=0)
            yield f"fails to publish epoch {record.epoch}", spent, driver, failed

    def restart(self, world: World, driver: Driver, _: e.Restart) -> Iterator[Any]:
        yield "restarts", world, driver._replace(ops=(("read_newest", None), *driver.ops)), None

    # --- invariants of the world ---

    def store(self, world: World, record: Record) -> World:
        """The manifest appears under its name."""
        others = tuple(r for r in world.manifests if r.epoch != record.epoch)
        world = world._replace(manifests=tuple(sorted((*others, record))))
        if record.epoch <= len(world.committed):
            return world  # into a gap left by trimming: its writer must not learn that it has committed
        if record.epoch > len(world.committed) + 1:
            raise Violation(f"{record} skips an epoch")
        if record.start != (world.committed[-1].end if world.committed else 0):
            raise Violation(f"{record} does not start where the epoch before it ended")
        world = world._replace(committed=(*world.committed, record))
        if not world.is_published_through(record.through):
            raise Violation(f"{record} says that epochs are published which are not")
        return world

    def owner(self, world: World, driver: Driver, own: Record) -> Driver:
        """The driver is about to learn that `mine` is committed; its memory advances with it."""
        if world.committed[own.epoch - 1] != own:
            raise Violation(f"epoch {own.epoch} is committed twice: {own} and {world.committed[own.epoch - 1]}")
        return driver._replace(position=own.end)

    def show(self, world: World, record: Record, half: int, start: int, end: int) -> World:
        """One half of an epoch's output becomes visible, unless it already is."""
        if record.epoch > len(world.committed) or world.committed[record.epoch - 1] != record:
            raise Violation(f"{record} is published and no manifest names it")
        if not self.is_staged(world, record):
            raise Violation(f"{record} names output that was never staged")
        if record.epoch in world.consumed:
            raise Violation(f"{record} is published again, and a consumer has taken its output away")
        if any(part[:2] == (record.epoch, half) for part in world.sink):
            if self.upserts and not self.refuses_older and any(part[0] > record.epoch for part in world.sink):
                raise Violation(f"{record} is published again behind a newer epoch: what it wrote goes backwards")
            return world
        if not world.is_published_through(record.epoch - 1):
            raise Violation(f"{record} is published before the epochs before it")
        return world._replace(sink=(*world.sink, (record.epoch, half, start, end)))

    def is_staged(self, world: World, record: Record) -> bool:
        return (record.staged, record.start, record.end) in world.files


OPERATIONS: dict[type[Any], str] = {
    e.Publish: "publish",
    e.PlanInput: "plan",
    e.WaitForInput: "wait",
    e.RunEpoch: "run",
    e.Commit: "commit",
    e.InspectCommit: "inspect",
    e.Restart: "restart",
}


def explore(model: Model, budget: Budget, arrived: int | None = None) -> tuple[int, int]:
    """Histories and distinct states of a scenario."""
    seen: dict[World, int | None] = {}
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(20_000)
    try:
        world = World(budget, model.records if arrived is None else arrived)
        return model.histories(world, seen, []), len(seen)
    finally:
        sys.setrecursionlimit(limit)


# --- the protocol as it is ----------------------------------------------------------------------------------

SCENARIOS: dict[str, tuple[Model, Budget, int | None]] = {
    "nothing goes wrong": (Model(), Budget(), None),
    "input arrives while running": (Model(), Budget(), 0),
    "the driver is killed twice": (Model(records=4), Budget(crashes=2), None),
    "the driver is killed twice, input arrives": (Model(), Budget(crashes=2), 1),
    "tasks fail, are retried and speculated": (Model(), Budget(crashes=1, epoch_failures=1, losing_attempts=1), None),
    "tasks fail without a restart strategy": (Model(policy=NoRestart()), Budget(crashes=1, epoch_failures=2), None),
    "sinks fail": (Model(), Budget(crashes=2, publish_failures=2), None),
    "sinks and tasks fail": (Model(), Budget(epoch_failures=1, publish_failures=2), None),
    "sinks fail without a restart strategy": (Model(policy=NoRestart()), Budget(publish_failures=2), None),
    "answers of the store are lost": (Model(records=2), Budget(crashes=1, lost_answers=2), None),
    "stopped and started again": (Model(), Budget(crashes=1, stops=1), 1),
    "stopped, canceled and started again": (Model(records=2), Budget(crashes=1, stops=2, cancels=1), None),
    "stopped while failing": (Model(records=2), Budget(stops=1, epoch_failures=1, publish_failures=1), None),
    "drained": (Model(), Budget(drains=1), 0),
    "drained, killed and started again": (Model(records=2), Budget(crashes=1, drains=1), 1),
    "drained while failing": (Model(records=2), Budget(drains=1, epoch_failures=1, publish_failures=1), None),
    "drained and stopped": (Model(records=2), Budget(drains=1, stops=1), None),
    "a second driver": (Model(records=4), Budget(second_drivers=1), None),
    "a second driver, old manifests are trimmed": (Model(records=4, trims=True), Budget(second_drivers=1), None),
    "a second driver and a kill": (Model(trims=True), Budget(second_drivers=1, crashes=1), None),
    "a second driver and lost answers": (Model(records=2), Budget(second_drivers=1, lost_answers=1), None),
    "a consumer takes published output away": (Model(), Budget(crashes=2, consumptions=2), None),
    "a consumer, a stop and a failing sink": (
        Model(records=2),
        Budget(crashes=1, consumptions=1, stops=1, publish_failures=1),
        None,
    ),
    "a stalled driver wakes up, upserts": (Model(records=4, upserts=True), Budget(second_drivers=1), None),
    "a stalled driver wakes up, upserts, trimmed": (
        Model(upserts=True, trims=True),
        Budget(second_drivers=1, crashes=1),
        None,
    ),
    "a stalled driver wakes up, sinks refuse older epochs": (
        Model(records=4, upserts=True, looks_before_publishing=False, refuses_older=True),
        Budget(second_drivers=1),
        None,
    ),
    "a second driver, a stop and a failing task": (
        Model(records=2, trims=True),
        Budget(second_drivers=1, stops=1, epoch_failures=1),
        None,
    ),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_history_publishes_every_record_once_and_in_order(name: str) -> None:
    histories, states = explore(*SCENARIOS[name])
    assert histories >= 48
    assert states >= 65


def test_the_model_explores_more_than_a_thousand_histories_and_crashes_at_every_step() -> None:
    histories, states = explore(Model(), Budget(crashes=2))
    assert histories > 1_000
    calm_histories, calm_states = explore(Model(), Budget())
    # A kill is possible in every state in which a driver lives, so each calm state is left by one at least once.
    assert states > 2 * calm_states
    assert histories > calm_histories


# --- the protocol, broken on purpose ------------------------------------------------------------------------


def publish_before_commit(state: ProtocolState, event: Event) -> tuple[ProtocolState, tuple[Action, ...]]:
    after, actions = decide(state, event)
    if isinstance(event, e.EpochDone) and after.phase is Phase.COMMITTING:
        return replace(after, publishing=after.running), (e.Publish(after.running), *actions)
    return after, actions


def skip_publishing_at_start(state: ProtocolState, event: Event) -> tuple[ProtocolState, tuple[Action, ...]]:
    if isinstance(event, e.Started) and event.newest:
        event = e.Started(replace(event.newest, published_through=event.newest.epoch))
    return decide(state, event)


def ignore_receipts(state: ProtocolState, event: Event) -> tuple[ProtocolState, tuple[Action, ...]]:
    return decide(state, replace(event, receipted=0) if isinstance(event, e.Started) else event)


def commit_without_waiting(state: ProtocolState, event: Event) -> tuple[ProtocolState, tuple[Action, ...]]:
    if isinstance(event, e.EpochDone):
        state = replace(state, published=state.committed)
    return decide(state, event)


def close_without_waiting(state: ProtocolState, event: Event) -> tuple[ProtocolState, tuple[Action, ...]]:
    after, actions = decide(state, event)
    if after.phase is Phase.SETTLING and state.phase is not Phase.SETTLING:
        commit = e.Commit(after.running, after.running, "FINISHED" if after.status == "DRAINED" else "SUSPENDED")
        return replace(after, phase=Phase.CLOSING, commit=commit), (commit, *actions)
    return after, actions


def end_without_closing(state: ProtocolState, event: Event) -> tuple[ProtocolState, tuple[Action, ...]]:
    after, actions = decide(state, event)
    if after.phase is Phase.CLOSING and after.status == "DRAINED":
        return replace(after, phase=Phase.FINISHED), (e.Finish(),)
    return after, actions


def continue_after_a_lost_race(state: ProtocolState, event: Event) -> tuple[ProtocolState, tuple[Action, ...]]:
    return decide(state, e.Committed() if isinstance(event, e.CommitLost) else event)


def believe_an_unanswered_commit(state: ProtocolState, event: Event) -> tuple[ProtocolState, tuple[Action, ...]]:
    if isinstance(event, e.CommitUnknown) and state.phase in (Phase.COMMITTING, Phase.CLOSING):
        return decide(state, e.Committed())
    return decide(state, event)


def accept_anothers_manifest_as_own(state: ProtocolState, event: Event) -> tuple[ProtocolState, tuple[Action, ...]]:
    return decide(state, e.CommitExists(is_own=True) if isinstance(event, e.CommitExists) else event)


def skip_what_could_not_be_published(state: ProtocolState, event: Event) -> tuple[ProtocolState, tuple[Action, ...]]:
    return decide(state, e.Published(event.epoch) if isinstance(event, e.PublishFailed) else event)


def wait_forever(state: ProtocolState, event: Event) -> tuple[ProtocolState, tuple[Action, ...]]:
    if state.phase is Phase.HOLDING and isinstance(event, e.Published):
        return replace(state, published=event.epoch, publishing=None), ()
    return decide(state, event)


MUTANTS: list[tuple[Decide, Budget, str]] = [
    (publish_before_commit, Budget(), "no manifest names it"),
    (skip_publishing_at_start, Budget(crashes=1), "published which are not|expected each of|before the epochs before"),
    (ignore_receipts, Budget(crashes=1, consumptions=1), "a consumer has taken its output away"),
    (commit_without_waiting, Budget(), "published which are not|Published cannot happen"),
    (close_without_waiting, Budget(), "published which are not"),
    (end_without_closing, Budget(), "without saying so"),
    (continue_after_a_lost_race, Budget(second_drivers=1), "no manifest names it"),
    (believe_an_unanswered_commit, Budget(lost_answers=1), "no manifest names it|without saying so"),
    (accept_anothers_manifest_as_own, Budget(second_drivers=1, lost_answers=1), "no manifest names it"),
    (skip_what_could_not_be_published, Budget(publish_failures=1), "published which are not"),
    (wait_forever, Budget(), "stuck"),
]


@pytest.mark.parametrize(("broken", "budget", "says"), MUTANTS, ids=lambda value: getattr(value, "__name__", ""))
def test_the_model_detects_a_broken_protocol(broken: Decide, budget: Budget, says: str) -> None:
    with pytest.raises(Violation, match=says):
        explore(Model(decide=broken), budget)


def test_the_model_detects_a_store_whose_create_overwrites() -> None:
    with pytest.raises(Violation, match=r"committed twice|no manifest names it"):
        explore(Model(create_overwrites=True), Budget(second_drivers=1))


def test_the_model_detects_a_driver_that_publishes_without_checking_for_a_successor() -> None:
    with pytest.raises(Violation, match="goes backwards"):
        explore(Model(upserts=True, looks_before_publishing=False), Budget(second_drivers=1))


def test_the_model_detects_a_receipt_written_before_publishing() -> None:
    with pytest.raises(Violation, match=r"published which are not|expected each of|before the epochs before"):
        explore(Model(receipt_first=True), Budget(crashes=1))


def test_the_model_detects_a_commit_into_a_gap_left_by_trimming() -> None:
    with pytest.raises(Violation, match="committed twice"):
        explore(Model(trims=True, looks_for_newer=False), Budget(second_drivers=1))


def test_a_violation_lists_the_steps_that_led_to_it() -> None:
    with pytest.raises(Violation) as caught:
        explore(Model(decide=commit_without_waiting), Budget())
    steps = str(caught.value).splitlines()
    assert steps[1].strip() == "a driver starts"
    assert "driver 0: plans [0, 1)" in str(caught.value)
