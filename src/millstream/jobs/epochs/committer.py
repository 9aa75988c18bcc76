"""Commits acknowledged epochs, one after the other, on a thread of its own while the next epoch runs.

A commit has three steps: wait until every file that the manifest names is in the store, create the manifest, check
whether another driver won the race. The machines that wrote the files upload them (`storage/tier`); the committer polls
the store concurrently for those that the previous manifest does not name.

While the store does not answer, the committer repeats its request without limit: creating the same manifest again
changes nothing, and its own bytes are recognised. Each commit reports its result as one event of the protocol.

A store may also accept a request and never answer. It counts as unreachable when no answer at all has arrived for two
seconds, and for four times its slowest recent answer: a store on a busy machine is slow, not unreachable. Silence
counts from the first check that detects it: before that, this process itself may have been suspended.

A file may never arrive because the machine that should upload it is lost. If the store answers, and no file has
arrived for a minute plus the time the bytes would need on a slow line, the commit fails. The epochs that ran ahead are
then run again.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from millstream.checkpoint import events as e
from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.checkpoint.retention import named_files
from millstream.errors import StoreAwayError
from millstream.jobs.clock import Clock
from millstream.jobs.epochs.failures import is_retryable, reason_of
from millstream.storage.names import manifest_name
from millstream.storage.patience import PatientStore
from millstream.storage.store import Store

__all__ = ["CommitEvent", "Committer", "StoreSilence", "UploadPatience"]

CommitEvent = e.Committed | e.CommitLost | e.CommitFailed | e.StoreUnavailable | e.StoreAvailable

_LOG = logging.getLogger(__name__)
_Answer = TypeVar("_Answer")
_REQUESTS_MAX = 16
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5
_SILENT_S, _SILENT_S_MAX = 2.0, 10.0
_SLOWEST_TIMES = 4
_ANSWERS_REMEMBERED = 64
_UNSENT_S, _UNSENT_AGAIN_S = 3.0, 10.0


class UploadPatience:
    """How long to wait for uploads while the store answers but no file arrives."""

    def __init__(self, least_s: float = 60.0, bytes_per_s: float = 1 << 20) -> None:
        self._least_s, self._bytes_per_s = least_s, bytes_per_s

    def seconds(self, bytes: int) -> float:
        """
        >>> UploadPatience(60.0, bytes_per_s=1_000_000).seconds(30_000_000)
        90.0
        """
        return self._least_s + bytes / self._bytes_per_s


class StoreSilence:
    """Detects a store that accepts requests and does not answer them. Thread-safe.

    >>> now_s = [0.0]
    >>> silence = StoreSilence(lambda: now_s[0])
    >>> with silence.request():
    ...     for now_s[0] in (60.0, 61.0, 62.1):
    ...         print(silence.is_outage())
    False
    False
    True
    >>> silence.is_outage()
    False
    """

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s, self._lock = monotonic_s, threading.Lock()
        self._pending = 0
        self._answers_s: deque[float] = deque(maxlen=_ANSWERS_REMEMBERED)
        self._silent_since_s: float | None = None

    @contextmanager
    def request(self) -> Iterator[None]:
        """Context manager around a request. Its exit counts as an answer, unless it raises `StoreAwayError`."""
        began_s = self._monotonic_s()
        with self._lock:
            self._pending += 1
        is_answer = True
        try:
            yield
        except StoreAwayError:
            is_answer = False
            raise
        finally:
            with self._lock:
                self._pending -= 1
                if is_answer:
                    self._answers_s.append(self._monotonic_s() - began_s)
                if is_answer or not self._pending:
                    self._silent_since_s = None

    @property
    def has_pending(self) -> bool:
        """Whether a request is waiting for its answer."""
        return self._pending > 0

    def is_outage(self) -> bool:
        """Whether the silence that an earlier check detected, if any, has lasted too long."""
        now_s = self._monotonic_s()
        with self._lock:
            if not self._pending:
                return False
            if self._silent_since_s is None:
                self._silent_since_s = now_s
            slowest_s = max(self._answers_s, default=0.0)
            bound_s = min(max(_SILENT_S, _SLOWEST_TIMES * slowest_s), _SILENT_S_MAX)
            return now_s - self._silent_since_s > bound_s


class _Abandoned(Exception):
    """The job fails, and the commit was abandoned."""


class _LostError(Exception):
    """Files were not uploaded in time."""


class Committer:
    """The commit thread of one driver. `report` takes the event and the error, if there is one. `send_unsent` is called
    when uploads are overdue: the process that should upload a file may have ended."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        report: Callable[[CommitEvent, BaseException | None], None],
        patience: UploadPatience | None = None,
        send_unsent: Callable[[], None] = lambda: None,
    ) -> None:
        # The driver must notice at once that a store is unreachable, so patience is applied here, not in the store.
        self._store = store.below if isinstance(store, PatientStore) else store
        self._clock, self._report, self._patience = clock, report, patience or UploadPatience()
        self._send_unsent = send_unsent
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="millstream-commit")
        self._request_threads = ThreadPoolExecutor(_REQUESTS_MAX, thread_name_prefix="millstream-commit-request")
        self._abandoned = threading.Event()
        self._silence = StoreSilence()
        self._unreachable_lock = threading.Lock()
        self._is_unreachable = self._probes = False

    def commit(self, manifest: Manifest, parent: Manifest | None, bytes: int) -> None:
        """Commit `manifest`, which follows `parent`; about `bytes` bytes of it are still being uploaded."""
        self._abandoned.clear()
        self._thread.submit(self._commit, manifest, parent, bytes)

    def abandon(self) -> None:
        """Stop the commit in progress, if there is one, as soon as possible."""
        self._abandoned.set()

    def close(self) -> None:
        """Commit nothing more; requests in progress are completed first."""
        self._abandoned.set()
        self._thread.shutdown(wait=True)
        self._request_threads.shutdown(wait=True)

    def check_store(self, newest: Manifest | None) -> bool:
        """Whether the store is unreachable: it reports so, or has been silent for too long. Without a pending request,
        sends a probe for the next check."""
        if not self._silence.has_pending and newest is not None and not self._probes:
            self._probes = True
            self._thread.submit(self._probe, newest)
        with self._unreachable_lock:
            self._is_unreachable = (
                self._is_unreachable or self._silence.is_outage()
            )  # so that the first answer is reported
            return self._is_unreachable

    # --- on the commit thread -----------------------------------------------------------------------------------

    def _commit(self, manifest: Manifest, parent: Manifest | None, bytes: int) -> None:
        try:
            known = frozenset() if parent is None else named_files(parent)
            self._await_files(sorted(named_files(manifest) - known), self._patience.seconds(bytes))
            is_created = self._until_answered(partial(self._create, manifest))
        except _Abandoned:
            self._failed(f"the commit of epoch {manifest.epoch} was abandoned", None)
        except _LostError as error:
            self._failed(str(error), error, excuse="lost")
        except BaseException as error:  # SystemExit, too: it would end this thread only, and the job would wait forever
            self._failed(reason_of(error), error)
        else:
            self._report(e.Committed() if is_created else e.CommitLost(), None)

    def _failed(self, reason: str, error: BaseException | None, excuse: e.Excuse = None) -> None:
        retryable = error is None or excuse is not None or is_retryable(error)
        failed = e.CommitFailed(reason, self._clock.now_ms(), random.random(), retryable, excuse)
        self._report(failed, error)

    def _await_files(self, names: Sequence[str], patience_s: float) -> None:
        missing, pause_s, since_s = list(names), _FIRST_PAUSE_S, time.monotonic()
        unsent_s = since_s + _UNSENT_S
        while missing:
            missing_before = len(missing)
            missing = self._until_answered(partial(self._missing, missing))
            if len(missing) < missing_before:
                since_s = time.monotonic()
                unsent_s = since_s + _UNSENT_S
            elif time.monotonic() - since_s > patience_s:
                raise _LostError(
                    f"{missing[0]} and {len(missing) - 1} more files of acknowledged epochs were not uploaded "
                    f"within {patience_s:.0f} s, although the store responds: a machine may be lost, or cut off "
                    "from the store."
                    " The epochs that ran ahead are run again"
                )
            if missing:
                if time.monotonic() > unsent_s:
                    self._send_unsent()
                    unsent_s = time.monotonic() + _UNSENT_AGAIN_S
                self._wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _missing(self, names: Collection[str]) -> list[str]:
        return [
            name for name, there in zip(names, self._request_threads.map(self._exists, names), strict=True) if not there
        ]

    def _exists(self, name: str) -> bool:
        with self._silence.request():
            return self._store.exists(name)

    def _create(self, manifest: Manifest) -> bool:
        with self._silence.request():
            return ManifestLog(self._store).commit(manifest)

    def _until_answered(self, request: Callable[[], _Answer]) -> _Answer:
        """Repeats a request until the store answers."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                answer = request()
            except StoreAwayError as error:
                self._report_unreachable(error)
                self._wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            self._report_reachable()
            return answer

    def _probe(self, newest: Manifest) -> None:
        try:
            self._exists(manifest_name(newest.epoch))
            self._report_reachable()
        except StoreAwayError as error:
            self._report_unreachable(error)
        except Exception as error:  # the next commit reports the cause
            _LOG.warning("the store answers a probe with: %s", error)
            self._report_reachable()
        finally:
            self._probes = False

    def _report_unreachable(self, error: StoreAwayError) -> None:
        with self._unreachable_lock:
            if not self._is_unreachable:
                self._is_unreachable = True
                self._report(e.StoreUnavailable(), error)

    def _report_reachable(self) -> None:
        with self._unreachable_lock:
            if self._is_unreachable:
                self._is_unreachable = False
                self._report(e.StoreAvailable(), None)

    def _wait(self, pause_s: float) -> None:
        if self._abandoned.wait(pause_s):
            raise _Abandoned
