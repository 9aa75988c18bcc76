"""Uploads: threads of this process that bring new files from the local tier to their store, side by side.

A file is queued when it lies in the tier, and leaves the queue when the store has it. One that fails stays, and is
tried again after a pause that grows, for as long as the process lives: the store may be away. `flush` is for who must
know: it waits until all are there, or raises the first error that it sees; then the files are tried further. Who does
not wait calls `check`: what the store refuses for good must not go unseen.

A thread that had nothing to send for a while ends: a worker of Spark's may serve many jobs, one after the other, each
with a store of its own.

What a process that died has left (*adopted*) is sent too, and nobody waits for it nor fails with it: whoever commits an
epoch asks the store itself for the epoch's files, and what no epoch names is needed by nobody. After a power cut such
files may be cut short or empty.

What was just written is sent from memory, as far as little enough waits there. All else (what waited long, failed
once, or was left by another process) is read from the tier and checked just before it is sent. What is damaged is never
sent: a file that stands in a store is believed.
"""

from __future__ import annotations

import logging
import threading
import time
from dataclasses import dataclass

from millstream.errors import StoreAwayError, StoreError, UnsentFileError
from millstream.storage.request_counts import REQUESTS
from millstream.storage.store import Store, is_transient
from millstream.storage.tier.local_tier import LocalTier, UnsentFile
from millstream.storage.tier.sealed_files import DamagedCopyError, read_content

__all__ = ["Uploads"]

_LOG = logging.getLogger(__name__)
_THREADS = 8
_BYTES_AT_ONCE = 256 << 20
_HELD_BYTES_MAX = 32 << 20
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 2.0  # when the store is back, files are to be there soon
_LOOK_S = 1.0
_IDLE_S = 10.0


@dataclass
class _Upload:
    file: UnsentFile
    number: int
    held: bytes | None = None
    is_adopted: bool = False
    due_s: float = 0.0
    pause_s: float = _FIRST_PAUSE_S
    is_running: bool = False
    error: StoreError | None = None


class Uploads:
    """What this process has to send from `tier`, where it lies under `address`, to `store`."""

    def __init__(self, store: Store, tier: LocalTier, address: str) -> None:
        self._store, self._tier, self._address = store, tier, address
        self._changed = threading.Condition()
        self._pending: dict[str, _Upload] = {}
        self._threads: list[threading.Thread] = []
        self._lost: StoreError | None = None
        self.queued_count = self._requests = 0
        self._look_s = 0.0

    def queue(self, file: UnsentFile, content: bytes | None = None, *, is_adopted: bool = False) -> None:
        """Send a file as soon as a thread is free; `content`: what it holds, if that is at hand."""
        with self._changed:
            self.queued_count += 1
            if file.name not in self._pending:
                held_bytes = sum(len(upload.held or b"") for upload in self._pending.values())
                held = content if held_bytes + file.length <= _HELD_BYTES_MAX else None
                self._pending[file.name] = _Upload(file, self.queued_count, held, is_adopted)
            idle = len(self._threads) - sum(upload.is_running for upload in self._pending.values())
            if len(self._threads) < _THREADS and idle < len(self._pending):
                thread = threading.Thread(target=self._work, name="millstream-upload", daemon=True)
                self._threads.append(thread)
                thread.start()
            self._changed.notify_all()

    def flush(self) -> None:
        """Wait until the store has everything that was queued; raises the first failure there is from now on. What was
        adopted is waited for until it is tried."""
        with self._changed:
            for upload in self._pending.values():
                if not upload.is_adopted:
                    upload.error, upload.due_s = None, 0.0
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._failure() is not None or self._is_done())
            self._raise(self._failure())

    def check(self) -> None:
        """Raises what the store refuses for good, and what is lost; a store that is away is waited for."""
        with self._changed:
            error = self._failure()
            if error is self._lost or not isinstance(error, StoreAwayError):
                self._raise(error)

    def _is_done(self) -> bool:
        return all(upload.is_adopted and upload.error is not None for upload in self._pending.values())

    def _failure(self) -> StoreError | None:
        """What went wrong with the files of this process, the worst of it."""
        own = [upload.error for upload in self._pending.values() if not upload.is_adopted]
        errors = [error for error in own if error is not None]
        refusals = [error for error in errors if not isinstance(error, StoreAwayError)]
        return self._lost or next(iter(refusals + errors), None)

    def _raise(self, error: StoreError | None) -> None:
        if error is not None:
            self._lost = None  # told once
            raise type(error)(
                f"{error.message} {len(self._pending)} new files of this machine are not in the store. They stay in "
                f"the local tier {self._tier.folder} and are sent when it takes them."
            ) from error

    def withdraw(self, name: str) -> None:
        """Do not send this file; one that is being sent is waited for."""
        with self._changed:
            self._changed.wait_for(lambda: name not in self._pending or not self._pending[name].is_running)
            self._pending.pop(name, None)

    @property
    def pending(self) -> list[str]:
        """The names of the files that the store may not have yet."""
        with self._changed:
            return sorted(self._pending)

    def pending_bytes(self, queued_count: int) -> int:
        """The bytes of those that were queued after the first `queued_count`."""
        with self._changed:
            return sum(u.file.length for u in self._pending.values() if u.number > queued_count)

    def is_due(self) -> bool:
        """Whether it is time to look for what others have left: a second after the last time."""
        with self._changed:
            is_due = time.monotonic() >= self._look_s
            if is_due:
                self._look_s = time.monotonic() + _LOOK_S
        return is_due

    def told_requests(self) -> int:
        """The requests of these threads that nobody has been told of."""
        with self._changed:
            requests, self._requests = self._requests, 0
        return requests

    def _work(self) -> None:
        while (upload := self._next()) is not None:
            before = REQUESTS.of_thread()
            error: StoreError | None = None
            is_lost = False
            try:
                content = read_content(upload.file.path) if upload.held is None else upload.held
                self._store.put(upload.file.name, content)
                del content
                self._tier.sent(self._address, upload.file)
            except StoreError as failure:
                error = failure
            except (OSError, DamagedCopyError) as failure:
                is_lost = not is_transient(failure)
                error = self._unreadable(upload, failure, is_lost)
            except Exception as failure:  # a thread that dies would leave the task waiting for ever
                error = StoreError(f"Store {self._store.url}: {upload.file.name!r} cannot be sent: {failure!r}.")
            self._end(upload, error, is_lost, REQUESTS.of_thread() - before)

    def _unreadable(self, upload: _Upload, failure: Exception, is_lost: bool) -> StoreError:
        """Why a file cannot be sent that is not as it was written, or that the system does not give just now. No
        manifest names it, so nothing that is committed is lost: the epoch is run again."""
        file = upload.file
        if not is_lost:
            return StoreAwayError(f"Store {self._store.url}: {file.path} cannot be read just now: {failure}.")
        self._tier.lost(file, failure, is_adopted=upload.is_adopted)
        return UnsentFileError(
            f"Store {self._store.url}: {file.name!r} was written to {file.path} and cannot be read there any more: "
            f"{failure}. Its epoch is not committed, and is run again."
        )

    def _next(self) -> _Upload | None:
        """What this thread is to send; None: nothing for so long that it is to end."""
        idle_until_s = time.monotonic() + _IDLE_S
        with self._changed:
            while True:
                now_s = time.monotonic()
                if not self._pending and now_s >= idle_until_s:
                    self._threads.remove(threading.current_thread())
                    return None
                waiting = [upload for upload in self._pending.values() if not upload.is_running]
                due = next((upload for upload in waiting if upload.due_s <= now_s), None)
                if due is None:
                    self._changed.wait(min((upload.due_s - now_s for upload in waiting), default=_IDLE_S))
                elif self._has_room_for(due):
                    due.is_running = True
                    return due
                else:
                    self._changed.wait()

    def _has_room_for(self, upload: _Upload) -> bool:
        """Whether it can be in memory beside those that are being sent. One at a time always can."""
        running_bytes = sum(other.file.length for other in self._pending.values() if other.is_running)
        return not running_bytes or running_bytes + upload.file.length <= _BYTES_AT_ONCE

    def _end(self, upload: _Upload, error: StoreError | None, is_lost: bool, requests: int) -> None:
        with self._changed:
            self._requests += requests
            upload.is_running, upload.held = False, None  # what waits for the store does not wait in memory
            if is_lost and not upload.is_adopted:
                self._lost = error
            if error is None or is_lost:
                self._pending.pop(upload.file.name, None)
            else:
                if upload.error is None:
                    _LOG.warning("%s It is sent again until the store takes it", error.message)
                upload.error, upload.due_s = error, time.monotonic() + upload.pause_s
                upload.pause_s = min(2 * upload.pause_s, _LONGEST_PAUSE_S)
            self._changed.notify_all()
