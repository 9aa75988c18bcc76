"""The store of a job that is about to start: checked, and leased to this driver before anything of the job is touched.

A store in which another driver works is rejected here (`checkpoint/driver_lease.py`). Like every change of a job, a
takeover is a manifest: the new driver commits one that repeats the newest. So the old driver fails at its next commit,
and never the new one. The old one may commit once more just before; that epoch is then the newest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from millstream.checkpoint.driver_lease import HeldLease, acquire_lease, unwritten_lease
from millstream.checkpoint.job_record import JobRecord, claim
from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.removals import settle_removals
from millstream.common import options
from millstream.connectors.contracts import Sink
from millstream.errors import FencedError
from millstream.jobs.launch.store_room import check_room
from millstream.jobs.snapshots.restore import ready_store, recovery_of
from millstream.plan.stages import Plan
from millstream.storage.layered_stores import layered_store
from millstream.storage.local import make_private
from millstream.storage.patience import with_patience
from millstream.storage.store import Store

__all__ = ["LeasedStore", "leased_store"]

_TAKE_OVER_TRIES = 20


@dataclass(frozen=True)
class LeasedStore:
    """A store, the patience for calls while it is unreachable, and the lease of this driver."""

    plain: Store
    patience_s: float
    lease: HeldLease

    def patient(self, bases: tuple[Store, ...] = ()) -> Store:
        """The store with patience, layered on the stores that the job shares files with."""
        layers = tuple(with_patience(base, self.patience_s) for base in bases)
        return layered_store(with_patience(self.plain, self.patience_s), layers)

    def ready(self, plan: Plan, sinks: Mapping[str, Sink], configuration: Mapping[str, str], now_ms: int) -> JobRecord:
        """Prepare the store for the run, as `ready_store` does."""
        store = self.patient()
        settle_removals(store)
        recovery = replace(recovery_of(configuration), fences=self.lease.superseded is not None)
        for _ in range(_TAKE_OVER_TRIES if recovery.fences else 0):
            try:
                return ready_store(store, plan, sinks, recovery, now_ms)
            except FencedError:
                continue  # the other driver has just committed once more
        return ready_store(store, plan, sinks, recovery, now_ms)


def leased_store(
    store: Store, job: str, configuration: Mapping[str, str], now_ms: Callable[[], int], *, is_leased: bool = True
) -> LeasedStore:
    """Check the store, and take its lease for a driver of `job`. `is_leased` False: take no lease, and reject no other
    driver."""
    if options.read(options.STORE_PRIVATE, configuration):
        make_private(store)
    patience_s = options.read(options.STORE_PATIENCE, configuration) / 1000
    patient_store = with_patience(store, patience_s)
    check_room(store, patient_store, job, configuration, now_ms)
    if read_job_record(patient_store) is not None:
        claim(patient_store, job, job_id="", now_ms=0)  # never write to another job's store, not even a lease
    if not is_leased:
        return LeasedStore(store, patience_s, unwritten_lease(store, job))
    takes_over = options.read(options.TAKE_OVER, configuration)
    lease = acquire_lease(patient_store, job, takes_over=takes_over, renewed_in=store)
    return LeasedStore(store, patience_s, lease)
