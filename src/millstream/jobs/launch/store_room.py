"""Checks a store before a job starts in it, and sweeps it first if its disk is full.

An earlier run may have filled the disk: with epochs that retention no longer needs, and files of an epoch that was
never committed. Only the job that owns the store sweeps it, by its own retention.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial

from millstream.checkpoint.job_record import read as read_job_record
from millstream.checkpoint.manifest import ManifestLog
from millstream.errors import MillstreamError, StoreAwayError, StoreFullError
from millstream.jobs.epochs.sweeper import Sweeper
from millstream.jobs.settings.driver_settings import retention_policy
from millstream.storage.log_lock import is_surely_idle
from millstream.storage.store import Store

__all__ = ["check_room"]

_LOG = logging.getLogger(__name__)


def check_room(
    store: Store, patient_store: Store, job: str, configuration: Mapping[str, str], now_ms: Callable[[], int]
) -> None:
    """Check that the store is writable; `patient_store` is the same store, but waits while it is unreachable."""
    try:
        store.check_writable()
    except StoreAwayError as error:
        if isinstance(error, StoreFullError):
            _sweep(store, job, configuration, now_ms)
        patient_store.check_writable()


def _sweep(store: Store, job: str, configuration: Mapping[str, str], now_ms: Callable[[], int]) -> None:
    try:
        record = read_job_record(store)
        if record is None or job not in record.names:
            return
        _LOG.warning("store %s: its disk is full, and it is swept before the job starts", store.url)
        newest, sweeper = ManifestLog(store).newest(), Sweeper(store, now_ms, retention_policy(configuration))
        while sweeper.sweep_once(newest, partial(is_surely_idle, store)):
            pass
    except MillstreamError as error:  # the error to report is that the disk is full
        _LOG.warning("store %s could not be swept: %s", store.url, error)
