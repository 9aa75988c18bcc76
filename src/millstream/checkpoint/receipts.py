"""Publishing receipts: record the newest published epoch immediately, before the next manifest does.

A manifest records that earlier epochs are published, but not its own epoch. While the job is idle, it would be unknown
whether the newest epoch is published. The next start would publish it again, which is harmless unless a consumer has
removed the published files since. So when an epoch is published, a small file named after the epoch records it. It also
identifies the manifest: a receipt for an epoch that the store does not have shows that the newest manifests are lost.

An epoch without output needs no receipt. A receipt that cannot be written or read is ignored: publishing is then
repeated. Old receipts are swept with the epochs (`jobs/epochs/sweeper.py`).
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from millstream.checkpoint.manifest import Manifest, ManifestLog
from millstream.checkpoint.sealed import seal, unseal
from millstream.errors import StoreAwayError, StoreDamagedError, StoreError
from millstream.storage.names import RECEIPTS, epoch_of_receipt, manifest_name, receipt_name
from millstream.storage.store import Store

__all__ = ["FORMAT", "Receipt", "known_published", "newest_receipt", "write_receipt"]

_LOG = logging.getLogger(__name__)
FORMAT = 1


@dataclass(frozen=True)
class Receipt:
    """`epoch` of the job `job_id` is published, as listed in the manifest that `run` committed."""

    job_id: str
    epoch: int
    run: str


def write_receipt(store: Store, manifest: Manifest) -> None:
    """Records that an epoch is published; writes nothing for an epoch without output."""
    if any(manifest.staged.values()):
        receipt = Receipt(manifest.job_id, manifest.epoch, manifest.run)
        fields = {"job_id": receipt.job_id, "epoch": receipt.epoch, "attempt": receipt.run}
        store.put(receipt_name(manifest.epoch), seal("receipt", FORMAT, fields))


def newest_receipt(store: Store, job_id: str) -> Receipt | None:
    """The receipt of the job's newest epoch that has one; unreadable receipts are logged and skipped."""
    epochs = sorted((epoch_of_receipt(name) or 0 for name in store.list(RECEIPTS)), reverse=True)
    receipts = (_read(store, epoch) for epoch in filter(None, epochs))
    return next((receipt for receipt in receipts if receipt is not None and receipt.job_id == job_id), None)


def _read(store: Store, epoch: int) -> Receipt | None:
    where = f"{receipt_name(epoch)} of store {store.url}"
    try:
        receipt = _decoded(store.get(receipt_name(epoch)), where)
        if receipt.epoch != epoch:
            raise StoreDamagedError(f"{where} is the receipt of epoch {receipt.epoch}. Was it copied or renamed?")
        return receipt
    except StoreAwayError:
        raise
    except StoreError as error:
        _LOG.warning("%s", error.message)
        return None


def _decoded(data: bytes, where: str) -> Receipt:
    fields = unseal(data, "receipt", FORMAT, where)
    job_id, epoch, run = fields.get("job_id"), fields.get("epoch"), fields.get("attempt")
    if not isinstance(job_id, str) or type(epoch) is not int or not isinstance(run, str):
        raise StoreDamagedError(f"{where} is not a complete receipt: it names no epoch. Remove it.")
    return Receipt(job_id, epoch, run)


def known_published(store: Store, newest: Manifest | None, job_id: str) -> int:
    """The newest epoch known to be published, by the job's newest manifest or by a receipt.

    StoreDamagedError if a receipt names an epoch that does not exist: manifests are missing, and resuming from an older
    one would publish again.

    >>> from millstream.storage import open_store
    >>> known_published(open_store("memory://doctest-receipts"), None, "j1")
    0
    """
    receipt = newest_receipt(store, job_id)
    last = 0 if newest is None else newest.epoch
    if receipt is None:
        return 0 if newest is None else last if _has_receipt(store, newest) else newest.published_through
    # Checked after the receipt was read: a running job may have committed since `newest` was read.
    if receipt.epoch > last and not ManifestLog(store).epochs_from(receipt.epoch):
        newest_text = f"the newest existing one is of epoch {last}" if last else "there is none at all"
        raise StoreDamagedError(
            f"store {store.url}: {manifest_name(receipt.epoch)} is missing. Epoch {receipt.epoch} was committed and "
            f"published, and {newest_text}. Nothing was changed; restore it from a copy, or start in another store "
            "with --from and an intact epoch."
        )
    return 0 if newest is None else max(newest.published_through, min(receipt.epoch, last))


def _has_receipt(store: Store, manifest: Manifest) -> bool:
    """Whether exactly this manifest has a receipt. When a job removes its epochs, its id changes; a held epoch remains
    with its receipt, and both have the previous id."""
    name = receipt_name(manifest.epoch)
    receipt = _read(store, manifest.epoch) if store.exists(name) else None
    return receipt == Receipt(manifest.job_id, manifest.epoch, manifest.run)
