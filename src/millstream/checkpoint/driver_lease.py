"""`driver.json`: who runs the job. A driver writes it before it touches the store, and renews it until the job ends.

The lease is for people. It refuses a second driver before that has done anything, and names the one that runs. What is
right does not depend on it: two drivers that both believe to own the job meet at the next manifest, which one of them
creates. So a lease may be lost, late, damaged or written by anybody, and costs a start some seconds at most.

A lease is *stale*, and the next driver takes the job without being told to, when

- its process ran on this machine and has ended (`storage/process_identity.py`): known at once, also after `kill -9`;
- it is not renewed. A driver renews every `RENEW_S`; one that has not done so for `LASTS_S` is taken for dead. The age
  of a lease is the difference of two dates that the same store gave, and what is younger is watched by this machine's
  stopwatch: no two clocks are ever compared. Of a process that is seen to live, only the stopwatch counts;
- it cannot be read, and nobody writes it again.

A driver that is told to take over (`takes_over`) asks nobody. The other one reads in the lease that it has lost the
job, and stops before its next epoch. `generation` counts those who took over: of two drivers that write at the same
moment, the later one keeps the lease.
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

__all__ = ["LASTS_S", "RENEW_S", "DriverLease", "HeldLease", "Stopwatch", "no_lease", "read_driver_lease", "take_lease"]

_LOG = logging.getLogger(__name__)

FORMAT = 1
RENEW_S, LASTS_S = 5.0, 15.0
_LOOK_S, _LOOKS_AT_PROCESS = 0.5, 4
_TRIES = 3
_TOLD_AFTER_S, _END_S = 1.0, 3.0


@dataclass(frozen=True)
class DriverLease:
    """Who runs the job. `since_ms` is by that driver's clock, for people; `renewals` makes every writing another."""

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
    """The lease of a store, or why it cannot be read; None: there is none."""
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
        return StoreDamagedError(f"{where} is no whole lease of a driver: {'.'.join(error.path)}: {error}")


@dataclass(frozen=True)
class Stopwatch:
    """How time passes while a lease is watched."""

    now_s: Callable[[], float] = time.monotonic
    pause: Callable[[float], None] = time.sleep


# --- taking it ------------------------------------------------------------------------------------------------


def take_lease(
    store: Store,
    job: str,
    *,
    takes_over: bool = False,
    renewed_in: Store | None = None,
    stopwatch: Stopwatch | None = None,
) -> HeldLease:
    """Take the lease of `store` for a driver of `job` in this process; FencedError if another driver holds it.

    `takes_over`: take it from whoever holds it. `renewed_in`: the same store, for renewals that need not wait while it
    is away. A store that does not let the file be written has no lease: the job runs without one.
    """
    lease = _lease_of(job)
    try:
        lease, superseded = _taken(store, lease, takes_over, stopwatch or Stopwatch())
    except (StoreAwayError, FencedError):
        raise
    except StoreError as error:
        _LOG.warning("the job runs without a lease, so a second driver of it would not be refused: %s", error)
        return no_lease(store, job)
    return HeldLease(renewed_in or store, lease, superseded=superseded)


def no_lease(store: Store, job: str) -> HeldLease:
    """For a driver that relies on manifests alone: no other one is refused."""
    return HeldLease(store, _lease_of(job), is_written=False)


def _lease_of(job: str) -> DriverLease:
    here = this_process()
    return DriverLease(secrets.token_hex(8), 1, job, here.host, here.kernel, here.pid, here.started, system_ms())


def _taken(
    store: Store, lease: DriverLease, takes_over: bool, stopwatch: Stopwatch
) -> tuple[DriverLease, DriverLease | StoreError | None]:
    """The lease as it was written, and from whom it was taken though that driver may run."""
    for _ in range(_TRIES):
        found = _bytes_of(store)
        if found is None:
            if store.create(driver_name(), _sealed(lease)):
                return lease, None
            continue
        holder = found if isinstance(found, StoreError) else _decoded(found, store)
        superseded: DriverLease | StoreError | None = None
        if not (isinstance(holder, DriverLease) and _has_surely_ended(holder)):
            if takes_over:
                superseded = holder
            elif _is_renewed(store, holder, stopwatch):
                raise FencedError(_running_text(store, holder))
        if isinstance(holder, DriverLease):
            lease = replace(lease, generation=holder.generation + 1)
        _tell_of_taking(store, holder, superseded)
        store.put(driver_name(), _sealed(lease))
        return lease, superseded
    # What is neither there nor lets itself be created is no file: a link to nowhere, say, and is replaced.
    store.put(driver_name(), _sealed(lease))
    return lease, None


def _has_surely_ended(lease: DriverLease) -> bool:
    # A job that ended in a process that goes on may have left its lease behind: its store was away.
    return has_surely_ended(lease.process) or (is_this_process(lease.process) and lease.id not in _HELD)


def _is_renewed(store: Store, holder: DriverLease | StoreError, stopwatch: Stopwatch) -> bool:
    """Whether somebody holds the lease: it is renewed while we watch, or its process is seen to live."""
    # That its process has not ended was seen before.
    is_here = isinstance(holder, DriverLease) and is_of_this_machine(holder.process)
    age_s = _age_s(store)
    if age_s is None:
        return False
    if is_here and age_s < LASTS_S:
        return not _ends_soon(holder, stopwatch)
    left_s = LASTS_S if is_here else LASTS_S - age_s
    before, began_s, is_told = _mark_of(store), stopwatch.now_s(), False
    while (passed_s := stopwatch.now_s() - began_s) < left_s:
        if not is_told and passed_s >= _TOLD_AFTER_S:
            is_told = True
            _LOG.warning(
                "store %s: the job was run by %s. Waiting up to %d s to see whether that driver still lives",
                store.url,
                holder if isinstance(holder, DriverLease) else "another driver",
                round(left_s),
            )
        stopwatch.pause(_LOOK_S)
        mark = _mark_of(store)
        if mark is None:
            return False  # its driver has ended
        if mark != before:
            return True
    return False


def _ends_soon(holder: DriverLease | StoreError, stopwatch: Stopwatch) -> bool:
    """Whether the process is just ending: one that is killed takes a moment to die."""
    assert isinstance(holder, DriverLease)
    if is_this_process(holder.process):
        return False
    for _ in range(_LOOKS_AT_PROCESS):
        stopwatch.pause(_LOOK_S / 2)
        if _has_surely_ended(holder):
            return True
    return False


def _age_s(store: Store) -> float | None:
    """How long ago the lease was written, by the store's own clock; None: it is gone."""
    try:
        written_ms = store.modified_ms(driver_name())
        return max(0, store_time_ms(store, 0) - written_ms) / 1000
    except StoreDamagedError:
        return None


def _mark_of(store: Store) -> tuple[object, int] | None:
    """What changes whenever the lease is written."""
    try:
        found = _bytes_of(store)
        return None if found is None else (None if isinstance(found, StoreError) else found, _written_ms(store))
    except StoreDamagedError:
        return None


def _written_ms(store: Store) -> int:
    return store.modified_ms(driver_name())


def _running_text(store: Store, holder: DriverLease | StoreError) -> str:
    address = shown_address(store.url)
    if isinstance(holder, StoreError):
        return (
            f"store {address}: another driver runs the job, of another Millstream: {holder.message} Stop it, or take "
            "the job from it with --take-over (millstream.take-over: true)"
        )
    return (
        f"job '{holder.job}' is already running in store {address}: {holder}. Stop that driver (millstream stop "
        f"{address}), give this one another --store, or take the job over with --take-over (millstream.take-over: true)"
    )


def _tell_of_taking(store: Store, holder: DriverLease | StoreError, superseded: object) -> None:
    who = holder if isinstance(holder, DriverLease) else f"another driver ({holder.message})"
    if superseded is not None:
        _LOG.warning("store %s: the job is taken over from %s, which stops when it notices", store.url, who)
    else:
        _LOG.info("store %s: the job was left by %s, which runs no more", store.url, who)


def _sealed(lease: DriverLease) -> bytes:
    return seal("driver", FORMAT, to_json(lease))


# --- holding it -----------------------------------------------------------------------------------------------

_HELD: set[str] = set()
"""The leases that jobs of this process hold."""


class HeldLease:
    """The lease of a job in this process, renewed by a thread until it is closed or lost.

    `superseded`: the driver it was taken from, who may not have noticed yet. `is_written` False: the store takes none.
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
                f"job '{self._lease.job}' was taken over by {self.lost_to}. This driver has stopped; what it committed "
                "stays"
            )

    def renew(self) -> None:
        """Write the lease again, unless another driver has it now."""
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
            except Exception as error:  # a store that is away is the driver's to report
                _LOG.debug("the lease was not renewed: %s", error)
        if self.lost_to is None:
            with suppress(Exception):  # what is left ends by itself
                self._release()

    def _release(self) -> None:
        holder = read_driver_lease(self._store)
        if isinstance(holder, DriverLease) and holder.id == self._lease.id:
            self._store.delete(driver_name())

    def close(self) -> None:
        """Give the lease back; closing again changes nothing. Where the store is slow or away, nobody waits for it for
        long: the lease ends by itself."""
        if self._closed.is_set() or os.getpid() != self._lease.pid:  # a child that was forked holds no lease
            return
        self._closed.set()
        if self._thread is None:
            return
        atexit.unregister(self.close)
        self._thread.join(_END_S)  # it may be writing just now, and removes the file after that
        _HELD.discard(self._lease.id)


def _rank(lease: DriverLease) -> tuple[int, str]:
    return lease.generation, lease.id
