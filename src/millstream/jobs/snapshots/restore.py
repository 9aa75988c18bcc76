"""Getting a job's store ready: claimed, and, if the job is to start from a snapshot, with the manifest that says so.

In order, before anything runs:
1. find the snapshot; it must be whole;
2. hold the program against it, and print the difference; state that would be left behind stops here unless allowed;
3. in a new store: pin the snapshot's epoch and claim the store (`jobs/snapshots/forking.py`);
4. ask the sinks what becomes of output that waited, and tell the user what was published since;
5. commit one manifest that says what the snapshot's says. Whoever else tries the same loses the race for its name.

What follows is an ordinary start from the newest manifest. An ordinary start is held against the newest manifest in the
same way (step 2), and commits one of its own only to leave state behind, to take the job from another driver, or to
have a number for its first epoch that no file has: epochs that ran ahead and were committed as one wrote some under the
next number, and by the number of its file the state is known as of before or after a change of the program.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from millstream.checkpoint.job_record import JobRecord, check_owner, claim
from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.leases import LeasedEpoch
from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.checkpoint.program import program_of
from millstream.checkpoint.receipts import known_published
from millstream.checkpoint.restoring import Match, match_program, restored_manifest, without_states
from millstream.checkpoint.retention import epoch_of_file, named_files
from millstream.checkpoint.savepoints import StoredSnapshot, find_snapshot
from millstream.checkpoint.snapshot_names import SnapshotName, parse_snapshot_name
from millstream.common import options
from millstream.connectors.contract_checks import restored_pending
from millstream.connectors.contracts import RestorePoint, Sink
from millstream.errors import FencedError, StoreError
from millstream.jobs.snapshots.forking import claim_fork
from millstream.jobs.snapshots.program_changes import warn_of_derived_uids
from millstream.jobs.snapshots.state_fates import judged_program, keeping_operators
from millstream.jobs.snapshots.window_changes import check_windows
from millstream.plan.stages import Plan
from millstream.state.stored.accounts import OperatorAccount, accounts_of, to_json
from millstream.storage.store import Store, shown_address

__all__ = ["Recovery", "ready_store", "recovery_of"]

_LOG = logging.getLogger("millstream.restore")
_PATHS = ("execution.state-recovery.path", "execution.savepoint.path")
_IGNORE = ("execution.state-recovery.ignore-unclaimed-state", "execution.savepoint.ignore-unclaimed-state")


@dataclass(frozen=True)
class Recovery:
    """The snapshot a job is to start from; None: where it ended. `drops`: state that the program has no operator for
    may be left behind. `on_lost`: what becomes of state that means something else now (`SQL_LOST_STATE`). `fences`:
    another driver may be at work, and is to lose the job by a manifest that says what the newest says."""

    snapshot: SnapshotName | None = None
    drops: bool = False
    on_lost: str = "refuse"
    fences: bool = field(default=False, repr=False)


def recovery_of(configuration: Mapping[str, str]) -> Recovery:
    """What the configuration says about it.

    >>> recovery_of({"execution.state-recovery.path": "jobs/a@7"})
    Recovery(snapshot=SnapshotName(store='jobs/a', at=7), drops=False, on_lost='refuse')
    """
    paths = [path for key in _PATHS if (path := options.read(options.KNOWN[key], configuration))]
    drops = any(options.read(options.KNOWN[key], configuration) for key in _IGNORE)
    on_lost = options.read(options.SQL_LOST_STATE, configuration)
    return Recovery(parse_snapshot_name(paths[0]) if paths else None, drops, on_lost)


def ready_store(store: Store, plan: Plan, sinks: Mapping[str, Sink], recovery: Recovery, now_ms: int) -> JobRecord:
    """Make `store` the one to run in; returns whose it is, and which stores it shares files with."""
    name = recovery.snapshot or _beginning(store)
    snapshot = None if name is None else find_snapshot(name)
    if name is None or snapshot is None or _is_the_newest(store, name, snapshot):
        record = claim(store, plan.job_name, job_id=secrets.token_hex(16), now_ms=now_ms)
        _go_on(store, record, plan, recovery, now_ms)
    else:
        warn_of_derived_uids(snapshot.manifest)
        manifest = _matched(snapshot, plan, recovery)
        begin = _go_back if snapshot.store.url == store.url else _go_on_elsewhere
        record = begin(store, snapshot, manifest, plan, sinks, now_ms)
    return record


def _beginning(store: Store) -> SnapshotName | None:
    """The snapshot that the store was made for, while it holds no epoch."""
    record = read_job_record(store)
    if record is None or not record.begins or ManifestLog(store).epochs():
        return None
    return parse_snapshot_name(shown_address(record.begins))


def _is_the_newest(store: Store, name: SnapshotName, snapshot: StoredSnapshot) -> bool:
    """Whether that is where the job goes on anyway: in its own store, at its newest epoch."""
    return snapshot.store.url == store.url and name.at in (None, (ManifestLog(store).epochs() or [0])[-1])


# --- the program, held against a manifest ---------------------------------------------------------------------


def _matched(snapshot: StoredSnapshot, plan: Plan, recovery: Recovery) -> Manifest:
    """The snapshot's manifest as the program can go on with it."""
    match = match_program(snapshot.manifest, _names(plan), keeping_operators(snapshot.manifest))
    _LOG.warning("%s", match.text(snapshot.name))
    if not match.matched:
        raise StoreError(
            f"{snapshot.name} is a snapshot of job '{snapshot.manifest.job}', and this program has none of its "
            "operators. Give the snapshot of this job, or give the operators the uids they had."
        )
    left_behind = _left_behind(snapshot.manifest, match, plan, snapshot.name, recovery)
    manifest = without_states(snapshot.manifest, left_behind)
    check_windows(manifest, snapshot.store, plan, snapshot.name)
    return manifest


def _left_behind(manifest: Manifest, match: Match, plan: Plan, name: str, recovery: Recovery) -> set[str]:
    """The operators whose state does not go on with the program, if it may be left behind."""
    _check_max_parallelism(manifest, plan, name)
    lost = judged_program(manifest, plan.nodes(), name, recovery.on_lost)
    if match.dropped and not recovery.drops:
        raise StoreError(_dropped_text(name, match))
    return {*match.dropped, *lost}


def _names(plan: Plan) -> dict[str, str]:
    return {node.uid or "": node.name for node in plan.nodes()}


def _dropped_text(name: str, match: Match) -> str:
    names = ", ".join(f"'{name}' (uid {uid})" for uid, name in match.dropped.items())
    near = ", ".join(f"'{name}' (uid {uid})" for uid, name in match.new.items()) or "none"
    return (
        f"{name} keeps state of {names}, which this program has not; new in it: {near}. It was changed: give the "
        "operators the uids they had with .uid(...), leave that state behind with --allow-non-restored-state, or give "
        "another --store to start anew."
    )


def _check_max_parallelism(manifest: Manifest, plan: Plan, name: str) -> None:
    accounts, program = accounts_of(manifest), program_of(manifest)
    for node in plan.nodes():
        uid = node.uid or ""
        keeps_keys = uid in program and uid in accounts and accounts[uid].subtasks
        before = program[uid].max_parallelism if keeps_keys else None
        if before is not None and before != node.max_parallelism:
            raise StoreError(
                f"'{node.name}' (uid {uid}) has {before} key groups in {name}, and max_parallelism "
                f"{node.max_parallelism} now. State cannot be cut anew: set_max_parallelism({before})."
            )


# --- going on where the job ended -----------------------------------------------------------------------------


def _go_on(store: Store, record: JobRecord, plan: Plan, recovery: Recovery, now_ms: int) -> None:
    """Go on with the newest epoch, without what the program has no use for, if that is allowed."""
    log = ManifestLog(store)
    newest = log.newest()
    if newest is None:
        known_published(store, None, record.job_id)  # a receipt of an epoch that is not there is damage
        return
    check_owner(store, record, newest.job_id, newest.epoch)
    name = f"epoch {newest.epoch} of store {store.url}"
    match = match_program(newest, _names(plan), keeping_operators(newest))
    if match.is_change:
        _LOG.warning("%s", match.text(name))
    left_behind = _left_behind(newest, match, plan, name, recovery)
    kept = without_states(newest, left_behind)
    check_windows(kept, store, plan, name)
    published = known_published(store, newest, record.job_id)
    _check_unpublished(log, newest, published, plan)
    newest_number = max(map(epoch_of_file, named_files(newest)), default=0)
    if left_behind or newest_number > newest.epoch or recovery.fences:
        _commit(log, kept, record, newest, published, now_ms, store.url)


def _check_unpublished(log: ManifestLog, newest: Manifest, published: int, plan: Plan) -> None:
    """Output that may not be published yet needs the sink that published it."""
    uids = {node.uid for node in plan.nodes()}
    for epoch in range(published + 1, newest.epoch + 1):
        missing = sorted(set(log.read(epoch).staged) - uids)
        if missing:
            raise StoreError(
                f"epoch {epoch} of job '{newest.job}' has output for the sink with uid {missing[0]} that is not known "
                "to be published, and this program has no such sink. Start the job once with it, so that nothing "
                "is lost."
            )


# --- going back, and elsewhere --------------------------------------------------------------------------------


def _go_back(
    store: Store, snapshot: StoredSnapshot, manifest: Manifest, plan: Plan, sinks: Mapping[str, Sink], now_ms: int
) -> JobRecord:
    """Make an older epoch of the job its newest."""
    record = claim(store, plan.job_name, job_id=secrets.token_hex(16), now_ms=now_ms)
    log = ManifestLog(store)
    newest = log.newest()
    assert newest is not None
    check_owner(store, record, newest.job_id, newest.epoch)
    published = known_published(store, newest, record.job_id)
    _check_unpublished(log, newest, published, plan)
    holds_back = any(account.pending is not None for account in accounts_of(manifest).values())
    if published < newest.epoch and holds_back:
        raise StoreError(
            f"store {store.url}: epoch {newest.epoch} is committed and not known to be published, and it may hold "
            f"output that epoch {manifest.epoch} kept back. Start the job once without --from, so that it is "
            "published, then go back."
        )
    # Its files must not go before a manifest names them again: a driver that still runs may be sweeping.
    with LeasedEpoch(store, snapshot.manifest.epoch, lambda: now_ms):
        manifest = _for_sinks(snapshot, manifest, sinks, store, record.job_id)
        _commit(log, manifest, record, newest, published, now_ms, store.url)
    return record


def _go_on_elsewhere(
    store: Store, snapshot: StoredSnapshot, manifest: Manifest, plan: Plan, sinks: Mapping[str, Sink], now_ms: int
) -> JobRecord:
    """Begin in an empty store where the snapshot ended."""
    log = ManifestLog(store)
    if log.epochs():
        raise StoreError(
            f"store {store.url} already has epochs of job '{plan.job_name}', so it cannot begin with {snapshot.name}. "
            "To go on with it leave --from out; to begin anew give another --store."
        )
    record = claim_fork(store, snapshot, plan.job_name, now_ms)
    manifest = _for_sinks(snapshot, manifest, sinks, store, record.job_id)
    _commit(log, manifest, record, None, 0, now_ms, store.url)
    return record


def _for_sinks(
    snapshot: StoredSnapshot, manifest: Manifest, sinks: Mapping[str, Sink], store: Store, job: str
) -> Manifest:
    """The manifest with what its sinks still have to publish; the user is told what has been published since."""
    accounts, states = accounts_of(manifest), dict(manifest.states)
    may_have_published = _went_on(snapshot)
    for uid, sink in sinks.items():
        past_job, published = snapshot.manifest.job_id, snapshot.published(uid)
        point = RestorePoint(manifest.epoch, uid, store, job, past_job, published)
        account = accounts.get(uid, OperatorAccount())
        pending, sentence = restored_pending(sink, account.pending, point)
        if account.pending is not None:
            states[uid] = to_json(replace(account, pending=pending))
        if sentence and may_have_published:
            _LOG.warning("output after epoch %d is not undone: %s: %s", manifest.epoch, sink.describe(), sentence)
    return replace(manifest, states=states)


def _went_on(snapshot: StoredSnapshot) -> bool:
    """Whether the job may have published something after the snapshot; a savepoint's folder cannot tell."""
    if snapshot.is_savepoint:
        return True
    log = ManifestLog(snapshot.store)
    later = (log.read_if_present(epoch) for epoch in log.epochs_from(snapshot.manifest.epoch + 1))
    # One that is gone by now was collected: the job is at work.
    return any(manifest is None or manifest.status in ("RUNNING", "DRAINED") for manifest in later)


def _commit(
    log: ManifestLog,
    manifest: Manifest,
    record: JobRecord,
    newest: Manifest | None,
    published: int,
    now_ms: int,
    url: str,
) -> None:
    """Commit what `manifest` says as the epoch after `newest`, or, in an empty store, after itself."""
    before = newest or manifest
    # What is not known to be published is published before the job goes on, as at every start.
    published_through = None if newest is None or published == newest.epoch else published
    restored = restored_manifest(
        manifest,
        job=record.job,
        job_id=record.job_id,
        run=f"restore{secrets.token_hex(4)}",
        epoch=before.epoch + 1,
        now_ms=now_ms,
        parent=0 if newest is None else newest.epoch,
        published_through=published_through,
    )
    if newest is not None and manifest.epoch == newest.epoch and newest.status in ("DRAINED", "FINISHED"):
        restored = replace(restored, status=newest.status)  # its input has ended, and stays so
    if not log.commit(restored):
        raise FencedError(f"store {url}: another driver started the job at the same moment. This one has stopped.")
