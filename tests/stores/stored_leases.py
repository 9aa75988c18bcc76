"""The leases of a store, for assertions in tests."""

from __future__ import annotations

from millstream.checkpoint.leases import Lease, read_leases
from millstream.storage.store import Store


def leases_of(store: Store) -> list[Lease]:
    """All readable leases of a store, expired ones included."""
    return [lease for _, lease in read_leases(store) if isinstance(lease, Lease)]
