"""Prepares a job's store: claims it and, to start from a snapshot, commits the manifest that restores it.

In order, before anything runs:

1. find the snapshot; it must be complete;
2. compare the program with it, and print the difference; if state would be dropped and that is not allowed, stop;
3. in a new store: pin the snapshot's epoch and claim the store (`jobs/snapshots/forking.py`);
4. have the sinks decide about pending output, and report output published since;
5. commit one manifest that repeats the snapshot's. Of several processes that do so, all but one lose the race for its
   name.

An ordinary start from the newest manifest follows. It compares the program with that manifest in the same way (step 2).
It commits a new manifest only to drop state, to take the job over from another driver, or to get an unused number for
its first epoch: epochs that ran ahead and were committed as one wrote some files under the next number, and a file's
number shows whether its state is older or newer than a change of the program.
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
    """The snapshot a job starts from; None: where it ended. `drops`: state for which the program has no operator
    may be dropped. `on_lost`: how to treat state whose meaning changed (`SQL_LOST_STATE`). `fences`: another driver may
    be running, and loses the job by a manifest that repeats the newest."""

    snapshot: SnapshotName | None = None
    drops: bool = False
    on_lost: str = "refuse"
    fences: bool = field(default=False, repr=False)


def recovery_of(configuration: Mapping[str, str]) -> Recovery:
    """The recovery settings of a configuration.

    >>> recovery_of({"execution.state-recovery.path": "jobs/a@7"})
    Recovery(snapshot=SnapshotName(store='jobs/a', at=7), drops=False, on_lost='refuse')
    """
    paths = [path for key in _PATHS if (path := options.read(options.KNOWN[key], configuration))]
    drops = any(options.read(options.KNOWN[key], configuration) for key in _IGNORE)
    on_lost = options.read(options.SQL_LOST_STATE, configuration)
    return Recovery(parse_snapshot_name(paths[0]) if paths else None, drops, on_lost)


def ready_store(store: Store, plan: Plan, sinks: Mapping[str, Sink], recovery: Recovery, now_ms: int) -> JobRecord:
    """Prepare `store` for the run; returns the record of its job, and of the stores it shares files with."""
    name = recovery.snapshot or _beginning(store)
    snapshot = None if name is None else find_snapshot(name)
    if name is None or snapshot is None or _is_the_newest(store, name, snapshot):
        record = claim(store, plan.job_name, job_id=secrets.token_hex(16), now_ms=now_ms)
        _continue(store, record, plan, recovery, now_ms)
    else:
        warn_of_derived_uids(snapshot.manifest)
        manifest = _matched(snapshot, plan, recovery)
        begin = _go_back if snapshot.store.url == store.url else _start_elsewhere
        record = begin(store, snapshot, manifest, plan, sinks, now_ms)
    return record


def _beginning(store: Store) -> SnapshotName | None:
    """The snapshot that the store was created for, while it has no epochs."""
    record = read_job_record(store)
    if record is None or not record.begins or ManifestLog(store).epochs():
        return None
    return parse_snapshot_name(shown_address(record.begins))


def _is_the_newest(store: Store, name: SnapshotName, snapshot: StoredSnapshot) -> bool:
    """Whether the job continues from this snapshot anyway: in its own store, at its newest epoch."""
    return snapshot.store.url == store.url and name.at in (None, (ManifestLog(store).epochs() or [0])[-1])


# --- comparing the program with a manifest --------------------------------------------------------------------


def _matched(snapshot: StoredSnapshot, plan: Plan, recovery: Recovery) -> Manifest:
    """The snapshot's manifest, reduced to the state that the program continues with."""
    match = match_program(snapshot.manifest, _names(plan), keeping_operators(snapshot.manifest))
    _LOG.warning("%s", match.text(snapshot.name))
    if not match.matched:
        raise StoreError(
            f"{snapshot.name} is a snapshot of job '{snapshot.manifest.job}', and this program has none of its "
            "operators. Use a snapshot of this job, or set the uids that the operators had."
        )
    left_behind = _left_behind(snapshot.manifest, match, plan, snapshot.name, recovery)
    manifest = without_states(snapshot.manifest, left_behind)
    check_windows(manifest, snapshot.store, plan, snapshot.name)
    return manifest


def _left_behind(manifest: Manifest, match: Match, plan: Plan, name: str, recovery: Recovery) -> set[str]:
    """The operators whose state is dropped. Raises StoreError unless that is allowed."""
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
        f"{name} has state of {names}, which this program does not have; new in it: {near}. Set the uids that "
        "the operators had with .uid(...), drop that state with --allow-non-restored-state, or start anew with "
        "another --store."
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
                f"{node.max_parallelism} now. State cannot be repartitioned: set_max_parallelism({before})."
            )


# --- continuing where the job ended ---------------------------------------------------------------------------


def _continue(store: Store, record: JobRecord, plan: Plan, recovery: Recovery, now_ms: int) -> None:
    """Continue from the newest epoch, without state that the program does not use, if that is allowed."""
    log = ManifestLog(store)
    newest = log.newest()
    if newest is None:
        known_published(store, None, record.job_id)  # a receipt without its epoch is damage
        return
    check_owner(store, record, newest.job_id, newest.epoch)
    name = f"epoch {newest.epoch} of store {store.url}"
    match = match_program(newest, _names(plan), keeping_operators(newest))
    if match.is_change:
        _LOG.warning("%s", match.text(name))
    left_behind = _left_behind(newest, match, plan, name, recovery)
    restored = without_states(newest, left_behind)
    check_windows(restored, store, plan, name)
    published = known_published(store, newest, record.job_id)
    _check_unpublished(log, newest, published, plan)
    newest_number = max(map(epoch_of_file, named_files(newest)), default=0)
    if left_behind or newest_number > newest.epoch or recovery.fences:
        _commit(log, restored, record, newest, published, now_ms, store.url)


def _check_unpublished(log: ManifestLog, newest: Manifest, published: int, plan: Plan) -> None:
    """Raises if output that may not be published yet needs a sink that the program does not have."""
    uids = {node.uid for node in plan.nodes()}
    for epoch in range(published + 1, newest.epoch + 1):
        missing = sorted(set(log.read(epoch).staged) - uids)
        if missing:
            raise StoreError(
                f"epoch {epoch} of job '{newest.job}' has output for the sink with uid {missing[0]} that is not known "
                "to be published, and this program has no such sink. Start the job once with it, so that nothing "
                "is lost."
            )


# --- going back, and starting elsewhere -----------------------------------------------------------------------


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
            f"store {store.url}: epoch {newest.epoch} is committed and not known to be published, and it may "
            "contain output that"
            f" epoch {manifest.epoch} held back. Start the job once without --from, so that it is "
            "published, then go back."
        )
    # Its files must stay until a manifest names them again: a driver that still runs may be sweeping.
    with LeasedEpoch(store, snapshot.manifest.epoch, lambda: now_ms):
        manifest = _for_sinks(snapshot, manifest, sinks, store, record.job_id)
        _commit(log, manifest, record, newest, published, now_ms, store.url)
    return record


def _start_elsewhere(
    store: Store, snapshot: StoredSnapshot, manifest: Manifest, plan: Plan, sinks: Mapping[str, Sink], now_ms: int
) -> JobRecord:
    """Begin in an empty store where the snapshot ended."""
    log = ManifestLog(store)
    if log.epochs():
        raise StoreError(
            f"store {store.url} already has epochs of job '{plan.job_name}', so it cannot start from {snapshot.name}. "
            "To continue the job, start it without --from; to start from the snapshot, use another --store."
        )
    record = claim_fork(store, snapshot, plan.job_name, now_ms)
    manifest = _for_sinks(snapshot, manifest, sinks, store, record.job_id)
    _commit(log, manifest, record, None, 0, now_ms, store.url)
    return record


def _for_sinks(
    snapshot: StoredSnapshot, manifest: Manifest, sinks: Mapping[str, Sink], store: Store, job: str
) -> Manifest:
    """The manifest with the output that its sinks must still publish; reports output that has been published since."""
    accounts, states = accounts_of(manifest), dict(manifest.states)
    may_have_published = _has_continued(snapshot)
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


def _has_continued(snapshot: StoredSnapshot) -> bool:
    """Whether the job may have published output after the snapshot; unknown, and so true, for a savepoint's folder."""
    if snapshot.is_savepoint:
        return True
    log = ManifestLog(snapshot.store)
    later = (log.read_if_present(epoch) for epoch in log.epochs_from(snapshot.manifest.epoch + 1))
    # A manifest that no longer exists was swept: the job is running.
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
    """Commit the content of `manifest` as the epoch after `newest` or, in an empty store, after itself."""
    before = newest or manifest
    # Output that is not known to be published is published before the job continues, as at every start.
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
        restored = replace(restored, status=newest.status)  # its input has ended permanently
    if not log.commit(restored):
        raise FencedError(f"store {url}: another driver started the job at the same moment. This one has stopped.")
