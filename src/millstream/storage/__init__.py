"""Durable storage of jobs: one `Store` interface over local disk, memory and object stores."""

from __future__ import annotations

from millstream.storage.store import Store, open_store

__all__ = ["Store", "open_store"]
