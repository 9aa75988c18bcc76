"""Publishes committed epochs, one after the other, on a thread of its own while the next epoch runs.

An epoch's output becomes visible sink by sink, in the order of the manifest. The result is reported as an event of the
protocol. Nothing is ever skipped: an epoch that failed half-way is published again from its beginning.

Before each sink the publisher checks that this driver still owns the job. If the store holds a manifest newer than
those it knows, another driver has taken over and has already published this epoch, and perhaps the next. If the newest
manifest that it knows no longer exists, the job was removed. In both cases nothing more is published. One gap remains
between this check and the sink's commit: a driver that stalls there publishes an old epoch late. A sink closes the gap
if it stores the `CommitId` it receives, and rejects an older one of the same job.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from millstream.checkpoint import events as e
from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.checkpoint.receipts import write_receipt
from millstream.common.time import waiting_s
from millstream.connectors.contracts import CommitId, Sink
from millstream.errors import StoreAwayError, StoreError, StoreFullError
from millstream.jobs.clock import Clock
from millstream.jobs.epochs.failures import is_retryable, reason_of, run_or_log
from millstream.jobs.epochs.refused_output import RefusedOutput
from millstream.storage.store import Store

__all__ = ["PublishEvent", "Publisher"]

PublishEvent = e.Published | e.PublishFailed | e.PublishFenced

_MISSES_MAX = 10
"""How often a sink may report a store unreachable while the job's own store answers, before the restart strategy
decides."""


class Publisher:
    """The publishing thread of one driver.

    `report` takes the event of an epoch, how long publishing took in ms, and the error, if there was one.
    """

    def __init__(
        self,
        sinks: Mapping[str, Sink],
        store: Store,
        clock: Clock,
        report: Callable[[PublishEvent, float, BaseException | None], None],
    ) -> None:
        self._sinks, self._store, self._clock, self._report = sinks, store, clock, report
        self._log, self._refused = ManifestLog(store), RefusedOutput(store, clock.now_ms)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="millstream-publish")
        self._closed = threading.Event()
        self._misses = 0

    def publish(self, action: e.Publish, newest: Manifest | None) -> None:
        """Publish an epoch; `newest` is the newest manifest that this driver knows."""
        self._thread.submit(self._publish, action, newest)

    def close(self) -> None:
        """Publish nothing more; publishing in progress is completed first."""
        self._closed.set()
        self._thread.shutdown(wait=True)

    def _publish(self, action: e.Publish, newest: Manifest | None) -> None:
        """Runs on the publishing thread."""
        if self._closed.wait(waiting_s(action.delay_ms / 1000)):
            return
        started = time.monotonic()
        try:
            manifest = newest if newest is not None and newest.epoch == action.epoch else self._log.read(action.epoch)
            newest_known = action.epoch if newest is None else newest.epoch
            for uid, staged in manifest.staged.items():
                # Checked between sinks as well: another driver may have taken over while this one was suspended.
                newest_stored = self._log.epochs_from(newest_known)[-1:] if staged else [newest_known]
                if newest_stored != [newest_known]:
                    self._report(e.PublishFenced(action.epoch, max(newest_stored, default=newest_known)), 0.0, None)
                    return
                commit = CommitId(manifest.job_id, uid, manifest.epoch)
                items = [item.payload for item in staged]
                self._refused.commit(self._sinks[uid], commit, manifest.operator_name(uid), items)
        except BaseException as error:  # SystemExit, too: it would end this thread only, and the job would wait forever
            failed = e.PublishFailed(
                action.epoch,
                reason_of(error),
                self._clock.now_ms(),
                random.random(),
                retryable=is_retryable(error),
                excuse=self._excuse(error, action.epoch),
            )
            self._report(failed, 0.0, error)
        else:
            self._misses = 0
            run_or_log(f"writing the receipt of epoch {action.epoch}", lambda: write_receipt(self._store, manifest))
            self._report(e.Published(action.epoch), (time.monotonic() - started) * 1000, None)

    def _excuse(self, error: BaseException, epoch: int) -> e.Excuse:
        """An unreachable store is not the job's fault. If the job's own store answers, a sink's target in the same
        service is unreachable, perhaps permanently: that is excused a limited number of times."""
        if not isinstance(error, StoreAwayError):
            return None
        if isinstance(error, StoreFullError):
            return "full"
        try:
            self._log.epochs_from(epoch)
        except StoreAwayError:
            return "away"
        except StoreError:
            return None
        self._misses += 1
        return "away" if self._misses <= _MISSES_MAX else None
