"""Commits acknowledged epochs, one after the other, on a thread beside the running epoch.

A commit is three steps: wait until every file that the manifest names is in the store, create the manifest, look
whether another driver was quicker. Files are brought there by the machines that wrote them (`storage/tier`); here the
store is asked, for those that the manifest before does not name, side by side.

While the store does not answer, the same is asked again, for as long as that takes: to create the same manifest once
more changes nothing, and its own bytes are recognised. What came of it is reported as one event of the protocol.

A store may also take a request and say nothing. It is away when nothing at all has come from it for two seconds, and
for four times as long as its slowest answer lately took: a store on a busy machine is slow, which is no news. Silence
counts from the first look that finds it: before that this process itself may not have run.

A file may never come: the machine that was to bring it is gone. If the store answers, and nothing has come for a minute
and as long as the bytes would take on a slow line, the commit is given up. What ran ahead is then run again.
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
_ASKED_AT_ONCE = 16
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.02, 0.5
_SILENT_S, _SILENT_S_MAX = 2.0, 10.0
_SLOWEST_TIMES = 4
_ANSWERS_REMEMBERED = 64
_UNSENT_S, _UNSENT_AGAIN_S = 3.0, 10.0


class UploadPatience:
    """How long files may be on their way, while the store answers and none of them comes."""

    def __init__(self, least_s: float = 60.0, bytes_per_s: float = 1 << 20) -> None:
        self._least_s, self._bytes_per_s = least_s, bytes_per_s

    def seconds(self, bytes: int) -> float:
        """
        >>> UploadPatience(60.0, bytes_per_s=1_000_000).seconds(30_000_000)
        90.0
        """
        return self._least_s + bytes / self._bytes_per_s


class StoreSilence:
    """Whether a store that was asked says nothing for so long that it must be away. Any thread may ask and look.

    >>> now_s = [0.0]
    >>> silence = StoreSilence(lambda: now_s[0])
    >>> with silence.heard():
    ...     for now_s[0] in (60.0, 61.0, 62.1):
    ...         print(silence.is_absence())
    False
    False
    True
    >>> silence.is_absence()
    False
    """

    def __init__(self, monotonic_s: Callable[[], float] = time.monotonic) -> None:
        self._monotonic_s, self._lock = monotonic_s, threading.Lock()
        self._asking = 0
        self._answers_s: deque[float] = deque(maxlen=_ANSWERS_REMEMBERED)
        self._silent_since_s: float | None = None

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Around a request: its end is an answer, unless it says that none came."""
        began_s = self._monotonic_s()
        with self._lock:
            self._asking += 1
        is_answer = True
        try:
            yield
        except StoreAwayError:
            is_answer = False
            raise
        finally:
            with self._lock:
                self._asking -= 1
                if is_answer:
                    self._answers_s.append(self._monotonic_s() - began_s)
                if is_answer or not self._asking:
                    self._silent_since_s = None

    @property
    def is_asked(self) -> bool:
        """Whether somebody waits for an answer."""
        return self._asking > 0

    def is_absence(self) -> bool:
        """Whether the silence that was found by an earlier look, if any, has gone on for too long."""
        now_s = self._monotonic_s()
        with self._lock:
            if not self._asking:
                return False
            if self._silent_since_s is None:
                self._silent_since_s = now_s
            slowest_s = max(self._answers_s, default=0.0)
            bound_s = min(max(_SILENT_S, _SLOWEST_TIMES * slowest_s), _SILENT_S_MAX)
            return now_s - self._silent_since_s > bound_s


class _GivenUp(Exception):
    """The job fails: nobody waits for the commit any more."""


class _LostError(Exception):
    """Files do not come."""


class Committer:
    """The committing thread of one driver. `report` takes what happened, and what went wrong, if something did.
    `send_unsent` is called when files do not come: the process that was to send one may have ended."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        report: Callable[[CommitEvent, BaseException | None], None],
        patience: UploadPatience | None = None,
        send_unsent: Callable[[], None] = lambda: None,
    ) -> None:
        # Patience is here: a store that is away is to be noticed at once, and may stay away for long.
        self._store = store.below if isinstance(store, PatientStore) else store
        self._clock, self._report, self._patience = clock, report, patience or UploadPatience()
        self._send_unsent = send_unsent
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="millstream-commit")
        self._askers = ThreadPoolExecutor(_ASKED_AT_ONCE, thread_name_prefix="millstream-commit-ask")
        self._given_up = threading.Event()
        self._silence = StoreSilence()
        self._away_lock = threading.Lock()
        self._is_away = self._probes = False

    def commit(self, manifest: Manifest, parent: Manifest | None, bytes: int) -> None:
        """Commit `manifest`, which follows `parent`; about so many bytes are on their way for it."""
        self._given_up.clear()
        self._thread.submit(self._commit, manifest, parent, bytes)

    def abandon(self) -> None:
        """The commit at hand, if there is one, is to end soon, however."""
        self._given_up.set()

    def close(self) -> None:
        """Commit nothing more; what is being asked of the store is ended first."""
        self._given_up.set()
        self._thread.shutdown(wait=True)
        self._askers.shutdown(wait=True)

    def look(self, newest: Manifest | None) -> bool:
        """Whether the store must be away: it says so, or has been silent for too long. If nothing is asked of it just
        now, it is asked something, for the next look."""
        if not self._silence.is_asked and newest is not None and not self._probes:
            self._probes = True
            self._thread.submit(self._probe, newest)
        with self._away_lock:
            self._is_away = self._is_away or self._silence.is_absence()  # so that its first answer is told
            return self._is_away

    # --- on the committing thread -------------------------------------------------------------------------------

    def _commit(self, manifest: Manifest, parent: Manifest | None, bytes: int) -> None:
        try:
            known = frozenset() if parent is None else named_files(parent)
            self._await_files(sorted(named_files(manifest) - known), self._patience.seconds(bytes))
            is_mine = self._asking(partial(self._create, manifest))
        except _GivenUp:
            self._failed(f"the commit of epoch {manifest.epoch} was given up", None)
        except _LostError as error:
            self._failed(str(error), error, excuse="lost")
        except BaseException as error:  # an exit, too: it would end this thread alone, and the job would wait for ever
            self._failed(reason_of(error), error)
        else:
            self._report(e.Committed() if is_mine else e.CommitLost(), None)

    def _failed(self, reason: str, error: BaseException | None, excuse: e.Excuse = None) -> None:
        retryable = error is None or excuse is not None or is_retryable(error)
        failed = e.CommitFailed(reason, self._clock.now_ms(), random.random(), retryable, excuse)
        self._report(failed, error)

    def _await_files(self, names: Sequence[str], patience_s: float) -> None:
        missing, pause_s, since_s = list(names), _FIRST_PAUSE_S, time.monotonic()
        ask_s = since_s + _UNSENT_S
        while missing:
            asked = len(missing)
            missing = self._asking(partial(self._missing, missing))
            if len(missing) < asked:
                since_s = time.monotonic()
                ask_s = since_s + _UNSENT_S
            elif time.monotonic() - since_s > patience_s:
                raise _LostError(
                    f"{missing[0]} and {len(missing) - 1} more files of acknowledged epochs have not come to the store "
                    f"within {patience_s:.0f} s, and it answers: was a machine lost, or can one not reach it? What ran "
                    "ahead is run again"
                )
            if missing:
                if time.monotonic() > ask_s:
                    self._send_unsent()
                    ask_s = time.monotonic() + _UNSENT_AGAIN_S
                self._wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    def _missing(self, names: Collection[str]) -> list[str]:
        return [name for name, there in zip(names, self._askers.map(self._exists, names), strict=True) if not there]

    def _exists(self, name: str) -> bool:
        with self._silence.heard():
            return self._store.exists(name)

    def _create(self, manifest: Manifest) -> bool:
        with self._silence.heard():
            return ManifestLog(self._store).commit(manifest)

    def _asking(self, ask: Callable[[], _Answer]) -> _Answer:
        """What the store answers, however long it is away."""
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                answer = ask()
            except StoreAwayError as error:
                self._tell_away(error)
                self._wait(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
                continue
            self._tell_back()
            return answer

    def _probe(self, newest: Manifest) -> None:
        try:
            self._exists(manifest_name(newest.epoch))
            self._tell_back()
        except StoreAwayError as error:
            self._tell_away(error)
        except Exception as error:  # a commit will tell what it is
            _LOG.warning("the store answers a question with: %s", error)
            self._tell_back()
        finally:
            self._probes = False

    def _tell_away(self, error: StoreAwayError) -> None:
        with self._away_lock:
            if not self._is_away:
                self._is_away = True
                self._report(e.StoreUnavailable(), error)

    def _tell_back(self) -> None:
        with self._away_lock:
            if self._is_away:
                self._is_away = False
                self._report(e.StoreAvailable(), None)

    def _wait(self, pause_s: float) -> None:
        if self._given_up.wait(pause_s):
            raise _GivenUp
