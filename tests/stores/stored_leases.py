"""The leases of a store, as tests ask for them."""

from __future__ import annotations

from millstream.checkpoint.leases import Lease, read_leases
from millstream.storage.store import Store


def leases_of(store: Store) -> list[Lease]:
    """All leases of a store that can be read, ended ones included."""
    return [lease for _, lease in read_leases(store) if isinstance(lease, Lease)]
