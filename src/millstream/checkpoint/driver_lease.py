"""`driver.json`: the driver that runs the job. A driver writes it before it accesses the store, and renews it until the
job ends.

The lease protects users from mistakes: it rejects a second driver before it has done anything, and names the running
one. Correctness does not depend on it: if two drivers both believe they own the job, only one of them can create the
next manifest. So a lost, late, damaged or forged lease delays a start by some seconds at most.

A lease is *stale*, and the next driver takes the job without `takes_over`, if

- its process ran on this machine and has ended (`storage/process_identity.py`): detected at once, also after `kill -9`;
- it is not renewed. A driver renews every `RENEW_S`; after `LASTS_S` without renewal it is considered dead. The age of
  a lease is the difference of two dates from the same store, and a younger lease is observed with this machine's
  monotonic clock: clocks of two machines are never compared. For a process known to be alive only the monotonic clock
  counts;
- it cannot be read, and is not rewritten.

A driver with `takes_over` takes the lease at once. The other driver detects this when it reads the lease, and stops
before its next epoch. `generation` counts takeovers: of two drivers that write at the same moment, the later one holds
the lease.
"""

from __future__ import annotations

import atexit
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from millstream.checkpoint.leases import store_time_ms, system_ms
from millstream.checkpoint.sealed import seal, unseal
from millstream.errors import FencedError, StoreAwayError, StoreDamagedError, StoreError
from millstream.storage.json_records import Misfit, from_json, to_json
from millstream.storage.process_identity import (
    ProcessIdentity,
    has_surely_ended,
    is_of_this_machine,
    is_this_process,
    this_process,
)
from millstream.storage.shared_names import driver_name
from millstream.storage.store import Store, shown_address

__all__ = [
    "LASTS_S",
    "RENEW_S",
    "DriverLease",
    "HeldLease",
    "Stopwatch",
    "acquire_lease",
    "read_driver_lease",
    "unwritten_lease",
]

_LOG = logging.getLogger(__name__)

FORMAT = 1
RENEW_S, LASTS_S = 5.0, 15.0
_POLL_S, _PROCESS_POLLS = 0.5, 4
_TRIES = 3
_WARN_AFTER_S, _END_S = 1.0, 3.0


@dataclass(frozen=True)
class DriverLease:
    """The driver of a job. `since_ms` is by that driver's clock, for display; `renewals` makes every renewal
    distinct."""

    id: str
    generation: int
    job: str
    host: str
    kernel: str
    pid: int
    started: str
    since_ms: int
    renewals: int = 0

    @property
    def process(self) -> ProcessIdentity:
        """The process in which the driver runs."""
        return ProcessIdentity(self.host, self.kernel, self.pid, self.started)

    def __str__(self) -> str:
        here = ", which is this one" if is_this_process(self.process) else ""
        return f"process {self.pid} on {self.host}{here}, since {_moment_text(self.since_ms)}"


def _moment_text(at_ms: int) -> str:
    try:
        return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%Y-%m-%d %H:%M:%S} UTC"
    except (OverflowError, ValueError, OSError):
        return "an unknown time"


def read_driver_lease(store: Store) -> DriverLease | StoreError | None:
    """The lease of a store, or the error of an unreadable one; None without a lease."""
    data = _bytes_of(store)
    return data if data is None or isinstance(data, StoreError) else _decoded(data, store)


def _bytes_of(store: Store) -> bytes | StoreError | None:
    try:
        return store.get(driver_name()) if store.exists(driver_name()) else None
    except StoreAwayError:
        raise
    except StoreDamagedError:
        return None  # removed since
    except StoreError as error:
        return error


def _decoded(data: bytes, store: Store) -> DriverLease | StoreError:
    where = f"{driver_name()} of store {store.url}"
    try:
        return from_json(DriverLease, None, unseal(data, "driver", FORMAT, where))
    except StoreDamagedError as error:
        return error
    except Misfit as error:
        return StoreDamagedError(f"{where} is not a complete lease of a driver: {'.'.join(error.path)}: {error}")


@dataclass(frozen=True)
class Stopwatch:
    """The time source for watching a lease."""

    now_s: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep


# --- acquiring it ---------------------------------------------------------------------------------------------


def acquire_lease(
    store: Store,
    job: str,
    *,
    takes_over: bool = False,
    renewed_in: Store | None = None,
    stopwatch: Stopwatch | None = None,
) -> HeldLease:
    """Acquires the lease of `store` for a driver of `job` in this process; FencedError if another driver holds it.

    `takes_over`: takes it from any holder. `renewed_in`: the same store, for renewals that do not wait while it is
    unavailable. If the store rejects the file, the job runs without a lease.
    """
    lease = _lease_of(job)
    try:
        lease, superseded = _acquire(store, lease, takes_over, stopwatch or Stopwatch())
    except (StoreAwayError, FencedError):
        raise
    except StoreError as error:
        _LOG.warning("the job runs without a lease, so a second driver of it would not be rejected: %s", error)
        return unwritten_lease(store, job)
    return HeldLease(renewed_in or store, lease, superseded=superseded)


def unwritten_lease(store: Store, job: str) -> HeldLease:
    """A lease for a driver that relies on manifests alone: it rejects no other driver."""
    return HeldLease(store, _lease_of(job), is_written=False)


def _lease_of(job: str) -> DriverLease:
    here = this_process()
    return DriverLease(secrets.token_hex(8), 1, job, here.host, here.kernel, here.pid, here.started, system_ms())


def _acquire(
    store: Store, lease: DriverLease, takes_over: bool, stopwatch: Stopwatch
) -> tuple[DriverLease, DriverLease | StoreError | None]:
    """The lease as written, and the superseded holder if its driver may still run."""
    for _ in range(_TRIES):
        data = _bytes_of(store)
        if data is None:
            if store.create(driver_name(), _sealed(lease)):
                return lease, None
            continue
        holder = data if isinstance(data, StoreError) else _decoded(data, store)
        superseded: DriverLease | StoreError | None = None
        if not (isinstance(holder, DriverLease) and _has_surely_ended(holder)):
            if takes_over:
                superseded = holder
            elif _is_renewed(store, holder, stopwatch):
                raise FencedError(_running_text(store, holder))
        if isinstance(holder, DriverLease):
            lease = replace(lease, generation=holder.generation + 1)
        _log_acquisition(store, holder, superseded)
        store.put(driver_name(), _sealed(lease))
        return lease, superseded
    # An entry that cannot be read as a file nor created (a dangling link, for example) is replaced.
    store.put(driver_name(), _sealed(lease))
    return lease, None


def _has_surely_ended(lease: DriverLease) -> bool:
    # A job that ended in a live process may have left its lease behind if the store was unavailable.
    return has_surely_ended(lease.process) or (is_this_process(lease.process) and lease.id not in _HELD)


def _is_renewed(store: Store, holder: DriverLease | StoreError, stopwatch: Stopwatch) -> bool:
    """Whether a driver holds the lease: it is renewed while watched, or its process is known to be alive."""
    # The caller has checked that the process has not ended.
    is_here = isinstance(holder, DriverLease) and is_of_this_machine(holder.process)
    age_s = _age_s(store)
    if age_s is None:
        return False
    if is_here and age_s < LASTS_S:
        return not _ends_soon(holder, stopwatch)
    left_s = LASTS_S if is_here else LASTS_S - age_s
    before, began_s, has_warned = _version_of(store), stopwatch.now_s(), False
    while (passed_s := stopwatch.now_s() - began_s) < left_s:
        if not has_warned and passed_s >= _WARN_AFTER_S:
            has_warned = True
            _LOG.warning(
                "store %s: the job was run by %s. Waiting up to %d s to check whether that driver is alive",
                store.url,
                holder if isinstance(holder, DriverLease) else "another driver",
                round(left_s),
            )
        stopwatch.pause(_POLL_S)
        version = _version_of(store)
        if version is None:
            return False  # its driver has ended
        if version != before:
            return True
    return False


def _ends_soon(holder: DriverLease | StoreError, stopwatch: Stopwatch) -> bool:
    """Whether the process ends shortly: a killed process takes some time to disappear."""
    assert isinstance(holder, DriverLease)
    if is_this_process(holder.process):
        return False
    for _ in range(_PROCESS_POLLS):
        stopwatch.pause(_POLL_S / 2)
        if _has_surely_ended(holder):
            return True
    return False


def _age_s(store: Store) -> float | None:
    """The age of the lease by the store's own clock; None if it was removed."""
    try:
        written_ms = store.modified_ms(driver_name())
        return max(0, store_time_ms(store, 0) - written_ms) / 1000
    except StoreDamagedError:
        return None


def _version_of(store: Store) -> tuple[object, int] | None:
    """A value that changes whenever the lease is written."""
    try:
        data = _bytes_of(store)
        return None if data is None else (None if isinstance(data, StoreError) else data, _written_ms(store))
    except StoreDamagedError:
        return None


def _written_ms(store: Store) -> int:
    return store.modified_ms(driver_name())


def _running_text(store: Store, holder: DriverLease | StoreError) -> str:
    address = shown_address(store.url)
    if isinstance(holder, StoreError):
        return (
            f"store {address}: a driver of another Millstream version runs the job: {holder.message} Stop it, or take "
            "the job over with --take-over (millstream.take-over: true)"
        )
    return (
        f"job '{holder.job}' is already running in store {address}: {holder}. Stop that driver (millstream stop "
        f"{address}), use another --store, or take the job over with --take-over (millstream.take-over: true)"
    )


def _log_acquisition(store: Store, holder: DriverLease | StoreError, superseded: object) -> None:
    holder_text = holder if isinstance(holder, DriverLease) else f"another driver ({holder.message})"
    if superseded is not None:
        _LOG.warning("store %s: the job is taken over from %s, which stops at its next check", store.url, holder_text)
    else:
        _LOG.info("store %s: the previous driver has ended: %s", store.url, holder_text)


def _sealed(lease: DriverLease) -> bytes:
    return seal("driver", FORMAT, to_json(lease))


# --- holding it -----------------------------------------------------------------------------------------------

_HELD: set[str] = set()
"""The ids of leases held by jobs of this process."""


class HeldLease:
    """The lease of a job in this process, renewed by a thread until it is closed or lost.

    `superseded`: the previous holder, if it may still run. `is_written` False: the store rejects leases.
    """

    def __init__(
        self,
        store: Store,
        lease: DriverLease,
        *,
        superseded: DriverLease | StoreError | None = None,
        is_written: bool = True,
    ) -> None:
        self._store, self._lease, self.superseded = store, lease, superseded
        self.lost_to: DriverLease | None = None
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        if is_written:
            self._thread = threading.Thread(target=self._run, name="millstream-lease", daemon=True)
            self._thread.start()
            _HELD.add(lease.id)
            atexit.register(self.close)

    def check(self) -> None:
        """FencedError if another driver has taken the job over."""
        if self.lost_to is not None:
            raise FencedError(
                f"job '{self._lease.job}' was taken over by {self.lost_to}. This driver has stopped; its committed "
                "epochs remain"
            )

    def renew(self) -> None:
        """Renews the lease, unless another driver holds it now."""
        holder = read_driver_lease(self._store)
        if isinstance(holder, DriverLease) and holder.id != self._lease.id and _rank(holder) > _rank(self._lease):
            self.lost_to = holder
            _LOG.warning("the job was taken over by %s; this driver stops before its next epoch", holder)
            return
        self._lease = replace(self._lease, renewals=self._lease.renewals + 1)
        self._store.put(driver_name(), _sealed(self._lease))

    def _run(self) -> None:
        while self.lost_to is None and not self._closed.wait(RENEW_S):
            try:
                self.renew()
            except Exception as error:  # the driver itself reports an unavailable store
                _LOG.debug("the lease was not renewed: %s", error)
        if self.lost_to is None:
            with suppress(Exception):  # an unreleased lease becomes stale
                self._release()

    def _release(self) -> None:
        holder = read_driver_lease(self._store)
        if isinstance(holder, DriverLease) and holder.id == self._lease.id:
            self._store.delete(driver_name())

    def close(self) -> None:
        """Releases the lease; idempotent. Waits only briefly for a slow or unavailable store, because the lease becomes
        stale anyway."""
        if self._closed.is_set() or os.getpid() != self._lease.pid:  # a forked child holds no lease
            return
        self._closed.set()
        if self._thread is None:
            return
        atexit.unregister(self.close)
        self._thread.join(_END_S)  # the renewing thread may be writing now, and removes the file afterwards
        _HELD.discard(self._lease.id)


def _rank(lease: DriverLease) -> tuple[int, str]:
    return lease.generation, lease.id
