"""What the counting job counts, for the job, its readers and its tests."""

from __future__ import annotations

__all__ = ["EPOCH_MS", "EPOCH_RECORDS", "KEYS", "STATE"]

KEYS = [f"key {number}" for number in range(24)]
STATE = "counts"
EPOCH_RECORDS = 32
EPOCH_MS = 200
