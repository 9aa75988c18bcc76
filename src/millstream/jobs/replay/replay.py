"""Replay: runs an operator's part of a committed epoch again in this process, and compares the result with the
committed one.

In order:

1. find the epoch and the previous one, and lease both: the job may continue in the meantime;
2. compile the program as the epoch ran it, at its parallelism, and extract the operator with its upstream and
   downstream;
3. compute what was read (`replayed_input`), and have the sources read it again, or use the recorded input;
4. run it, with the epoch's number, processing time and states, on top of the job's files (`storage.layered_stores`);
5. compare (`replay_comparison`).

Invariant: a replay changes nothing. State is written to memory, no manifest is committed, and nothing is published. A
sink that would write outside the job's store is not run: its input is only counted. (Like every reader, a replay leases
the files it reads.) User functions do run, in the calling thread, so a breakpoint in them works.

A function that returns the same results for the same input and state reproduces the committed ones. A difference means
that the function uses a clock, a random number or a service, depends on the order of records from different senders, or
is not the code that ran originally.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from millstream import state_reader
from millstream.checkpoint import events as e
from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.manifest import Manifest, ManifestLog, encode
from millstream.checkpoint.savepoints import epoch_ranges
from millstream.common import options
from millstream.connectors.contract_checks import opened_source
from millstream.connectors.contracts import Source
from millstream.errors import JobFailedError, ProgramError, StoreError, did_you_mean
from millstream.graph.nodes import Graph, Node
from millstream.jobs.clock import SystemClock
from millstream.jobs.epochs.epoch_run import Deployment, run_epoch
from millstream.jobs.epochs.epoch_statistics import statistics_of
from millstream.jobs.epochs.input_plan import PlannedSource
from millstream.jobs.epochs.manifests import epoch_spec
from millstream.jobs.epochs.outcome import EpochOutcome
from millstream.jobs.epochs.rounds import rounds_max
from millstream.jobs.epochs.watermarks import strategies_of
from millstream.jobs.launch.launch import ends_of, is_batch, with_sources
from millstream.jobs.replay.replay_comparison import COUNTS, Comparison, Difference, compare_operator, replayed_manifest
from millstream.jobs.replay.replayed_epoch import plan_as_committed, replayed_input, replayed_part
from millstream.jobs.settings.job_settings import JobSettings
from millstream.plan.stages import Plan
from millstream.runtime.operators.user_code import UserFailureError
from millstream.runtime.task.local import LocalRunner
from millstream.runtime.task.recorded_input import RecordedSource
from millstream.runtime.task.spec import EpochSpec, JobFacts
from millstream.state.stored.accounts import OperatorAccount, accounts_of
from millstream.storage.layered_stores import SandboxStore
from millstream.storage.memory import MemoryStore
from millstream.storage.names import manifest_name, savepoint_name
from millstream.storage.store import Store, shown_address

__all__ = ["Replay", "past_epoch", "replay"]

_NO_ORDER = (
    "records of different senders arrive in no defined order; a function that depends on it differs because of it"
)
_RESTORED = "restore"  # prefix of the run of a manifest that only records where a job continues


@dataclass(frozen=True)
class Replay:
    """The result of a replay. `differences` are the first of `count`; `compared` lists what was compared."""

    epoch: int
    uid: str
    operator: str
    store: str
    records_in: int
    records_out: int
    compared: tuple[str, ...]
    differences: tuple[Difference, ...]
    count: int
    notes: tuple[str, ...]

    @property
    def is_same(self) -> bool:
        """Whether everything equals the committed epoch."""
        return self.count == 0

    def text(self) -> str:
        """The result as text."""
        lines = [
            f"replayed '{self.operator}' (uid {self.uid}) in epoch {self.epoch} of {self.store}: "
            f"{self.records_in} records in, {self.records_out} out",
            f"compared {self._compared_text()}",
            *(f"note: {note}" for note in self.notes),
        ]
        if self.is_same:
            return "\n".join([*lines, "the same as was committed"])
        some = "" if self.count == len(self.differences) else f"; the first {len(self.differences)} are"
        lines.append(f"NOT the same as was committed: {self.count} difference{'s' if self.count > 1 else ''}{some}")
        return "\n".join([*lines, *(f"  {difference.text()}" for difference in self.differences)])

    def _compared_text(self) -> str:
        """The comparisons besides counts, which all operators have."""
        rest = [what for what in self.compared if not what.startswith(COUNTS)]
        counted = len(self.compared) - len(rest)
        return ", ".join([f"records and event time of {counted} operator{'s' if counted != 1 else ''}", *rest])


@dataclass(frozen=True)
class PastEpoch:
    """An epoch to be replayed, and the one it followed (None for the first). Both are leased until closed."""

    name: str
    committed: state_reader.Snapshot
    before: state_reader.Snapshot | None

    @property
    def manifest(self) -> Manifest:
        """Its manifest."""
        return self.committed.manifest

    @property
    def parent(self) -> Manifest | None:
        """The manifest it started from."""
        return None if self.before is None else self.before.manifest

    def close(self) -> None:
        """Release both."""
        self.committed.close()
        if self.before is not None:
            self.before.close()


def replay(
    graph: Graph,
    settings: JobSettings,
    snapshot: str,
    operator: str,
    *,
    downstream: bool = True,
    differences_max: int = 20,
) -> Replay:
    """Run the part of `operator` (its uid, or its name) in a committed epoch (`STORE@EPOCH`) again and compare.

    `graph` and `settings` are those of the job's program. Downstream operators run too, so that their output is
    compared where the job stored it; `downstream=False` stops after the operator. Raises JobFailedError when user code
    fails; its `__cause__.__cause__` is the user's exception.
    """
    past = past_epoch(snapshot)
    memory = MemoryStore(f"replay-{secrets.token_hex(8)}")
    sandbox = SandboxStore(memory, past.committed.store)
    try:
        return _replayed(past, sandbox, graph, settings, operator, downstream, differences_max)
    finally:
        past.close()
        sandbox.clear()


def past_epoch(snapshot: str) -> PastEpoch:
    """The epoch that `snapshot` names, leased together with the previous one; raises StoreError if either is
    missing."""
    reader = state_reader.open(snapshot)
    if reader.store.exists(savepoint_name()):
        raise StoreError(
            f"{snapshot} is a savepoint, which contains one epoch; a replay also needs the previous one. Replay it in "
            "the job's own store: STORE@EPOCH"
        )
    committed = reader.at()
    try:
        manifest = committed.manifest
        _check_that_it_ran(manifest, reader.name.store)
        if manifest.parent == 0:
            return PastEpoch(snapshot, committed, None)
        epochs = ManifestLog(reader.store).epochs()
        if manifest.parent not in epochs:
            raise StoreError(
                f"epoch {manifest.epoch} of {reader.name.store} followed epoch {manifest.parent}, which is not "
                f"retained any more: it retains {epoch_ranges(epochs)}. Replay one whose predecessor is retained, "
                "and retain more epochs with millstream.retention.epochs"
            )
        return PastEpoch(snapshot, committed, reader.at(epoch=manifest.parent))
    except BaseException:
        committed.close()
        raise


def _check_that_it_ran(manifest: Manifest, store: str) -> None:
    if manifest.run.startswith(_RESTORED):
        problem = "only records a start from a snapshot; no operator ran in it. Replay the next one"
    elif manifest.status in ("FINISHED", "SUSPENDED"):
        problem = f"only records that everything is published; no operator ran in it. Replay {store}@{manifest.parent}"
    elif (steps := (statistics_of(manifest) or {}).get("steps", 1)) > 1:
        problem = (
            f"was run as {steps} epochs, one after the other, and committed as one: their starting points are "
            "not stored. Replay an epoch that was committed by itself; to commit all of them so, run the job with "
            "millstream.record on, or with millstream.ahead.max-epochs 0"
        )
    else:
        return
    raise StoreError(f"epoch {manifest.epoch} of {store} {problem}")


# --- running it -------------------------------------------------------------------------------------------------


def _replayed(
    past: PastEpoch,
    sandbox: SandboxStore,
    graph: Graph,
    settings: JobSettings,
    operator: str,
    downstream: bool,
    differences_max: int,
) -> Replay:
    manifest, comparison = past.manifest, Comparison(differences_max)
    _check_job(graph.job_name, past)
    plan = plan_as_committed(graph, manifest, past.name)
    node = _node_of(plan, operator, past.name)
    part = replayed_part(plan, node, manifest, downstream=downstream, name=past.name)
    comparison.notes += [f"'{stub.name}' was not run, as it writes outside the store; counted" for stub in part.stubs]
    sources = _reopened_sources(part.plan, manifest, sandbox, settings.session)
    try:
        reopened_plan = with_sources(part.plan, sources)
        now_ms, strategies = _processing_time(manifest, comparison.notes), strategies_of(reopened_plan)
        spec = epoch_spec(
            e.RunEpoch(manifest.epoch, final=manifest.status == "DRAINED"),
            replayed_input(sources, past.parent, manifest, now_ms, strategies),
            past.parent,
            strategies,
        )
        facts = _facts(manifest, sandbox, settings, is_batch(settings, ends_of(plan)[0]))
        outcome = _run(reopened_plan, spec, facts, _rounds(plan, manifest, settings.configuration))
    finally:
        for planned in sources:
            planned.source.close()
    sandbox.put(manifest_name(manifest.epoch), encode(replayed_manifest(past.parent, manifest, outcome)))
    with state_reader.Snapshot(sandbox, manifest.epoch, where=past.name, now_ms=SystemClock().now_ms) as replayed:
        for compared_node in part.compared:
            compare_operator(compared_node, comparison, past.parent, past.committed, replayed, outcome)
    if comparison.count and any(channel.senders > 1 for channel in part.plan.channels if not channel.local):
        comparison.notes.append(_NO_ORDER)
    counts = outcome.operators[node.uid or ""]
    return Replay(
        epoch=manifest.epoch,
        uid=node.uid or "",
        operator=node.name,
        store=shown_address(past.committed.store.url),
        records_in=counts["in"],
        records_out=counts["out"],
        compared=tuple(comparison.compared),
        differences=tuple(comparison.differences),
        count=comparison.count,
        notes=tuple(comparison.notes),
    )


def _check_job(job: str, past: PastEpoch) -> None:
    record = read_job_record(past.committed.store)
    if record is not None and job not in record.names:
        raise ProgramError(
            f"the program starts job '{job}', and {past.name} is of job '{record.job}'. Use the program of that job; "
            "of a program that starts several jobs, only the first can be replayed"
        )


def _node_of(plan: Plan, operator: str, where: str) -> Node:
    nodes = plan.nodes()
    matches = [node for node in nodes if node.uid == operator] or [node for node in nodes if node.name == operator]
    if len(matches) == 1:
        return matches[0]
    if matches:
        uids = ", ".join(node.uid or "" for node in matches)
        raise ProgramError(
            f"the program has {len(matches)} operators named '{operator}'. Use one of their uids: {uids}"
        )
    names = [text for node in nodes for text in (node.uid or "", node.name)]
    have = ", ".join(f"'{node.name}' (uid {node.uid})" for node in nodes)
    raise ProgramError(
        f"the program of {where} has no operator '{operator}'.{did_you_mean(operator, names)} It has {have}"
    )


def _reopened_sources(plan: Plan, manifest: Manifest, store: Store, session: Any) -> tuple[PlannedSource, ...]:
    """The sources, ready to repeat what they read: from the recorded input, or by reading it again."""
    accounts = accounts_of(manifest)
    sources: list[PlannedSource] = []
    try:
        for planned in ends_of(plan)[0]:
            recorded = accounts.get(planned.uid, OperatorAccount()).recorded
            if recorded is not None:
                source: Source = RecordedSource(planned.source, recorded, store)
            else:
                source = opened_source(planned.source, store, session, again=True)
            sources.append(replace(planned, source=source))
    except BaseException:
        for planned in sources:
            planned.source.close()
        raise
    return tuple(sources)


def _processing_time(manifest: Manifest, notes: list[str]) -> int:
    statistics = statistics_of(manifest)
    if statistics is not None and statistics.get("now_ms") is not None:
        return int(statistics["now_ms"])
    notes.append(
        "the manifest does not record the processing time of the epoch; it was replayed at the time of its commit"
    )
    return manifest.created_ms


def _rounds(plan: Plan, manifest: Manifest, configuration: Mapping[str, str]) -> int:
    """An upper bound on the epoch's rounds."""
    statistics = statistics_of(manifest)
    configured = rounds_max(plan, options.read(options.LOOP_ROUNDS_MAX, configuration))
    return configured if statistics is None else int(statistics.get("rounds") or configured)


def _facts(manifest: Manifest, store: Store, settings: JobSettings, batch: bool) -> JobFacts:
    return JobFacts(
        job_name=manifest.job,
        job_id=manifest.job_id,
        run=secrets.token_hex(4),
        store=store,
        parameters=dict(settings.job_parameters),
        batch_records_max=options.read(options.BATCH_MAX_RECORDS, settings.configuration),
        batch=batch,
    )


def _run(plan: Plan, spec: EpochSpec, facts: JobFacts, rounds: int) -> EpochOutcome:
    runner = LocalRunner(raises=True)
    deployment = Deployment(plan, (), {}, facts, runner)
    deployment.send()
    outcome = _reporting(spec.epoch, lambda: run_epoch(deployment, spec, rounds_max=rounds))
    runner.close()  # not after a failure: a debugger needs the function's state
    return outcome


def _reporting(epoch: int, run: Callable[[], EpochOutcome]) -> EpochOutcome:
    """The result of `run`; raises a failure of user code as the user's error."""
    try:
        return run()
    except UserFailureError as failure:
        report = failure.report
        lines = [line for line in report.text().splitlines() if not line.startswith("  epoch ")]
        lines.append(f"  epoch     {epoch}, replayed; when it was committed, this did not fail")
        message = f"{report.error}: {report.message}"
        if report.role == "read":
            message = f"{message.rstrip('.')}. Can the source still read what it read then?"
        raise JobFailedError(
            f"'{report.operator}' failed in the replay of epoch {epoch}: {message}",
            report="\n".join(lines),
            at=report.site,
        ) from failure
