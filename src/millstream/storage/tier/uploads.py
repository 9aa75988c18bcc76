"""Uploads: threads of this process that copy new files from the local tier to their store, concurrently.

A file is queued when it is in the tier, and dequeued when the store has it. A failed upload stays queued and is retried
after an increasing pause for as long as the process lives: the store may be unavailable. `flush` waits until all files
are uploaded, or raises the first error; the uploads are still retried. Callers that do not wait use `check`, which
raises permanent errors.

A thread ends after being idle for a while: a Spark worker may serve many jobs, one after the other, each with its own
store.

Files left by a dead process (*adopted*) are uploaded too, but callers neither wait for them nor fail with their errors:
the committer of an epoch checks the store itself for the epoch's files, and a file that no epoch names is not needed.
After a power failure these files may be truncated or empty.

New files are uploaded from memory, within a limit. All others (files that waited long, failed once, or were adopted)
are read from the tier and checked just before the upload. A damaged file is never uploaded: files in a store are
trusted.
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
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.25, 2.0  # bounds the delay after the store is available again
_ADOPTION_INTERVAL_S = 1.0
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
    """The uploads of this process from `tier`, where files are stored under `address`, to `store`."""

    def __init__(self, store: Store, tier: LocalTier, address: str) -> None:
        self._store, self._tier, self._address = store, tier, address
        self._changed = threading.Condition()
        self._pending: dict[str, _Upload] = {}
        self._threads: list[threading.Thread] = []
        self._lost: StoreError | None = None
        self.queued_count = self._requests = 0
        self._next_adoption_s = 0.0

    def queue(self, file: UnsentFile, content: bytes | None = None, *, is_adopted: bool = False) -> None:
        """Upload a file as soon as a thread is free; `content` is its content, if in memory."""
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
        """Wait until the store has all queued files; raises the first failure from now on. For adopted files it waits
        only for the first attempt."""
        with self._changed:
            for upload in self._pending.values():
                if not upload.is_adopted:
                    upload.error, upload.due_s = None, 0.0
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._failure() is not None or self._is_done())
            self._raise(self._failure())

    def check(self) -> None:
        """Raises permanent errors, including lost files; an unavailable store is not an error."""
        with self._changed:
            error = self._failure()
            if error is self._lost or not isinstance(error, StoreAwayError):
                self._raise(error)

    def _is_done(self) -> bool:
        return all(upload.is_adopted and upload.error is not None for upload in self._pending.values())

    def _failure(self) -> StoreError | None:
        """The most severe error of this process's uploads."""
        own = [upload.error for upload in self._pending.values() if not upload.is_adopted]
        errors = [error for error in own if error is not None]
        refusals = [error for error in errors if not isinstance(error, StoreAwayError)]
        return self._lost or next(iter(refusals + errors), None)

    def _raise(self, error: StoreError | None) -> None:
        if error is not None:
            self._lost = None  # raised once
            raise type(error)(
                f"{error.message} {len(self._pending)} new files of this machine are not in the store. They stay in "
                f"the local tier {self._tier.folder} and are sent when it takes them."
            ) from error

    def withdraw(self, name: str) -> None:
        """Cancel the upload of a file, or wait for an upload in progress."""
        with self._changed:
            self._changed.wait_for(lambda: name not in self._pending or not self._pending[name].is_running)
            self._pending.pop(name, None)

    @property
    def pending(self) -> list[str]:
        """The names of the files that may not be in the store yet."""
        with self._changed:
            return sorted(self._pending)

    def pending_bytes(self, queued_count: int) -> int:
        """The bytes of the pending files queued after the first `queued_count`."""
        with self._changed:
            return sum(u.file.length for u in self._pending.values() if u.number > queued_count)

    def is_due(self) -> bool:
        """Whether it is time to check for adoptable files: a second after the last check."""
        with self._changed:
            is_due = time.monotonic() >= self._next_adoption_s
            if is_due:
                self._next_adoption_s = time.monotonic() + _ADOPTION_INTERVAL_S
        return is_due

    def take_request_count(self) -> int:
        """The requests of these threads that are not reported yet."""
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
            except Exception as failure:  # if the thread died, the task would wait forever
                error = StoreError(f"Store {self._store.url}: {upload.file.name!r} cannot be sent: {failure!r}.")
            self._end(upload, error, is_lost, REQUESTS.of_thread() - before)

    def _unreadable(self, upload: _Upload, failure: Exception, is_lost: bool) -> StoreError:
        """The error for a file that changed after it was written, or that the system cannot read at the moment. No
        manifest names it, so no committed data is lost: the epoch is run again."""
        file = upload.file
        if not is_lost:
            return StoreAwayError(f"Store {self._store.url}: {file.path} cannot be read just now: {failure}.")
        self._tier.lost(file, failure, is_adopted=upload.is_adopted)
        return UnsentFileError(
            f"Store {self._store.url}: {file.name!r} was written to {file.path} and cannot be read there any more: "
            f"{failure}. Its epoch is not committed, and is run again."
        )

    def _next(self) -> _Upload | None:
        """The next upload of this thread; None if it was idle for so long that it ends."""
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
        """Whether its content fits in memory with the uploads in progress. A single one always fits."""
        running_bytes = sum(other.file.length for other in self._pending.values() if other.is_running)
        return not running_bytes or running_bytes + upload.file.length <= _BYTES_AT_ONCE

    def _end(self, upload: _Upload, error: StoreError | None, is_lost: bool, requests: int) -> None:
        with self._changed:
            self._requests += requests
            upload.is_running, upload.held = False, None  # a retried upload is not held in memory
            if is_lost and not upload.is_adopted:
                self._lost = error
            if error is None or is_lost:
                self._pending.pop(upload.file.name, None)
            else:
                if upload.error is None:
                    _LOG.warning("%s The upload is retried until the store accepts it", error.message)
                upload.error, upload.due_s = error, time.monotonic() + upload.pause_s
                upload.pause_s = min(2 * upload.pause_s, _LONGEST_PAUSE_S)
            self._changed.notify_all()
