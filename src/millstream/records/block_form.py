"""How a block of records begins, and where its timestamps are.

`runtime.exchange.blocks` packs and unpacks blocks; readers beside the job read stored ones, and open no pickle.
"""

from __future__ import annotations

__all__ = ["PICKLE", "TIMESTAMP_COLUMN", "TYPED", "filled_up"]

TYPED = b"A"
"""The first byte of a block of typed records; an Arrow IPC stream follows."""
PICKLE = b"P"
"""The first byte of a block of untyped records; one pickle of (values, timestamps) follows."""
TIMESTAMP_COLUMN = "__timestamp"
"""The hidden column of timestamps in a block of typed records."""


def filled_up(data: bytes) -> bytes:
    """The data with zeros added up to a multiple of eight bytes. A pickle itself says where it ends.

    >>> filled_up(b"123456789")
    b'123456789\\x00\\x00\\x00\\x00\\x00\\x00\\x00'
    """
    return data + bytes(-len(data) % 8)
